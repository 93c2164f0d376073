"""In which order the tests run, so that several processes end at about the same time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

import pytest


def slow_ones_first(items: Sequence[pytest.Item], processes: int) -> list[pytest.Item]:
    """The same tests, the slow ones at the front of each process's share.

    pytest-xdist's ``worksteal`` cuts the list into one piece for each process, and moves from the
    end of one to another that has nothing left. The slow tests of one module stay together, for
    they may share a server; those that are given the most time begin first.
    """
    slow = [item for item in items if item.get_closest_marker("slow")]
    quick = [item for item in items if not item.get_closest_marker("slow")]
    modules = [list(found) for _, found in groupby(slow, key=lambda item: item.path)]
    modules.sort(key=lambda module: (_time_given(module), len(module)), reverse=True)
    piles: list[list[pytest.Item]] = [[] for _ in range(processes)]
    for module in modules:
        min(piles, key=len).extend(module)
    rest = iter(quick)
    dealt: list[pytest.Item] = []
    for number, pile in enumerate(piles):
        share = (len(items) - len(dealt)) // (processes - number)
        dealt += pile
        dealt += [item for _, item in zip(range(share - len(pile)), rest, strict=False)]
    return [*dealt, *rest]


def _time_given(module: Iterable[pytest.Item]) -> float:
    """The longest time limit of a test in it, in seconds; 0 where none has one of its own."""
    marks = (item.get_closest_marker("timeout") for item in module)
    return max((float(mark.args[0]) for mark in marks if mark and mark.args), default=0.0)
