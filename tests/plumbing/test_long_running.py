"""What `dynsched run` sets for its process before all else."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from dynsched.plumbing import long_running

PREPARED = """
import gc, sys
from dynsched.plumbing.long_running import prepare
before = sys.getswitchinterval()
prepare()
print(before / sys.getswitchinterval() >= 5, gc.get_freeze_count() > 1000)
"""


def test_threads_take_short_turns_and_the_collector_leaves_out_what_exists() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PREPARED], capture_output=True, text=True, check=True, timeout=30
    )
    assert done.stdout.split() == ["True", "True"]


async def test_memory_is_given_back_at_times_and_after_writes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[str] = []
    monkeypatch.setattr(long_running, "give_back_free_memory", lambda: done.append("given back"))
    monkeypatch.setattr(long_running, "leave_out_the_living", lambda: done.append("left out"))
    # With one thread, what is asked for later is done later.
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    by_tick = {}
    for tick in range(1, 10):
        done.clear()
        long_running.tidy_up(tick, wrote=tick == 7)
        await asyncio.to_thread(int)
        by_tick[tick] = list(done)
    assert {tick: what for tick, what in by_tick.items() if what} == {
        1: ["left out", "given back"],
        5: ["given back"],
        7: ["given back"],
        9: ["given back"],
    }
