"""Snapshot -> the JSON from which the page is drawn. Pure.

Nodes are columns and not one object each: at 5,000 nodes that is a third of the bytes, and a
browser reads it in a few milliseconds. Times are Unix seconds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from dynsched import __version__
from dynsched.core.health import blindness
from dynsched.core.loads import full_at
from dynsched.core.model import Alert, AlertState, NodeView, Quality, Snapshot
from dynsched.core.pods import Added
from dynsched.core.rules import Rule
from dynsched.web.reasons import Reasons
from dynsched.web.status import rules_answer

MARKED: Final = 1
PRESSURED: Final = 2
EARLY: Final = 4
INELIGIBLE: Final = 8
CONFLICT: Final = 16
WITHHELD: Final = 32
DUE: Final = 64
UNKNOWN: Final = 128
"""The bits of a node in the column ``flags``. UNKNOWN: a rule has no current value for it."""

_STATES: Final[Mapping[AlertState, str]] = {
    AlertState.PENDING: "p",
    AlertState.FIRING: "f",
}
_INACTIVE: Final = "i"
_HELD: Final = "h"
_QUALITIES: Final[Mapping[Quality, str]] = {
    Quality.MISSING: "m",
    Quality.STALE: "s",
    Quality.INVALID: "i",
    Quality.FAILED: "f",
}
_GOOD: Final = "o"
_NO_ALERT: Final = "-"
"""In both columns: the rule's selector does not select the node."""


Requested = Mapping[str, Mapping[str, int]]
"""By resource and node: what pods request, in percent of what the node can give."""
_NOTHING: Final[Requested] = {}


class About(NamedTuple):
    """What is not in a Snapshot. ``interval`` and ``overdue_after`` in seconds; ``error``: why the
    tick cannot be trusted; ``source``: the URL of Prometheus as dynsched asks it, ``graphs``: as
    people reach it; both without user or password.
    """

    interval: float
    overdue_after: float
    source: str
    error: str | None
    leader: str | None
    placements: Mapping[str, Any] | None = None
    overload: Mapping[str, Any] | None = None
    graphs: str = ""


class _Column:
    """One rule on all nodes. ``since`` and ``expected`` hold only the nodes where there is
    something to tell: two lists, of indices of nodes and of what they have. ``requests``: by node,
    what its pods request of the rule's resource, in percent of what the node can give; None where
    that is not known.
    """

    def __init__(self, rule: Rule, requests: Mapping[str, int] | None = None) -> None:
        self.rule = rule
        self._requests = requests if rule.rises else None
        self._requested: list[float | None] = []
        self.digits = _digits(rule.threshold)
        self.value: list[float | None] = []
        self.state: list[str] = []
        self.quality: list[str] = []
        self.since: tuple[list[int], list[int]] = ([], [])
        self.expected: tuple[list[int], list[float]] = ([], [])

    def add(self, first: int, alerts: Sequence[Alert | None]) -> Sequence[int]:
        """Take in some more nodes, of which the first has the index ``first``; None: the rule is
        not for that node. The indices of those without a current value. By comprehensions: at
        5,000 nodes this is most of an answer's cost.
        """
        digits = self.digits
        self.value += [
            None if alert is None or alert.value is None else round(alert.value, digits)
            for alert in alerts
        ]
        # The hash of an enum's member is computed in Python: most are not looked up.
        qualities = [
            _NO_ALERT
            if alert is None
            else _GOOD
            if alert.quality is Quality.OK
            else _QUALITIES[alert.quality]
            for alert in alerts
        ]
        states = [
            _NO_ALERT
            if alert is None
            else _INACTIVE
            if alert.state is AlertState.INACTIVE
            else _STATES[alert.state]
            if alert.keep_firing_since is None
            else _HELD
            for alert in alerts
        ]
        self.quality += qualities
        self.state += states
        if states.count(_INACTIVE) != len(states):
            self._add_since(first, alerts)
        if qualities.count(_GOOD) == len(qualities):
            return ()
        return [
            index
            for index, quality in enumerate(qualities, first)
            if quality not in (_GOOD, _NO_ALERT)
        ]

    def _add_since(self, first: int, alerts: Sequence[Alert | None]) -> None:
        for index, alert in enumerate(alerts, first):
            if alert is not None and alert.state is not AlertState.INACTIVE:
                self.since[0].append(index)
                self.since[1].append(int(alert.since))

    def request(self, names: Sequence[str]) -> None:
        """What is requested on some more nodes, in the unit of the rule: drawn on the same bar."""
        requests = self._requests
        if requests is not None:
            unit, digits = full_at(self.rule) / 100, self.digits
            self._requested += [
                round(requests[name] * unit, digits) if name in requests else None for name in names
            ]

    def expect(self, index: int, value: float, added: Added) -> None:
        """The node's expected value, in the unit of the rule: both are drawn on one bar."""
        full = full_at(self.rule)
        measured = 100 * value / full
        if self.rule.rises and math.isfinite(measured):
            self.expected[0].append(index)
            self.expected[1].append(round(added.to(measured) * full / 100, self.digits))

    def body(self) -> dict[str, Any]:
        return {
            "value": self.value,
            "state": "".join(self.state),
            "quality": "".join(self.quality),
            "since": self.since,
            "expected": self.expected,
            "requested": self._requested or None,
        }


