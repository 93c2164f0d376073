"""The expected load of nodes: what metrics will show once they have caught up."""
