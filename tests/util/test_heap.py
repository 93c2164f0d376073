"""The heaps of the C library, counted by itself."""

import subprocess
import sys

import pytest

from dynsched.util.malloc import give_back_free_memory, share_heap

THREADS = """
import ctypes, sys, threading
from dynsched.util.malloc import share_heap
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
from dynsched.util.malloc import give_back_free_memory
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGESIZE")
kept = [bytes(4_000) for _ in range(20_000)]  # smaller than what glibc maps on its own
last = bytes(4_000)
del kept
before = resident()
give_back_free_memory()
print(before - resident())
"""


def heaps(how: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", THREADS, how], capture_output=True, text=True, check=True, timeout=30
    )
    return done.stdout.count("<heap nr=")


def test_threads_share_two_heaps_and_free_memory_is_given_back() -> None:
    if not heaps("apart"):
        pytest.skip("this C library is not glibc")
    assert heaps("apart") > 2
    assert heaps("shared") <= 2
    done = subprocess.run(
        [sys.executable, "-c", FREED], capture_output=True, text=True, check=True, timeout=30
    )
    assert int(done.stdout) > 40_000_000


def test_another_c_library_is_left_as_it_is(monkeypatch) -> None:
    monkeypatch.setattr("ctypes.CDLL", lambda _: object())
    share_heap()
    give_back_free_memory()
