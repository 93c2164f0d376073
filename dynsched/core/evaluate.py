"""Rules and readings -> alerts and verdicts.

An alert is one rule on one node. Its transitions are those of Prometheus (``rules/alerting.go``):

- inactive -> pending, when the threshold is breached. ``active_since`` is set to the time of this
  evaluation (Prometheus: ActiveAt). With ``for: 0s`` the alert fires in the same evaluation.
- pending -> firing, when it has been breached for ``for`` since ``active_since``.
- pending -> inactive, as soon as the threshold is not breached; ``active_since`` is cleared.
- firing -> firing, while the condition is false but ``keep_firing_for`` has not passed since it
  became false. That time is ``keep_firing_since`` (Prometheus: KeepFiringSince); it is cleared when
  the condition is true again.
- firing -> inactive (Prometheus: resolved), when the condition is false and ``keep_firing_for`` has
  passed.

Two things differ from Prometheus:

- Hysteresis: the condition of a firing alert is ``value op clear_threshold``, that of any other
  alert is ``value op threshold``.
- A missing, old or invalid sample and a failed query are *unknown*, not "condition is false". An
  unknown reading changes no state until there has been no good reading for ``stale_after``. A
  pending alert then becomes inactive, and a firing one too unless ``on_stale`` is ``hold``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final

from msgspec.structs import replace

from dynsched.core.model import Alert, AlertState, Node, Quality, Reading, Verdict
from dynsched.core.rules import Rule, RuleSet

GRAIN: Final = 0.001
"""Tolerance in seconds when durations are compared. ``for: 4s`` must have passed after two
intervals of 2 s, even if the difference of the floats is slightly less than 4."""
_state: Final = attrgetter("state")
Alerts = Mapping[str, Mapping[str, Alert]]
"""Rule name -> node name -> alert."""


@dataclass(frozen=True, slots=True)
class RuleReadings:
    """One rule's readings in one tick."""

    readings: Mapping[str, Reading] = field(default_factory=dict)
    """By node name; empty when the query failed."""
    failed: bool = False
    """Whether the query failed."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The result of one evaluation."""

    alerts: Alerts
    """By rule name, then by node name."""
    verdicts: Mapping[str, Verdict]
    """One per node, by its name."""


def evaluate(
    rule_set: RuleSet,
    readings: Mapping[str, RuleReadings],
    nodes: Mapping[str, Node],
    previous: Alerts,
    now: float,
) -> Evaluation:
    """One evaluation of every rule on every node that its ``selector`` selects; ``nodes`` by name.

    A rule without an entry in ``readings`` counts as failed. Alerts of rules and nodes that no
    longer exist are dropped, and so are those of nodes that the rule does not select. A node with
    another uid is another node and gets new alerts. ``now`` may be earlier than in the previous
    evaluation; the times of an alert never go back.
    """
    all_uids = [(name, node.uid) for name, node in nodes.items()]
    alerts: dict[str, dict[str, Alert]] = {}
    for rule in rule_set.rules:
        uids = all_uids
        if rule.selector.requirements:
            uids = [(name, uid) for name, uid in all_uids if rule.applies_to(nodes[name].labels)]
        answer = readings.get(rule.name, RuleReadings(failed=True))
        alerts[rule.name] = _step_all(
            *(rule, uids, answer, previous.get(rule.name, {}), now),
            stale_after=rule_set.stale_after_of(rule),
            holds_stale=rule_set.holds_stale(rule),
        )
    return Evaluation(alerts, _verdicts(rule_set, nodes, alerts))


def _verdicts(
    rule_set: RuleSet, nodes: Iterable[str], alerts: Mapping[str, Mapping[str, Alert]]
) -> dict[str, Verdict]:
    tables = [alerts[rule.name] for rule in rule_set.rules]
    by_node: Iterable[tuple[Alert, ...]]
    if any(rule.selector.requirements for rule in rule_set.rules):
        by_node = (tuple([table[name] for table in tables if name in table]) for name in nodes)
    else:  # each table has all nodes, in their order
        by_node = zip(*(table.values() for table in tables), strict=True)
    return {name: fold(name, found, rule_set) for name, found in zip(nodes, by_node, strict=True)}


def shift(alerts: Alerts, seconds: float) -> Alerts:
    """The same alerts with all times changed by ``seconds``, after the clock was set by as much."""

    def moved(time: float | None) -> float | None:
        return None if time is None else time + seconds

    return {
        rule: {
            name: replace(
                alert,
                since=alert.since + seconds,
                updated_at=alert.updated_at + seconds,
                known_at=alert.known_at + seconds,
                sampled_at=moved(alert.sampled_at),
                active_since=moved(alert.active_since),
                keep_firing_since=moved(alert.keep_firing_since),
            )
            for name, alert in by_node.items()
        }
        for rule, by_node in alerts.items()
    }


