"""Snapshot -> the JSON from which the page is drawn. Pure.

Nodes are columns and not one object each: at 5,000 nodes that is a third of the bytes, and a
browser reads it in a few milliseconds. Times are Unix seconds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from dynsched import __version__
from dynsched.api.status import rules_answer
from dynsched.api.why import reasons
from dynsched.engine.columns import OK, QUALITIES, Bools, Floats, Ints
from dynsched.engine.health import blindness
from dynsched.engine.loads import full_at
from dynsched.engine.model import Quality
from dynsched.engine.pod_values import Added
from dynsched.engine.snapshot import NodeViews, Snapshot
from dynsched.rules.rule_set import Rule

MARKED: Final = 1
PRESSURED: Final = 2
EARLY: Final = 4
INELIGIBLE: Final = 8
CONFLICT: Final = 16
WITHHELD: Final = 32
DUE: Final = 64
UNKNOWN: Final = 128
"""The bits of a node in the column ``flags``. UNKNOWN: a rule has no current value for it."""

_QUALITIES: Final[Mapping[Quality, str]] = {
    Quality.OK: "o",
    Quality.MISSING: "m",
    Quality.STALE: "s",
    Quality.INVALID: "i",
    Quality.FAILED: "f",
}
_LETTERS: Final = np.array([ord(_QUALITIES[quality]) for quality in QUALITIES], np.uint8)
_INACTIVE, _PENDING, _FIRING, _HELD = b"ipfh"
_NO_ALERT: Final = ord("-")
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


class _Array:
    """A JSON array, written some elements at a time, as the nodes come."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def add(self, values: list[Any]) -> None:
        """Some more; msgspec writes NaN as null."""
        self._parts.append(msgspec.json.encode(values)[1:-1])

    def json(self) -> msgspec.Raw:
        return msgspec.Raw(b"[%b]" % b",".join(self._parts))


class _Column:
    """One rule, which has a row in the table of alerts, on all nodes. ``since`` and ``expected``
    hold only the nodes where there is something to tell: two lists, of indices of nodes and of what
    they have. ``requests``: by node, what its pods request of the rule's resource, in percent of
    what the node can give; None where that is not known.
    """

    def __init__(
        self, rule: Rule, row: int, views: NodeViews, requests: Mapping[str, int] | None
    ) -> None:
        self._row = row
        self._alerts = views.evaluation.alerts
        self._full = full_at(rule)
        self._digits = _digits(rule.threshold)
        self._added = views.expected[rule.name].added if rule.name in views.expected else {}
        self._requests = requests if rule.rises and views else None
        if not rule.rises:
            self._added = {}
        self._value, self._requested = _Array(), _Array()
        self._state, self._quality = bytearray(), bytearray()
        self._since: tuple[list[int], list[int]] = ([], [])
        self._expected: tuple[list[int], list[float]] = ([], [])

    def add(self, first: int, names: Sequence[str], places: Ints) -> Bools:
        """Take in some more nodes, of which the first has the index ``first``. Which of them have
        no current value.
        """
        cells = self._row, places
        alerts, states = self._alerts, self._alerts.states
        exists, quality = alerts.exists[cells], alerts.quality[cells]
        firing, held = states.firing[cells], ~np.isnan(states.keep_firing_since[cells])
        active = exists & (firing | states.pending[cells])
        letters = np.select(
            [~exists, ~active, held, firing], [_NO_ALERT, _INACTIVE, _HELD, _FIRING], _PENDING
        )
        self._state += letters.astype(np.uint8).tobytes()
        letters = np.where(exists, _LETTERS[quality], _NO_ALERT)
        self._quality += letters.astype(np.uint8).tobytes()
        values = np.where(exists, alerts.value[cells], np.nan).tolist()
        self._value.add(list(map(round, values, repeat(self._digits))))
        _put(self._since, first, active, alerts.since[cells])
        if self._requests is not None:
            shown = (self._requests.get(name, math.nan) * self._full / 100 for name in names)
            self._requested.add([round(each, self._digits) for each in shown])
        for index, (name, value) in enumerate(zip(names, values, strict=True), first):
            if name in self._added:
                self._expect(index, value, self._added[name])
        return np.asarray(exists & (quality != OK), np.bool_)

    def _expect(self, index: int, value: float, added: Added) -> None:
        """The node's expected value, in the unit of the rule: both are drawn on one bar."""
        measured = 100 * value / self._full
        if math.isfinite(measured):
            self._expected[0].append(index)
            self._expected[1].append(round(added.to(measured) * self._full / 100, self._digits))

    def body(self) -> dict[str, Any]:
        return {
            "value": self._value.json(),
            "state": self._state.decode(),
            "quality": self._quality.decode(),
            "since": self._since,
            "expected": self._expected,
            "requested": None if self._requests is None else self._requested.json(),
        }


