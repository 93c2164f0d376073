"""``dynsched demo``: a simulated cluster, a load, and the real operator, all on this machine.

``run`` sets the stage and clears it away; ``show`` is what the audience sees.
"""
