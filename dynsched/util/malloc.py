"""How the C library keeps memory for this process."""

from __future__ import annotations

import ctypes
from typing import Final

_M_ARENA_MAX: Final = -8  # <malloc.h>
_ARENAS: Final = 2


def share_heap() -> None:
    """Let all threads allocate from two heaps instead of up to eight a core.

    Threads decide, query and watch in turn, and each leaves its peak behind in a heap of its own:
    at 5,000 nodes up to 10 MB. Python's lock lets one of them run at a time, so there is nothing to
    gain from more. A C library other than glibc is left as it is.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, _ARENAS)


def give_back_free_memory() -> None:
    """Return free pages to the kernel.

    glibc keeps what lies below the highest block in use. At 5,000 nodes that is 3 to 5 MB after
    each tick, and 10 MB after a thousand marks. It takes some milliseconds, in which other threads
    run. A C library other than glibc is left as it is.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
