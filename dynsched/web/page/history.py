"""The values of the last hour, and the latest changes, in memory of a fixed size. Pure."""

from __future__ import annotations

import math
from array import array
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import msgspec

from dynsched.core.alerts import Alert, Alerts, AlertState
from dynsched.core.evaluate import Evaluation
from dynsched.core.health import is_blind
from dynsched.core.samples import Quality
from dynsched.core.tick import Tick
from dynsched.web.node_series import counting_alerts

POINTS: Final = 60
STEP: Final = 60.0
"""Seconds from one point to the next, once the process has run for an hour."""
MAX_CHANGES: Final = 10_000
"""Changes that are kept, of all nodes: about 2 MB."""

_FINEST: Final = STEP / 2**5


@dataclass(slots=True)
class _Past:
    """One node, with an element for each point. ``values`` by rule: NaN where there was none, and
    in 4 bytes each. ``states``: as `node_state` gives them, in capitals where the node was marked;
    unknown before there was the node.
    """

    uid: str
    values: dict[str, array[float]]
    states: str


class History:
    """At most ``POINTS`` values of each rule on each node. At first points are taken more often;
    whenever there are POINTS of them, every other one is dropped and the step doubles.
    ``interval``: seconds between two ticks.
    """

    def __init__(self, interval: float) -> None:
        self.step = _FINEST
        while self.step < min(interval, STEP):
            self.step *= 2
        self._times: list[float] = []
        self._pasts: dict[str, _Past] = {}
        self._due_at = -math.inf

    def observe(self, tick: Tick) -> None:
        """Take a point, if one is due."""
        # A clock that was set back by more than a step must not stop the history.
        if self._due_at - 2 * self.step <= tick.taken_at < self._due_at:
            return
        if len(self._times) == POINTS:
            self._thin()
        self._times.append(tick.taken_at)
        self._pasts = {name: self._past(tick, name) for name in tick.evaluation.table.entries}
        self._due_at = tick.taken_at + self.step

    def _thin(self) -> None:
        """Drop every other point, or once the step is STEP the oldest."""
        kept = slice(1, None, 2 if self.step < STEP else 1)
        self.step = min(2 * self.step, STEP)
        self._times = self._times[kept]
        for past in self._pasts.values():
            past.values = {rule: values[kept] for rule, values in past.values.items()}
            past.states = past.states[kept]

    def _past(self, tick: Tick, name: str) -> _Past:
        """The past of a node, with the point of this tick."""
        entry, alerts = tick.evaluation.table.entries[name], tick.evaluation.alerts[name]
        before, past = len(self._times) - 1, self._pasts.get(name)
        if past is None or past.uid != entry.node.uid:
            past = _Past(entry.node.uid, {}, "u" * before)
        values = {}
        for rule in tick.rule_set.rules:
            of_rule = past.values.get(rule.name) or array("f", [math.nan] * before)
            value = alerts[rule.name].good_value if rule.name in alerts else None
            of_rule.append(math.nan if value is None else value)
            values[rule.name] = of_rule
        letter = node_state(tick.evaluation, name)
        past.values = values
        past.states += letter.upper() if entry.mark.marked else letter
        return past

    def past(self, nodes: Sequence[str]) -> dict[str, Any]:
        """The oldest first; nodes that are not known are left out."""
        pasts = {name: self._pasts[name] for name in nodes if name in self._pasts}
        return {
            "step": self.step,
            "times": [round(at, 1) for at in self._times],
            "nodes": {
                name: {
                    "values": {rule: [*map(four_digits, of)] for rule, of in past.values.items()},
                    "states": past.states,
                }
                for name, past in pasts.items()
            },
        }


def four_digits(value: float) -> float | None:
    """None for what is no number."""
    return float(f"{value:.4g}") if math.isfinite(value) else None


def node_state(evaluation: Evaluation, name: str) -> str:
    """A letter: (h)ot, cooling (k), (p)ending, (u)nknown or (c)ool."""
    alerts = counting_alerts(evaluation, name)
    if evaluation.pressures[name].hot:
        fires = any(alert.firing and alert.keep_firing_since is None for alert in alerts)
        return "h" if fires else "k"
    if any(alert.state is AlertState.PENDING for alert in alerts):
        return "p"
    return "u" if alerts and all(a.quality is not Quality.OK for a in alerts) else "c"


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
    """What changed, tick by tick."""

    def __init__(self) -> None:
        self._kept: deque[Change] = deque(maxlen=MAX_CHANGES)
        self._alerts: Alerts = {}
        self._leader: str | None = None
        self._is_blind = False

    def observe(self, tick: Tick) -> None:
        """What this tick wrote, and the alerts that changed their state in it."""
        self._kept.extend(
            Change(tick.taken_at, patch.node, patch.action.value, "", None, patch.reason)
            for patch in tick.writes.applied
        )
        alerts = tick.evaluation.alerts
        for name in tick.evaluation.table.entries:
            self._kept.extend(_changes(alerts[name], self._alerts.get(name, {})))
        self._alerts = alerts
        self._kept.extend(
            Change(tick.taken_at, "", kind, "", None, text) for kind, text in self._new_of_all(tick)
        )

    def _new_of_all(self, tick: Tick) -> Iterator[tuple[str, str]]:
        status, leader = tick.rules_status, tick.leadership.leader
        if status.reloaded:
            yield "rules", ""
        if status.refused:
            yield "refused", status.error or ""
        if leader is not None and leader != self._leader:
            if self._leader is not None:
                yield "leader", leader
            self._leader = leader
        if is_blind(tick) != self._is_blind:
            self._is_blind = not self._is_blind
            yield ("blind", tick.error or "") if self._is_blind else ("sees", "")

    def of_node(self, node: str, most: int) -> list[Change]:
        """The latest first."""
        found = (change for change in reversed(self._kept) if change.node == node)
        return list(islice(found, most))

    def of_all(self, most: int) -> list[Change]:
        """The latest first: what was written to nodes, and what concerns all of them."""
        found = (change for change in reversed(self._kept) if not change.rule)
        return list(islice(found, most))


def _changes(alerts: Mapping[str, Alert], before: Mapping[str, Alert]) -> Iterator[Change]:
    """The alerts of one node that changed their state. One that was adopted, or restored at the
    start, did so earlier.
    """
    for rule, alert in alerts.items():
        was = before[rule].state if rule in before else AlertState.INACTIVE
        if alert.state is not was and alert.since == alert.updated_at:
            yield Change(alert.since, alert.node, alert.state.value, rule, alert.value, "")
