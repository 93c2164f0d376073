"""The values of the last hour, of each rule on each node, in memory of a fixed size. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dynsched.core.columns import Ints, Roster
from dynsched.core.decision import NodeViews

POINTS: Final = 60
"""Points that are kept of each rule on each node."""
STEP: Final = 60.0
"""Seconds from one point to the next, once the process has run for an hour."""

_LARGEST: Final = 3.4e38
_FINEST: Final = STEP / 2**5
_NO_ROSTER: Final = Roster(())
_SPARE: Final = 8
"""One row in so many is kept free: each time that there is none, all rows are copied."""


class History:
    """At most ``POINTS`` values of each rule on each node, as 32-bit floats: 4 bytes a point, which
    is 3.6 MB for three rules on 5,000 nodes, and one byte a point for whether the node was marked.

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
        self._rules: tuple[str, ...] = ()
        self._roster = _NO_ROSTER
        self._row_of_place: Ints = np.zeros(0, np.int64)
        self._rows: dict[str, int] = {}
        self._free: list[int] = []
        self._values: NDArray[np.float32] = np.zeros((0, 0, POINTS), np.float32)
        self._marked = np.zeros((0, POINTS), np.bool_)

    def is_due(self, at: float) -> bool:
        """Whether a point is to be taken at ``at`` (Unix seconds, as of all times here)."""
        # A clock that was set back by more than a step must not stop the history.
        return at >= self._due_at or at < self._due_at - 2 * self.step

    def take(self, at: float, views: NodeViews) -> None:
        """Take a point. Rules and nodes that are not in it are forgotten."""
        if self._taken == POINTS and self.step < STEP:
            self._drop_every_other()
        alerts = views.evaluation.alerts
        if alerts.rules != self._rules:
            self._follow(alerts.rules)
        if alerts.roster is not self._roster:
            self._make_room(alerts.roster)
        slot, rows = self._next, self._row_of_place
        values = alerts.good_values().clip(-_LARGEST, _LARGEST)
        # What was there before, an hour ago, is overwritten.
        self._values[rows, :, slot] = values.T
        self._marked[:, slot] = False
        self._marked[[self._rows[name] for name in views.marked], slot] = True
        self._times[slot] = at
        self._due_at = at + self.step
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
        row = self._rows.get(node)
        if row is None:
            return None
        found = self._values[row][:, self._slots()].tolist()
        return {
            rule: [_known(value) for value in values]
            for rule, values in zip(self._rules, found, strict=True)
        }

    def marked(self, node: str) -> list[bool]:
        """For each of ``times``: whether the node carried the mark."""
        row = self._rows.get(node)
        return [] if row is None else [bool(each) for each in self._marked[row, self._slots()]]

    def _slots(self) -> list[int]:
        first = self._next - self._taken
        return [(first + number) % POINTS for number in range(self._taken)]

    def _drop_every_other(self) -> None:
        """Double the step. Until it is ``STEP`` no slot was written twice: they are in order."""
        kept = POINTS // 2
        for points in (self._times, self._values, self._marked):
            points[..., :kept] = points[..., 1::2]
        self._taken = self._next = kept
        self.step *= 2

    def _follow(self, rules: Sequence[str]) -> None:
        """Other rules are in force: those that stay keep their values."""
        fresh = np.full((len(self._values), len(rules), POINTS), math.nan, np.float32)
        for index, rule in enumerate(rules):
            if rule in self._rules:
                fresh[:, index] = self._values[:, self._rules.index(rule)]
        self._rules, self._values = tuple(rules), fresh

    def _make_room(self, roster: Roster) -> None:
        """Rows for these nodes: those that stay keep theirs, those that are gone give theirs up."""
        before, self._roster = self._roster, roster
        # By operations on whole dicts: at 65,000 nodes a loop would hold up other requests.
        was, now = (dict(zip(one.names, one.uids, strict=True)) for one in (before, roster))
        self._free += [self._rows.pop(name) for name, _ in was.items() - now.items()]
        missing = now.keys() - self._rows.keys()
        if len(missing) > len(self._free):
            spare = len(roster) // _SPARE if before.names else 0
            self._grow(len(missing) - len(self._free) + spare)
        for name in missing:
            row = self._rows[name] = self._free.pop()
            self._values[row], self._marked[row] = math.nan, False
        self._row_of_place = np.fromiter(map(self._rows.__getitem__, roster.names), np.int64)

    def _grow(self, more: int) -> None:
        size = len(self._values)
        values = np.empty((size + more, *self._values.shape[1:]), np.float32)
        marked = np.zeros((size + more, POINTS), np.bool_)
        values[:size], marked[:size] = self._values, self._marked
        self._values, self._marked = values, marked
        self._free += range(size + more - 1, size - 1, -1)


def _known(value: float) -> float | None:
    # Back from 32 bits: 31.5 and not 31.49999809265137.
    return None if math.isnan(value) else float(f"{value:.6g}")
