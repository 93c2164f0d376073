"""What a process that runs for weeks does about its memory and its threads."""

from __future__ import annotations

import asyncio
from typing import Final

from dynsched.plumbing.garbage import collect_less, leave_out_the_living
from dynsched.plumbing.malloc import give_back_free_memory, share_heap
from dynsched.plumbing.turns import take_shorter_turns

TICKS_BETWEEN_TRIMS: Final = 4
"""Ticks from one time that free memory is given back to the system to the next, while nothing is
written: giving it back at each tick would cost more than it saves."""


def prepare() -> None:
    """Before the first thread starts."""
    share_heap()
    collect_less()
    take_shorter_turns()


def tidy_up(tick: int, *, wrote: bool) -> None:
    """After some ticks, have freed memory given back; after the first, take what there is out of
    garbage collection.
    """
    if tick == 1:  # all nodes were read: what the watch keeps of each lives as long as it
        leave_out_the_living()
    if wrote or tick % TICKS_BETWEEN_TRIMS == 1:
        asyncio.get_running_loop().run_in_executor(None, give_back_free_memory)
