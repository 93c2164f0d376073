"""The values of the last hour, of each rule on each node, in memory of a fixed size. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dynsched.engine.columns import Ints, Roster
from dynsched.engine.snapshot import Snapshot
from dynsched.rules.rule_set import Rule

POINTS: Final = 60
"""Points that are kept of each rule on each node."""
STEP: Final = 60.0
"""Seconds from one point to the next, once the process has run for an hour."""

_LARGEST: Final = float(np.finfo(np.float16).max)
_FINEST: Final = STEP / 2**5
_SPARE: Final = 8
"""One row in so many is kept free: each time that there is none, all points are copied."""


class History:
    """At most ``POINTS`` values of each rule on each node, in parts of the rule's threshold, as
    16-bit floats: three digits, which is more than a curve on a screen shows. That is 2 bytes a
    point, 1.8 MB for three rules on 5,000 nodes, and one byte a point for whether the node was
    marked. A point is one block of memory, which is not in use before the point is taken.

    A process that has just been started takes points more often than once a minute, so that there
    is something to see; whenever the memory is full, every other point is dropped and the step
    doubles, until it is ``STEP``. From then on the oldest point goes.
    """

    def __init__(self, interval: float) -> None:
        """``interval``: seconds from one tick to the next."""
        self.step = _FINEST
        while self.step < min(interval, STEP):
            self.step *= 2
        self._times = np.full(POINTS, math.nan)
        self._taken = 0
        self._next = 0
        self._due_at = -math.inf
        self._units: dict[str, float] = {}
        """By rule: what 1 stands for in its values."""
        self._roster = Roster(())
        self._rows: Ints = np.zeros(0, np.int64)
        """Of each node of the roster."""
        self._values: NDArray[np.float16] = np.zeros((POINTS, 0, 0), np.float16)
        self._marked = np.zeros((POINTS, 0), np.bool_)

    def is_due(self, at: float) -> bool:
        """Whether a point is to be taken at ``at`` (Unix seconds, as of all times here)."""
        # A clock that was set back by more than a step must not stop the history.
        return at >= self._due_at or at < self._due_at - 2 * self.step

    def take(self, snapshot: Snapshot) -> None:
        """Take a point. Rules and nodes that are not in it are forgotten; an early rule has the
        values of another one.
        """
        if self._taken == POINTS and self.step < STEP:
            self._drop_every_other()
        nodes, rules = snapshot.nodes, snapshot.rule_set.rules
        shown = [row for row, rule in enumerate(rules) if rule.early_of is None]
        self._follow([rules[row] for row in shown])
        alerts = nodes.evaluation.alerts
        if alerts.roster is not self._roster:
            self._make_room(alerts.roster)
        slot, units = self._next, np.array(list(self._units.values()))
        with np.errstate(over="ignore"):  # it is kept as the largest
            values = alerts.good_values(shown) / units[:, None]
        # What was there before, an hour ago, is overwritten.
        self._values[slot][:, self._rows] = values.clip(-_LARGEST, _LARGEST)
        self._marked[slot] = False
        self._marked[slot, self._rows[self._roster.places_of(nodes.marked)]] = True
        self._times[slot] = snapshot.taken_at
        self._due_at = snapshot.taken_at + self.step
        self._next = (slot + 1) % POINTS
        self._taken = min(self._taken + 1, POINTS)

    @property
    def times(self) -> list[float]:
        """Of the points, the oldest first; in Unix seconds."""
        return [float(at) for at in self._times[self._slots()]]

    @property
    def size(self) -> int:
        """Bytes of all points."""
        return self._values.nbytes + self._marked.nbytes + self._times.nbytes

    def values(self, node: str) -> Mapping[str, list[float | None]] | None:
        """By rule, a value for each of ``times``; None where none was known. None for no node."""
        place = self._roster.places.get(node)
        if place is None:
            return None
        found = self._values[self._slots(), :, self._rows[place]].T.astype(np.float64)
        return {
            rule: [_known(value * unit) for value in values]
            for (rule, unit), values in zip(self._units.items(), found.tolist(), strict=True)
        }

    def marked(self, node: str) -> list[bool]:
        """For each of ``times``: whether the node carried the mark."""
        place = self._roster.places.get(node)
        if place is None:
            return []
        return [bool(each) for each in self._marked[self._slots(), self._rows[place]]]

    def _slots(self) -> list[int]:
        first = self._next - self._taken
        return [(first + number) % POINTS for number in range(self._taken)]

    def _drop_every_other(self) -> None:
        """Double the step. Until it is ``STEP`` no slot was written twice: they are in order."""
        kept = POINTS // 2
        for slot in range(kept):
            for points in (self._times, self._values, self._marked):
                points[slot] = points[2 * slot + 1]
        self._taken = self._next = kept
        self.step *= 2

    def _follow(self, rules: Sequence[Rule]) -> None:
        """Where other rules are in force, those that stay keep their values."""
        before, self._units = self._units, {rule.name: _unit(rule) for rule in rules}
        if list(before.items()) == list(self._units.items()):
            return
        had, places = self._values, list(before)
        self._values = np.zeros((POINTS, len(rules), had.shape[2]), np.float16)
        for slot in range(self._taken):
            for index, (name, unit) in enumerate(self._units.items()):
                point = self._values[slot, index]
                point[:] = math.nan
                if name in before:
                    ours = had[slot, places.index(name)] * np.float64(before[name] / unit)
                    point[:] = ours.clip(-_LARGEST, _LARGEST)

    def _make_room(self, roster: Roster) -> None:
        """Rows for these nodes: those that stay keep theirs, those that are gone give theirs up."""
        found = roster.places_in(self._roster)
        is_new, size = found < 0, self._marked.shape[1]
        is_free = np.ones(size, np.bool_)
        rows = np.full(len(roster), -1, np.int64)
        rows[~is_new] = self._rows[found[~is_new]]
        is_free[rows[~is_new]] = False
        missing = int(np.count_nonzero(is_new) - np.count_nonzero(is_free))
        if missing > 0:
            # The first nodes are all that there are: most clusters stay as they are.
            self._grow(missing + (len(roster) // _SPARE if size else 0))
            is_free = np.concatenate((is_free, np.ones(self._marked.shape[1] - size, np.bool_)))
        fresh = np.flatnonzero(is_free)[: np.count_nonzero(is_new)]
        rows[is_new] = fresh
        for slot in range(self._taken):
            self._values[slot][:, fresh], self._marked[slot, fresh] = math.nan, False
        self._roster, self._rows = roster, rows

    def _grow(self, more: int) -> None:
        _, rules, size = self._values.shape
        values = np.zeros((POINTS, rules, size + more), np.float16)
        marked = np.zeros((POINTS, size + more), np.bool_)
        for slot in range(self._taken):
            values[slot, :, :size], marked[slot, :size] = self._values[slot], self._marked[slot]
        self._values, self._marked = values, marked


def _unit(rule: Rule) -> float:
    return abs(rule.threshold) or 1.0


def _known(value: float) -> float | None:
    # Back from 16 bits: 31.5 and not 31.508.
    return None if math.isnan(value) else float(f"{value:.3g}")
