"""The garbage collector, in a process of its own."""

import subprocess
import sys

PROGRAM = """
import gc
from dynsched.util.garbage import collect_less, leave_out_the_living

class Cyclic:
    def __init__(self):
        self.itself = self

collect_less()
at_start = gc.get_freeze_count()
kept = [Cyclic() for _ in range(100)]
leave_out_the_living()
print(at_start > 1000, gc.get_freeze_count() - at_start >= 100)
passes = sum(generation["collections"] for generation in gc.get_stats())
for _ in range(2_000):
    Cyclic()
few = sum(generation["collections"] for generation in gc.get_stats()) - passes
for _ in range(100_000):
    Cyclic()
print(few, len([each for each in gc.get_objects() if type(each) is Cyclic]) < 50_000)
"""


def test_it_looks_rarely_and_not_among_what_lives_and_finds_new_cycles() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=30
    )
    assert done.stdout.split() == ["True", "True", "0", "True"]
