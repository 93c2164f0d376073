"""The simulated API server: objects, versions, watches and verbs, over HTTP on loopback."""
