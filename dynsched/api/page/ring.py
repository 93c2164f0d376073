"""The values of the last hour, of each rule on each node, in memory of a fixed size. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dynsched.engine.columns import Roster
from dynsched.engine.snapshot import Snapshot
from dynsched.rules.rule_set import Rule

POINTS: Final = 60
"""Points that are kept of each rule on each node."""
STEP: Final = 60.0
"""Seconds from one point to the next, once the process has run for an hour."""

_LARGEST: Final = float(np.finfo(np.float16).max)
_FINEST: Final = STEP / 2**5


class _Point(NamedTuple):
    """``values``: by rule, what 1 stands for, and the value of each node. After the nodes of the
    arrays is one for all that are not known: NaN, and not marked.
    """

    at: float
    values: Mapping[str, tuple[float, NDArray[np.float16]]]
    marked: NDArray[np.bool_]


class History:
    """At most ``POINTS`` values of each rule on each node, in parts of the rule's threshold, as
    16-bit floats: three digits, which is more than a curve on a screen shows. That is 2 bytes a
    point, 1.8 MB for three rules on 5,000 nodes, and one byte a point for whether the node was
    marked.

    A process that has just been started takes points more often than once a minute, so that there
    is something to see; whenever the memory is full, every other point is dropped and the step
    doubles, until it is ``STEP``. From then on the oldest point goes.
    """

    def __init__(self, interval: float) -> None:
        """``interval``: seconds from one tick to the next."""
        self.step = _FINEST
        while self.step < min(interval, STEP):
            self.step *= 2
        self._points: list[_Point] = []
        self._due_at = -math.inf
        self._roster = Roster(())
        self._rules: list[str] = []

    def is_due(self, at: float) -> bool:
        """Whether a point is to be taken at ``at`` (Unix seconds, as of all times here)."""
        # A clock that was set back by more than a step must not stop the history.
        return at >= self._due_at or at < self._due_at - 2 * self.step

    def take(self, snapshot: Snapshot) -> None:
        """Take a point. Rules and nodes that are not in it are forgotten; an early rule has the
        values of another one.
        """
        if len(self._points) == POINTS and self.step < STEP:
            self._points = self._points[1::2]
            self.step *= 2
        nodes, alerts = snapshot.nodes, snapshot.nodes.evaluation.alerts
        rules = {
            rule.name: (row, _unit(rule))
            for row, rule in enumerate(snapshot.rule_set.rules)
            if rule.early_of is None
        }
        self._follow(alerts.roster, list(rules))
        with np.errstate(over="ignore"):  # it is kept as the largest
            values = {
                name: (unit, _kept(alerts.good_values(row) / unit))
                for name, (row, unit) in rules.items()
            }
        marked = np.zeros(len(alerts.roster) + 1, np.bool_)
        marked[alerts.roster.places_of(nodes.marked)] = True
        self._points = [*self._points[1 - POINTS :], _Point(snapshot.taken_at, values, marked)]
        self._due_at = snapshot.taken_at + self.step

    def past(self, nodes: Sequence[str]) -> dict[str, Any]:
        """The points of these nodes; those that are not known are left out."""
        return {
            "step": self.step,
            "times": [round(at, 1) for at in self.times],
            "nodes": {
                node: {"values": self.values(node), "marked": self.marked(node)}
                for node in nodes
                if node in self._roster.places
            },
        }

    @property
    def times(self) -> list[float]:
        """Of the points, the oldest first; in Unix seconds."""
        return [point.at for point in self._points]

    def values(self, node: str) -> Mapping[str, list[float | None]] | None:
        """By rule, a value for each of ``times``; None where none was known. None for no node."""
        place = self._roster.places.get(node)
        if place is None:
            return None
        return {
            rule: [_known(point, rule, place) for point in self._points] for rule in self._rules
        }

    def marked(self, node: str) -> list[bool]:
        """For each of ``times``: whether the node carried the mark."""
        place = self._roster.places.get(node)
        return [] if place is None else [bool(point.marked[place]) for point in self._points]

    def _follow(self, roster: Roster, rules: list[str]) -> None:
        """Those nodes and rules that stay keep their values."""
        if roster is not self._roster or rules != self._rules:
            places = np.append(roster.places_in(self._roster), -1)
            self._points = [
                _Point(
                    point.at,
                    {
                        rule: (unit, values.take(places))
                        for rule, (unit, values) in point.values.items()
                        if rule in rules
                    },
                    point.marked.take(places),
                )
                for point in self._points
            ]
            self._roster, self._rules = roster, rules


def _unit(rule: Rule) -> float:
    return abs(rule.threshold) or 1.0


def _kept(values: NDArray[np.float64]) -> NDArray[np.float16]:
    return np.append(values.clip(-_LARGEST, _LARGEST), math.nan).astype(np.float16)


def _known(point: _Point, rule: str, place: int) -> float | None:
    unit, values = point.values.get(rule, (1.0, None))
    value = math.nan if values is None else float(values[place]) * unit
    # Back from 16 bits: 31.5 and not 31.508.
    return None if math.isnan(value) else float(f"{value:.3g}")