class Columns:
    """Collects the nodes of a Snapshot, some at a time, in the order in which they are shown.
    ``requested``: as of `PageFacts`.
    """

    def __init__(self, snapshot: Snapshot, requested: Requested = _NOTHING) -> None:
        nodes, rule_set = snapshot.nodes, snapshot.rule_set
        asked = {rule.name for rule in rule_set.asked_rules}
        self._snapshot = snapshot
        self._columns = [
            (_Column(rule, row, nodes, requested.get(rule.resource or "")), rule.name in asked)
            for row, rule in enumerate(rule_set.rules)
        ]
        self._count = 0
        self._name, self._pool, self._flags = _Array(), _Array(), _Array()
        self._pools: dict[str, int] = {}
        self._since: tuple[list[int], list[int]] = ([], [])
        self._notes: list[tuple[int, str, str]] = []

    def add(self, names: Sequence[str]) -> None:
        """Take in some more nodes."""
        first, nodes, pools = self._count, self._snapshot.nodes, self._pools
        places = np.array(nodes.places_of(names), np.int64)
        verdicts = nodes.evaluation.verdicts
        self._count += len(names)
        self._name.add(list(names))
        self._pool.add([pools.setdefault(pool, len(pools)) for pool in nodes.pools_of(names)])
        unknown = np.zeros(len(names), np.bool_)
        for column, is_asked in self._columns:
            unknown |= column.add(first, names, places) & is_asked
        _put(self._since, first, ~np.isnan(verdicts.since[places]), verdicts.since[places])
        due = frozenset(nodes.due_of(names))
        whys = reasons(self._snapshot, names, due)
        flags = PRESSURED * verdicts.hot[places] + EARLY * verdicts.early[places]
        flags += UNKNOWN * unknown
        for bit, some in (
            (MARKED, nodes.marked),
            (INELIGIBLE, nodes.ineligible),
            (CONFLICT, nodes.conflicts),
            (WITHHELD, nodes.withheld),
            (DUE, due),
        ):
            flags += bit * np.fromiter(map(some.__contains__, names), np.bool_, len(names))
        self._flags.add(flags.tolist())
        self._notes += [
            (index, *whys[name]) for index, name in enumerate(names, first) if name in whys
        ]

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
                    "name": self._name.json(),
                    "pool": self._pool.json(),
                    "flags": self._flags.json(),
                    "since": self._since,
                    "notes": self._notes,
                },
                "columns": [column.body() for column, _ in self._columns],
            }
        )


def _of_rules(snapshot: Snapshot) -> dict[str, Any]:
    answer = rules_answer(snapshot)
    return {"guard": answer["guard"], "rules": answer["rules"]}


def _put(since: tuple[list[int], list[int]], first: int, which: Bools, times: Floats) -> None:
    """Add the times of those nodes."""
    found = np.flatnonzero(which)
    since[0].extend((first + found).tolist())
    since[1].extend(times[found].astype(np.int64).tolist())


def _digits(threshold: float) -> int:
    """Decimals with which values of a rule are sent: three digits more than the threshold needs, so
    that a value beside it is seen to be beside it; negative for large numbers such as bytes.
    """
    if threshold == 0:
        return 2
    return 3 - max(-9, min(300, math.ceil(math.log10(abs(threshold)))))
