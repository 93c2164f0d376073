"""Programs beside the controller: what only `cli` imports."""
