"""The commands by which a person looks at a running dynsched: `nodes`, `why`, `open`."""
