"""What `dynsched run` sets for its process before all else, in processes of their own."""

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from programs import run

from dynsched.util import memory

PREPARED = """
import gc, sys
from dynsched.util.memory import prepare

class Cyclic:
    def __init__(self):
        self.itself = self

before = sys.getswitchinterval()
prepare()
at_start = gc.get_freeze_count()
kept = [Cyclic() for _ in range(100)]
gc.freeze()
print(before / sys.getswitchinterval() >= 5)
print(at_start > 1000, gc.get_freeze_count() - at_start >= 100)
passes = sum(generation["collections"] for generation in gc.get_stats())
for _ in range(2_000):
    Cyclic()
few = sum(generation["collections"] for generation in gc.get_stats()) - passes
for _ in range(100_000):
    Cyclic()
print(few, len([each for each in gc.get_objects() if type(each) is Cyclic]) < 50_000)
"""

THREADS = """
import ctypes, sys, threading
from dynsched.util.memory import share_heap
if sys.argv[1] == "shared":
    share_heap()
gate = threading.Barrier(9)
def hold():
    kept = bytes(100_000)
    gate.wait()
    gate.wait()
for _ in range(8):
    threading.Thread(target=hold).start()
gate.wait()
libc = ctypes.CDLL(None)
libc.fdopen.restype = ctypes.c_void_p
libc.malloc_info(0, ctypes.c_void_p(libc.fdopen(1, b"w")))
libc.fflush(None)
gate.wait()
"""

FREED = """
import os
from dynsched.util.memory import give_back_free_memory
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGESIZE")
kept = [bytes(4_000) for _ in range(20_000)]  # smaller than what glibc maps on its own
last = bytes(4_000)
del kept
before = resident()
give_back_free_memory()
print(before - resident())
"""


def printed_by(program: str, *arguments: str) -> str:
    return run(sys.executable, "-c", program, *arguments, check=True).stdout


def test_threads_take_short_turns_and_the_collector_leaves_out_what_lives() -> None:
    assert printed_by(PREPARED).split() == ["True", "True", "True", "0", "True"]


def test_threads_share_two_heaps_and_free_memory_is_given_back() -> None:
    heaps = {how: printed_by(THREADS, how).count("<heap nr=") for how in ("apart", "shared")}
    if not heaps["apart"]:
        pytest.skip("this C library is not glibc")
    assert heaps["apart"] > 2
    assert heaps["shared"] <= 2
    assert int(printed_by(FREED)) > 40_000_000


def test_another_c_library_is_left_as_it_is(monkeypatch) -> None:
    monkeypatch.setattr("ctypes.CDLL", lambda _: object())
    memory.share_heap()
    memory.give_back_free_memory()


async def test_memory_is_given_back_after_each_tick(monkeypatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(memory, "give_back_free_memory", lambda: done.append("given back"))
    monkeypatch.setattr("gc.freeze", lambda: done.append("left out"))
    # With one thread, what is asked for later is done later.
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    for tick in (1, 2, 3):
        memory.tidy_up(tick)
    await asyncio.to_thread(int)
    assert sorted(done) == ["given back", "given back", "given back", "left out"]
