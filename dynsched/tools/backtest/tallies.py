"""A replay in numbers: how often, how long and where the mark was, and how much is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from dynsched.engine.columns import Bools, Floats, Ints
from dynsched.tools.backtest.engine import Played
from dynsched.tools.backtest.steps import Window
from dynsched.tools.backtest.world import World

FLAP: Final = 600.0
"""Seconds: a node that is marked again within this time after its release has flapped."""
DAY: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class Record:
    """All steps of one replay; shapes are (steps, nodes) unless said otherwise."""

    window: Window
    world: World
    present: Bools
    firing: Mapping[str, Bools]
    marked: Bools
    early: Bools
    known: Mapping[str, Bools]
    """By rule: where there is a good value."""
    over: Bools
    """Where a rule's threshold is breached at this moment."""
    withheld: Bools
    """Shape (steps, pools)."""
    writes: Ints
    """Shape (steps,)."""
    caps: Ints
    """Shape (steps, pools)."""

    @property
    def counted(self) -> Bools:
        """Where a node is there and may be marked."""
        found: Bools = self.present & self.world.eligible
        return found

    @property
    def moments(self) -> int:
        """At how many steps any node counts: what is told per day is told of this time."""
        return int(self.counted.any(axis=1).sum())


class Recorder:
    """Gathers what is played, chunk after chunk, into arrays of the whole window: a byte for each
    step and node of each rule.
    """

    def __init__(self, window: Window, world: World, rules: Sequence[str]) -> None:
        shape, pools = (window.count, len(world.nodes)), len(world.pools)
        self.record = Record(
            window=window,
            world=world,
            present=np.zeros(shape, np.bool_),
            firing={name: np.zeros(shape, np.bool_) for name in rules},
            marked=np.zeros(shape, np.bool_),
            early=np.zeros(shape, np.bool_),
            known={name: np.zeros(shape, np.bool_) for name in rules},
            over=np.zeros(shape, np.bool_),
            withheld=np.zeros((window.count, pools), np.bool_),
            writes=np.zeros(window.count, np.int64),
            caps=np.zeros((window.count, pools), np.int64),
        )

    def add(self, first: int, played: Played, known: Mapping[str, Bools], over: Bools) -> None:
        """The steps from ``first`` on."""
        record = self.record
        part = slice(first, first + len(played.marked))
        record.present[part] = record.world.present(record.window.times(part.start, part.stop))
        for name, firing in played.firing.items():
            record.firing[name][part] = firing
        for name, there in known.items():
            record.known[name][part] = there
        record.marked[part], record.early[part] = played.marked, played.early
        record.over[part] = over
        record.withheld[part], record.caps[part] = played.withheld, played.caps
        record.writes[part] = played.writes


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

    def seconds(self, step: float) -> Floats:
        """How long each lasted."""
        return np.asarray((self.ended - self.begun) * step, np.float64)

    def flaps(self, step: float) -> Bools:
        """Which of them began within FLAP after the one before on the same lane."""
        again = np.zeros(len(self), np.bool_)
        if len(self):
            gap = (self.begun[1:] - self.ended[:-1]) * step
            again[1:] = (self.lane[1:] == self.lane[:-1]) & (gap <= FLAP)
        return again


def runs_of(active: Bools) -> Runs:
    """The runs in an array of shape (steps, lanes), by lane and then by time."""
    edges = np.zeros((active.shape[1], active.shape[0] + 1), np.int8)
    edges[:, :-1] = active.T
    edges[:, 1:] -= active.T
    lane, begun = np.nonzero(edges == 1)
    _, ended = np.nonzero(edges == -1)
    return Runs(lane, begun, ended)


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


@dataclass(frozen=True, slots=True)
class Tally:
    """Marks in numbers. Durations are seconds, shares 0..1."""

    marks: int
    flaps: int
    marks_per_node_day: float
    median_seconds: float | None
    longest_seconds: float | None
    node_time: float
    """The share of the time of all nodes."""


def tally(active: Bools, counted: Bools, step: float) -> Tally:
    """Of the nodes and times that count."""
    found = runs_of(active)
    lasted = found.seconds(step)
    total = int(counted.sum())
    return Tally(
        marks=len(found),
        flaps=int(found.flaps(step).sum()),
        marks_per_node_day=len(found) / (total * step / DAY) if total else 0.0,
        median_seconds=float(np.median(lasted)) if len(found) else None,
        longest_seconds=float(lasted.max()) if len(found) else None,
        node_time=float(active.sum() / total) if total else 0.0,
    )


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
