"""The only code that talks to the API server. It reads by watch, and writes one patch per node."""
