"""``dynsched demo``: a simulated cluster, a load, and the real operator, all on this machine."""
