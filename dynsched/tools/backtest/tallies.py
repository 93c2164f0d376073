"""A replay in numbers: how often, how long and where the mark was, and how much is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from dynsched.engine.columns import Bools, Floats, Ints

FLAP: Final = 600.0
"""Seconds: a node that is marked again within this time after its release has flapped."""
DAY: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class Runs:
    """The times in which something was so without a break; one element for each of them."""

    lane: Ints
    begun: Ints
    """The first step."""
    ended: Ints
    """The step after the last."""

    def __len__(self) -> int:
        return len(self.lane)

    def between(self, first: int, last: int) -> Runs:
        """Of the lanes from ``first`` to before ``last``, which are counted from 0 on."""
        begun, ended = np.searchsorted(self.lane, [first, last])
        part = slice(int(begun), int(ended))
        return Runs(self.lane[part] - first, self.begun[part], self.ended[part])

    def flaps(self, step: float) -> Bools:
        """Which of them began within FLAP after the one before on the same lane."""
        again = np.zeros(len(self), np.bool_)
        if len(self):
            gap = (self.begun[1:] - self.ended[:-1]) * step
            again[1:] = (self.lane[1:] == self.lane[:-1]) & (gap <= FLAP)
        return again


class RunsInParts:
    """The runs of an array that comes in parts, and is never held as a whole. Mutable."""

    def __init__(self, lanes: int, count: int) -> None:
        self._before: Bools = np.zeros(lanes, np.bool_)
        self._first = 0
        self._count = count
        self._begun: list[Ints] = []
        self._ended: list[Ints] = []

    def add(self, active: Bools) -> None:
        """The next steps, shape (steps, lanes)."""
        before = np.vstack([self._before[None], active[:-1]])
        for found, changed in ((self._begun, active & ~before), (self._ended, before & ~active)):
            row, lane = np.nonzero(changed)
            found.append(lane * (self._count + 1) + row + self._first)
        self._before = active[-1]
        self._first += len(active)

    def runs(self) -> Runs:
        """By lane and then by time; what is active at the end ends there."""
        still = np.flatnonzero(self._before) * (self._count + 1) + self._count
        begun = np.sort(np.concatenate([*self._begun, np.empty(0, np.int64)])).astype(np.int64)
        ended = np.sort(np.concatenate([*self._ended, still])).astype(np.int64)
        lane, first = np.divmod(begun, self._count + 1)
        return Runs(lane, first, ended - lane * (self._count + 1))


def runs_of(active: Bools) -> Runs:
    """The runs in an array of shape (steps, lanes), by lane and then by time."""
    whole = RunsInParts(active.shape[1], len(active))
    whole.add(active)
    return whole.runs()


def tally(active: Bools, counted: Bools, step: float) -> dict[str, Any]:
    """Marks in numbers, under their names in the report. ``counted``: the nodes and times that
    count.
    """
    found = runs_of(active)
    lasted = (found.ended - found.begun) * step
    total = int(counted.sum())
    return {
        "marks": len(found),
        "marks_per_node_day": round(len(found) / (total * step / DAY), 4) if total else 0.0,
        "median_mark_seconds": float(np.median(lasted)) if len(found) else None,
        "longest_mark_seconds": float(lasted.max()) if len(found) else None,
        "flaps": int(found.flaps(step).sum()),
        "node_time_marked": round(float(active.sum() / total), 6) if total else 0.0,
    }


def share(part: Bools, whole: Bools) -> float:
    """Of the places where ``whole`` is, those where ``part`` is too; 0 where there are none."""
    total = int(whole.sum())
    return float((part & whole).sum() / total) if total else 0.0


def cells(array: Bools, number: int) -> Floats:
    """The means of ``number`` stretches of time, shape (stretches, nodes)."""
    edges = np.linspace(0, len(array), min(number, len(array)) + 1).round().astype(int)[:-1]
    sums = np.add.reduceat(array.astype(np.int32), edges, axis=0)
    lengths = np.diff([*edges.tolist(), len(array)])
    return np.asarray(sums / lengths[:, None], np.float64)