class Columns:
    """Collects the nodes of a Snapshot, some at a time, in the order in which they are shown.
    ``requested``: as of `Board`.
    """

    def __init__(self, snapshot: Snapshot, requested: Requested = _NOTHING) -> None:
        self._snapshot = snapshot
        self._columns = {
            rule.name: _Column(rule, requested.get(rule.resource or ""))
            for rule in snapshot.rule_set.rules
        }
        self._names: list[str] = []
        self._pools: dict[str, int] = {}
        self._pool: list[int] = []
        self._flags: list[int] = []
        self._since: tuple[list[int], list[int]] = ([], [])
        self._notes: list[tuple[int, str, str]] = []
        self._reasons = Reasons(snapshot)
        self._asked = {rule.name for rule in snapshot.rule_set.asked_rules}

    def add(self, views: Sequence[NodeView]) -> None:
        """Take in some more nodes."""
        first, count = len(self._names), len(self._columns)
        self._names += [view.name for view in views]
        self._pool += [self._pools.setdefault(view.pool, len(self._pools)) for view in views]
        # A rule's selector leaves nodes out: then an alert's place is not that of its rule.
        alerts = [
            view.alerts if len(view.alerts) == count else self._in_place(view) for view in views
        ]
        unknown: set[int] = set()
        for number, (name, column) in enumerate(self._columns.items()):
            found = column.add(first, [of_node[number] for of_node in alerts])
            column.request([view.name for view in views])
            if name in self._asked:
                unknown.update(found)
        self._flags += [
            _flags(view) | (UNKNOWN if index in unknown else 0)
            for index, view in enumerate(views, first)
        ]
        for index, view in enumerate(views, first):
            if view.since is not None:
                self._since[0].append(index)
                self._since[1].append(int(view.since))
            if view.added:
                self._expect(index, view)
            if (why := self._reasons.of(view)) is not None:
                self._notes.append((index, *why))

    def _in_place(self, view: NodeView) -> Sequence[Alert | None]:
        found = {alert.rule: alert for alert in view.alerts}
        return [found.get(name) for name in self._columns]

    def _expect(self, index: int, view: NodeView) -> None:
        for alert in view.alerts:
            added = view.added.get(alert.rule)
            if added is not None and alert.value is not None:
                self._columns[alert.rule].expect(index, alert.value, added)

    def body(self, about: About) -> bytes:
        """All of it."""
        snapshot = self._snapshot
        return msgspec.json.encode(
            {
                "version": __version__,
                **about._asdict(),
                "taken_at": snapshot.taken_at,
                "tick": snapshot.tick,
                "duration": snapshot.duration,
                "leading": snapshot.leading,
                "leader": about.leader or snapshot.leader,
                "dry_run": snapshot.dry_run,
                "rules_error": snapshot.rules_error,
                "capped": sorted(snapshot.capped),
                "failures": len(snapshot.failures),
                "disputes": len(snapshot.disputes),
                "blind": {name: why for name, why in blindness(snapshot).items() if why},
                "mark": str(snapshot.rule_set.mark),
                **_of_rules(snapshot),
                "pools": list(self._pools),
                "nodes": {
                    "name": self._names,
                    "pool": self._pool,
                    "flags": self._flags,
                    "since": self._since,
                    "notes": self._notes,
                },
                "columns": [column.body() for column in self._columns.values()],
            }
        )


def _of_rules(snapshot: Snapshot) -> dict[str, Any]:
    answer = rules_answer(snapshot)
    return {"guard": answer["guard"], "rules": answer["rules"]}


def _flags(view: NodeView) -> int:
    return (
        (MARKED if view.carries else 0)
        | (PRESSURED if view.pressured else 0)
        | (EARLY if view.early else 0)
        | (INELIGIBLE if view.ineligible is not None else 0)
        | (CONFLICT if view.conflict is not None else 0)
        | (WITHHELD if view.withheld is not None else 0)
        | (DUE if view.due is not None else 0)
    )


def _digits(threshold: float) -> int:
    """Decimals with which values of a rule are sent: three digits more than the threshold needs, so
    that a value beside it is seen to be beside it; negative for large numbers such as bytes.
    """
    if threshold == 0:
        return 2
    return 3 - max(-9, min(300, math.ceil(math.log10(abs(threshold)))))
