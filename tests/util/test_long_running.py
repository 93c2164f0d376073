"""What `dynsched run` sets for its process before all else."""

import asyncio
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from dynsched.util import long_running

PREPARED = """
import gc, sys
from dynsched.util.long_running import prepare
before = sys.getswitchinterval()
prepare()
print(before / sys.getswitchinterval() >= 5, gc.get_freeze_count() > 1000)
"""


def test_threads_take_short_turns_and_the_collector_leaves_out_what_exists() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PREPARED], capture_output=True, text=True, check=True, timeout=30
    )
    assert done.stdout.split() == ["True", "True"]


async def test_memory_is_given_back_after_each_tick(monkeypatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(long_running, "give_back_free_memory", lambda: done.append("given back"))
    monkeypatch.setattr(long_running, "leave_out_the_living", lambda: done.append("left out"))
    # With one thread, what is asked for later is done later.
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    for tick in (1, 2, 3):
        long_running.tidy_up(tick)
    await asyncio.to_thread(int)
    assert sorted(done) == ["given back", "given back", "given back", "left out"]
