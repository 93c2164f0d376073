"""`dynsched run`: the evaluation loop and its parts, wired together in `main`."""
