"""The alerts one by one, as objects: the plain form of `engine.alerting.alerts`,
with which the columns are compared. Written after the same rules, and by nothing of theirs.
"""

from collections.abc import Iterable, Mapping

from evaluating import Reading, RuleReadings
from msgspec.structs import replace

from dynsched.engine.model import Alert, AlertState, Node, Quality, Verdict
from dynsched.rules.rule_set import Rule, RuleSet

GRAIN = 0.001
Plain = dict[str, dict[str, Alert]]


def plainly(
    rule_set: RuleSet,
    readings: Mapping[str, RuleReadings],
    nodes: Mapping[str, Node],
    previous: Plain,
    now: float,
) -> tuple[Plain, dict[str, Verdict]]:
    """As `engine.alerting.alerts.next_alerts`."""
    alerts: Plain = {}
    for rule in rule_set.rules:
        answer = readings.get(rule.name, RuleReadings(failed=True))
        alerts[rule.name] = _step_all(
            *(rule, [(n.name, n.uid) for n in nodes.values() if rule.applies_to(n.labels)]),
            *(answer, previous.get(rule.name, {}), now),
            stale_after=rule_set.stale_after_of(rule),
            holds_stale=rule_set.holds_stale(rule),
        )
    verdicts = {}
    for name in nodes:
        found = tuple(of[name] for of in alerts.values() if name in of)
        verdicts[name] = fold(name, found, rule_set)
    return alerts, verdicts


def fold(node: str, alerts: tuple[Alert, ...], rule_set: RuleSet) -> Verdict:
    """Combine the alerts of one node (in the order of the rules) into one verdict. Those of shadow
    rules are in it, and count for nothing.
    """
    firing = [
        (rule, alert)
        for alert in alerts
        if alert.firing and not (rule := rule_set.by_name[alert.rule]).shadow
    ]
    if not firing:
        return Verdict(node, hot=False, since=None, severity=0.0, alerts=alerts)
    return Verdict(
        node,
        hot=True,
        since=min(alert.since for _, alert in firing),
        severity=max(
            0.0,
            *(_excess(rule, alert.value) for rule, alert in firing if alert.value is not None),
            0.0,
        ),
        alerts=alerts,
    )


def _excess(rule: Rule, value: float) -> float:
    """How far a value is beyond the threshold, as a share of the threshold."""
    distance = value - rule.threshold if rule.rises else rule.threshold - value
    return distance / (abs(rule.threshold) or 1.0)


def holds(rule: Rule, value: float) -> bool:
    equal = rule.op in (">=", "<=") and value == rule.clear_threshold
    return equal or (value > rule.clear_threshold if rule.rises else value < rule.clear_threshold)


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
        if not holds(rule, reading.value):
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
        compared=reading.value,
        sampled_at=reading.timestamp,
        active_since=active_since,
        keep_firing_since=keep_since,
        uid=alert.uid,
    )
