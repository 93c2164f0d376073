"""The scheduler extender: its wire format, its bodies, its answers, and their HTTP paths."""