def fold(node: str, alerts: tuple[Alert, ...], rule_set: RuleSet) -> Verdict:
    """Combine the alerts of one node (in the order of the rules) into one verdict. Those of shadow
    rules are in it, and count for nothing.
    """
    firing = []
    if AlertState.FIRING in map(_state, alerts):  # seldom
        firing = [
            (rule, alert)
            for alert in alerts
            if alert.firing and not (rule := rule_set.by_name[alert.rule]).shadow
        ]
    if not firing:
        return Verdict(node, pressured=False, since=None, severity=0.0, alerts=alerts)
    hot = [(rule, alert) for rule, alert in firing if rule.early_of is None]
    early, firing = not hot, hot or firing
    return Verdict(
        node,
        pressured=not early,
        early=early,
        since=min(alert.since for _, alert in firing),
        severity=max(
            0.0,
            *(rule.excess(alert.value) for rule, alert in firing if alert.value is not None),
            0.0,
        ),
        alerts=alerts,
    )


def _new(rule: Rule, node: str, uid: str, now: float) -> Alert:
    return Alert(
        rule.name, node, AlertState.INACTIVE, since=now, updated_at=now, known_at=now, uid=uid
    )


def _step_all(
    rule: Rule,
    uids: Iterable[tuple[str, str]],
    answer: RuleReadings,
    before: Mapping[str, Alert],
    now: float,
    *,
    stale_after: float,
    holds_stale: bool,
) -> dict[str, Alert]:
    """One rule on the nodes of these names and uids."""
    readings: Mapping[str, Reading] = {} if answer.failed else answer.readings
    found = {}
    for name, uid in uids:
        alert = before.get(name)
        if alert is None or alert.uid != uid:
            alert = _new(rule, name, uid, now)
        reading = readings.get(name)
        # The age of a sample is measured by ``now`` itself: after the clock was set back, new
        # samples have timestamps of the new time. The times of an alert must not go back.
        then = max(now, alert.updated_at)
        if reading is None:
            quality = Quality.FAILED if answer.failed else Quality.MISSING
        elif (quality := reading.quality) is Quality.OK:
            if now - reading.timestamp <= stale_after:
                found[name] = _known(rule, alert, reading, then)
                continue
            quality = Quality.STALE
        expired = then - alert.known_at > stale_after
        found[name] = _unknown(alert, quality, then, expired=expired, holds_stale=holds_stale)
    return found


def _unknown(
    alert: Alert, quality: Quality, now: float, *, expired: bool, holds_stale: bool
) -> Alert:
    """The transition without a good reading."""
    if alert.state is AlertState.INACTIVE or not expired:
        return replace(alert, quality=quality, updated_at=now)
    if alert.state is AlertState.FIRING and holds_stale:
        return replace(alert, quality=quality, updated_at=now)
    return replace(
        alert,
        state=AlertState.INACTIVE,
        since=now,
        updated_at=now,
        quality=quality,
        active_since=None,
        keep_firing_since=None,
        adopted=False,
    )


def _known(rule: Rule, alert: Alert, reading: Reading, now: float) -> Alert:
    """The transition on a good reading, as described at the top of this module."""
    state, active_since, keep_since = AlertState.INACTIVE, None, None
    if alert.state is AlertState.FIRING:
        if not rule.holds(reading.value):
            keep_since = now if alert.keep_firing_since is None else alert.keep_firing_since
        if keep_since is None or now - keep_since < rule.keep_firing_for - GRAIN:
            state, active_since = AlertState.FIRING, alert.active_since
        else:
            keep_since = None
    elif rule.breached(reading.value):
        active_since = now if alert.active_since is None else alert.active_since
        over_for = now - active_since
        state = AlertState.FIRING if over_for >= rule.hold_duration - GRAIN else AlertState.PENDING
    return Alert(
        rule=alert.rule,
        node=alert.node,
        state=state,
        since=alert.since if state is alert.state else now,
        updated_at=now,
        known_at=max(alert.known_at, min(now, reading.timestamp)),
        quality=Quality.OK,
        value=reading.value,
        sampled_at=reading.timestamp,
        active_since=active_since,
        keep_firing_since=keep_since,
        uid=alert.uid,
    )
