"""What a process that runs for weeks does about its memory and its threads."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import sys
from typing import Final

_YOUNG: Final = 10_000
"""Objects that are made before the garbage collector visits the youngest; Python's own figure is
700."""
_TURN: Final = 0.001
"""Seconds for which a thread may go on while another one waits; Python's own figure is 0.005."""
_M_ARENA_MAX: Final = -8  # <malloc.h>
_ARENAS: Final = 2


def prepare() -> None:
    """Before the first thread starts."""
    share_heap()
    # While the collector works, no thread runs. Its cost grows with the objects that it visits, and
    # nearly all of ours live as long as the process or are freed by their reference counts.
    gc.set_threshold(_YOUNG)
    gc.freeze()
    # No thread may hold up the event loop for long: it gives its turn away with each read, write
    # and wait for the network. Decision 0020 has what was measured.
    sys.setswitchinterval(_TURN)


def tidy_up(tick: int) -> None:
    """After each tick, have freed memory given back: otherwise what a tick needs for a moment stays
    with the process, 3 MB at 5,000 nodes and 50 MB at 65,000.
    """
    if tick == 1:  # all nodes were read: what the watch keeps of each lives as long as it
        gc.freeze()
    asyncio.get_running_loop().run_in_executor(None, give_back_free_memory)


def share_heap() -> None:
    """Let all threads allocate from two heaps instead of up to eight a core: each leaves its peak
    behind in a heap of its own, at 5,000 nodes up to 10 MB, and only one of them runs at a time.
    """
    _call_glibc("mallopt", _M_ARENA_MAX, _ARENAS)


def give_back_free_memory() -> None:
    """Return free pages to the kernel; glibc keeps what lies below the highest block in use."""
    _call_glibc("malloc_trim", 0)


def _call_glibc(name: str, *arguments: int) -> None:
    function = getattr(ctypes.CDLL(None), name, None)
    if function is not None:  # another C library is left as it is
        function(*arguments)
