"""``dynsched collect``: a node's memory.available, read from the kernel's files and pushed."""
