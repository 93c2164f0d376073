"""The only code that touches the API server: reads by watch, writes by one merge patch a node."""
