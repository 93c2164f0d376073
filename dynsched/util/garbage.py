"""How often Python's garbage collector looks for reference cycles, and where.

While it looks, no thread of the process runs. Its cost grows with the objects that it visits, and
nearly all of ours live as long as the process or are freed by their reference counts.
"""

from __future__ import annotations

import gc
from typing import Final

_YOUNG: Final = 10_000
"""Objects that are made before it looks among the youngest; Python's own figure is 700."""


def collect_less() -> None:
    """Look more rarely, and never among what exists now: modules, classes, functions."""
    gc.set_threshold(_YOUNG)
    leave_out_the_living()


def leave_out_the_living() -> None:
    """From now on, never look among the objects that exist at this moment.

    They are still freed by their reference counts; only a cycle among them would stay. So this is
    called a fixed number of times in the life of a process, and not at every tick.
    """
    gc.freeze()
