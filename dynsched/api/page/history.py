"""The values of the last hour, and the latest changes, in memory of a fixed size. Pure."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from dynsched.engine.columns import OK, Floats, Roster
from dynsched.engine.health import is_blind
from dynsched.engine.model import AlertState
from dynsched.engine.snapshot import NodeViews, Snapshot

POINTS: Final = 60
STEP: Final = 60.0
"""Seconds from one point to the next, once the process has run for an hour."""
MAX_CHANGES: Final = 10_000
"""Changes that are kept, of all nodes: about 2 MB."""
MAX_OF_ALL: Final = 50

LETTERS: Final = "cpkhu"
"""Of what was decided of a node: cool, pending, cooling, hot, unknown. In capitals where it
was marked."""
_MARKED: Final = len(LETTERS)
_UNKNOWN: Final = LETTERS.index("u")

_FINEST: Final = STEP / 2**5


class _Point(NamedTuple):
    """``values``: by rule, of each node. ``states``: indices of `LETTERS`, with ``_MARKED`` more
    where it was marked. The arrays' last element is for nodes that are not known.
    """

    at: float
    values: Mapping[str, NDArray[np.float32]]
    states: NDArray[np.uint8]


class History:
    """At most ``POINTS`` values of each rule on each node. At first points are taken more often;
    whenever there are so many, every other one is dropped and the step doubles. ``interval``:
    seconds between two ticks.
    """

    def __init__(self, interval: float) -> None:
        self.step = _FINEST
        while self.step < min(interval, STEP):
            self.step *= 2
        self._points: list[_Point] = []
        self._due_at = -math.inf
        self._roster = Roster(())
        self._rules: list[str] = []

    def observe(self, snapshot: Snapshot) -> None:
        """Take a point, if one is due."""
        # A clock that was set back by more than a step must not stop the history.
        if self._due_at - 2 * self.step <= snapshot.taken_at < self._due_at:
            return
        if len(self._points) == POINTS and self.step < STEP:
            self._points = self._points[1::2]
            self.step *= 2
        alerts = snapshot.nodes.verdicts.alerts
        rules = [rule.name for rule in snapshot.rule_set.rules]
        if alerts.roster is not self._roster:
            self._follow(alerts.roster)
        self._rules = rules
        values = {name: _kept(alerts.good_values(row)) for row, name in enumerate(rules)}
        states = np.append(node_states(snapshot.nodes), _UNKNOWN)
        states[alerts.roster.indices_of(snapshot.nodes.marked)] += _MARKED
        self._points = [*self._points[1 - POINTS :], _Point(snapshot.taken_at, values, states)]
        self._due_at = snapshot.taken_at + self.step

    def past(self, nodes: Sequence[str]) -> dict[str, Any]:
        """The oldest first; nodes that are not known are left out."""
        indices = self._roster.indices
        return {
            "step": self.step,
            "times": [round(point.at, 1) for point in self._points],
            "nodes": {name: self._of(indices[name]) for name in nodes if name in indices},
        }

    def _of(self, index: int) -> dict[str, Any]:
        return {
            "values": {
                rule: [_known(point, rule, index) for point in self._points] for rule in self._rules
            },
            "states": "".join(_letter(int(point.states[index])) for point in self._points),
        }

    def _follow(self, roster: Roster) -> None:
        indices = np.append(roster.indices_in(self._roster), -1)
        self._points = [
            _Point(
                point.at,
                {rule: values.take(indices) for rule, values in point.values.items()},
                point.states.take(indices),
            )
            for point in self._points
        ]
        self._roster = roster


def node_states(views: NodeViews) -> NDArray[np.uint8]:
    """Of each node as an index of `LETTERS`."""
    verdicts, limits = views.verdicts, views.inventory.limits
    alerts = views.verdicts.alerts
    exists = alerts.exists & ~limits.is_shadow
    fires = (exists & alerts.firing & np.isnan(alerts.keep_firing_since)).any(axis=0)
    pending = (exists & alerts.pending).any(axis=0)
    unknown = exists.any(axis=0) & ~(exists & (alerts.quality == OK)).any(axis=0)
    kinds = [verdicts.hot & fires, verdicts.hot, pending, unknown]
    return np.select(kinds, [LETTERS.index(letter) for letter in "hkpu"], 0).astype(np.uint8)


def _letter(state: int) -> str:
    return f"{LETTERS}{LETTERS.upper()}"[state]


def _kept(values: Floats) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):
        return np.append(values, math.nan).astype(np.float32)


def _known(point: _Point, rule: str, index: int) -> float | None:
    values = point.values.get(rule)
    value = math.nan if values is None else float(values[index])
    return float(f"{value:.4g}") if math.isfinite(value) else None


class Change(msgspec.Struct, frozen=True, gc=False):
    """``at``: Unix seconds. ``kind``: the alert's new state; or ``mark``, ``release`` or ``repair``
    for what was written, with an empty ``rule``. ``why`` may be a `Reason`. Without a ``node``, of
    all: ``rules`` were loaded or ``refused``, who is the ``leader``, no rule has a value
    (``blind``) or one has again (``sees``).
    """

    at: float
    node: str
    kind: str
    rule: str
    value: float | None
    why: str


class Changes:
    def __init__(self) -> None:
        self._kept: deque[Change] = deque(maxlen=MAX_CHANGES)
        self._of_all: deque[Change] = deque(maxlen=MAX_OF_ALL)
        self._known: Collection[str] = ()
        self._since = 0.0
        self._told: set[tuple[str, str, str]] = set()
        self._leader: str | None = None
        self._is_blind = False

    def observe(self, snapshot: Snapshot) -> None:
        """What this tick wrote, and the alerts that changed their state in it."""
        self._kept.extend(
            Change(snapshot.taken_at, patch.node, patch.action.value, "", None, patch.reason)
            for patch in snapshot.applied
        )
        self._alerts(snapshot.nodes)
        for kind, text in self._new_of_all(snapshot):
            self._of_all.append(Change(snapshot.taken_at, "", kind, "", None, text))

    def _new_of_all(self, snapshot: Snapshot) -> Iterator[tuple[str, str]]:
        if snapshot.reloaded:
            yield "rules", ""
        if snapshot.refused:
            yield "refused", snapshot.rules_error or ""
        if snapshot.leader not in (None, self._leader):
            if self._leader is not None:
                yield "leader", snapshot.leader or ""
            self._leader = snapshot.leader
        if is_blind(snapshot) != self._is_blind:
            self._is_blind = not self._is_blind
            yield ("blind", snapshot.error or "") if self._is_blind else ("sees", "")

    def _alerts(self, views: NodeViews) -> None:
        """Without what was told before: between two ticks it is decided again as of one moment."""
        table = views.verdicts.alerts
        # A change of state is the only thing that sets both times to the same moment.
        changed = table.exists & (table.since == table.updated_at)
        if not self._known:  # of new nodes, to be inactive is no change
            changed &= table.firing | table.pending
        indices, rows = np.nonzero(changed.T)  # by node: what is too much, are whole nodes
        for index, row in zip(
            indices[-MAX_CHANGES:].tolist(), rows[-MAX_CHANGES:].tolist(), strict=True
        ):
            name, rule = table.roster.names[index], table.rules[row]
            kind = AlertState.INACTIVE
            if table.firing[row, index] or table.pending[row, index]:
                kind = AlertState.FIRING if table.firing[row, index] else AlertState.PENDING
            elif name not in self._known:
                continue
            since, value = float(table.since[row, index]), float(table.value[row, index])
            if since != self._since:
                self._since, self._told = since, set()
            if name in views and (name, rule, kind) not in self._told:
                self._told.add((name, rule, kind))
                known = None if math.isnan(value) else value
                self._kept.append(Change(since, name, kind.value, rule, known, ""))
        self._known = table.roster.indices

    def latest(self, most: int, node: str | None = None) -> list[Change]:
        """The latest first."""
        found = (change for change in reversed(self._kept) if node in (None, change.node))
        return list(islice(found, most))

    def of_all(self, most: int) -> list[Change]:
        """The latest first: what was written to nodes, and what concerns all of them."""
        written = (change for change in reversed(self._kept) if not change.rule)
        found = [*self._of_all, *islice(written, most)]
        return sorted(found, key=lambda change: -change.at)[:most]
