"""The values of the last hour, of each rule on each node, in memory of a fixed size. Pure."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from dynsched.core.model import NodeView, Quality

POINTS: Final = 60
"""Points that are kept of each rule on each node."""
STEP: Final = 60.0
"""Seconds from one point to the next, once the process has run for an hour."""

_UNKNOWN: Final = math.nan
_LARGEST: Final = 3.4e38
_FINEST: Final = STEP / 2**5


class History:
    """At most ``POINTS`` values of each rule on each node, as 32-bit floats: 4 bytes a point, which
    is 3.6 MB for three rules on 5,000 nodes, and one byte a point for whether the node was marked.

    A process that has just been started takes points more often than once a minute, so that there
    is something to see; whenever the memory is full, every other point is dropped and the step
    doubles, until it is ``STEP``. From then on the oldest point goes.

    A point is taken in three steps, so that the caller can do other things between them:
    `is_due`, `begin`, `add` for some nodes at a time, `finish`. It is visible once finished.
    """

    def __init__(self, interval: float) -> None:
        """``interval``: seconds from one tick to the next."""
        self.step = _FINEST
        while self.step < min(interval, STEP):
            self.step *= 2
        self._times = array("d", [_UNKNOWN]) * POINTS
        self._taken = 0
        self._next = 0
        self._due_at = -math.inf
        self._at = 0.0
        self._rules: tuple[str, ...] = ()
        self._values: dict[str, array[float]] = {}
        self._marked: dict[str, bytearray] = {}
        self._uids: dict[str, str] = {}
        self._seen: set[str] = set()

    def is_due(self, at: float) -> bool:
        """Whether a point is to be taken at ``at`` (Unix seconds, as of all times here)."""
        # A clock that was set back by more than a step must not stop the history.
        return at >= self._due_at or at < self._due_at - 2 * self.step

    def begin(self, at: float, rules: Sequence[str]) -> None:
        """Begin a point. ``rules``: names; what is known of others is forgotten."""
        if self._taken == POINTS and self.step < STEP:
            self._drop_every_other()
        if tuple(rules) != self._rules:
            self._follow(tuple(rules))
        self._due_at = at + self.step
        self._at = at
        self._seen = set()

    def add(self, views: Iterable[NodeView]) -> None:
        """Take in the values of some nodes."""
        column = {rule: index * POINTS for index, rule in enumerate(self._rules)}
        slot = self._next
        nothing = array("f", [_UNKNOWN]) * len(self._rules)
        for view in views:
            name = view.name
            self._seen.add(name)
            uid = view.alerts[0].uid if view.alerts else ""
            values = self._values.get(name)
            if values is None or self._uids[name] != uid:
                values = self._values[name] = array("f", [_UNKNOWN]) * (POINTS * len(self._rules))
                self._marked[name] = bytearray(POINTS)
                self._uids[name] = uid
            values[slot::POINTS] = nothing  # what was there before, an hour ago
            for alert in view.alerts:
                value = alert.value
                if alert.quality is Quality.OK and value is not None:
                    # Beyond the range of 32 bits, `array` raises.
                    values[column[alert.rule] + slot] = (
                        value if -_LARGEST < value < _LARGEST else math.copysign(_LARGEST, value)
                    )
            self._marked[name][slot] = view.marked

    def finish(self) -> None:
        """Make the point visible, and forget the nodes that are gone."""
        self._times[self._next] = self._at
        self._next = (self._next + 1) % POINTS
        self._taken = min(self._taken + 1, POINTS)
        for name in self._values.keys() - self._seen:
            del self._values[name], self._marked[name], self._uids[name]
        self._seen = set()

    @property
    def times(self) -> list[float]:
        """Of the points, the oldest first; in Unix seconds."""
        return [self._times[slot] for slot in self._slots()]

    @property
    def size(self) -> int:
        """Bytes of all points, without what Python adds for each node."""
        values = sum(len(of) * of.itemsize for of in self._values.values())
        return values + POINTS * len(self._marked) + POINTS * self._times.itemsize

    def values(self, node: str) -> Mapping[str, list[float | None]] | None:
        """By rule, a value for each of ``times``; None where none was known. None for no node."""
        found = self._values.get(node)
        if found is None:
            return None
        slots = self._slots()
        return {
            rule: [_known(found[index * POINTS + slot]) for slot in slots]
            for index, rule in enumerate(self._rules)
        }

    def marked(self, node: str) -> list[bool]:
        """For each of ``times``: whether the node carried the mark."""
        found = self._marked.get(node)
        return [] if found is None else [bool(found[slot]) for slot in self._slots()]

    def _slots(self) -> list[int]:
        first = self._next - self._taken
        return [(first + number) % POINTS for number in range(self._taken)]

    def _drop_every_other(self) -> None:
        """Double the step. Until it is ``STEP`` no slot was written twice: they are in order."""
        kept = POINTS // 2
        self._times[:kept] = self._times[1::2]
        for name, values in self._values.items():
            for start in range(0, len(values), POINTS):
                values[start : start + kept] = values[start + 1 : start + POINTS : 2]
            self._marked[name][:kept] = self._marked[name][1::2]
        self._taken = self._next = kept
        self.step *= 2

    def _follow(self, rules: tuple[str, ...]) -> None:
        """Other rules are in force: those that stay keep their values."""
        before = {rule: index * POINTS for index, rule in enumerate(self._rules)}
        for name, values in self._values.items():
            fresh = array("f", [_UNKNOWN]) * (POINTS * len(rules))
            for index, rule in enumerate(rules):
                if (start := before.get(rule)) is not None:
                    at = index * POINTS
                    fresh[at : at + POINTS] = values[start : start + POINTS]
            self._values[name] = fresh
        self._rules = rules


def _known(value: float) -> float | None:
    # Back from 32 bits: 31.5 and not 31.49999809265137.
    return None if math.isnan(value) else float(f"{value:.6g}")
