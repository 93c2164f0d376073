"""The expected load of each node. Begin with `expected`."""
