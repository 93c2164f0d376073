"""An alert, which is the state of one rule on one node, and its transition.

The transition is the one of Prometheus (``rules/alerting.go``), with two differences:

- Hysteresis: a firing alert keeps firing while ``value op clear_threshold`` is true. Any other
  alert becomes active when ``value op threshold`` is true.
- Unknown is a third value: a missing, stale or invalid sample, or a failed query, does not change
  the state. After ``stale_after`` without a good reading the alert becomes inactive, unless it
  fires and ``on_stale`` is ``hold``.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from msgspec import Struct, structs

from dynsched.core.samples import Quality, Reading
from dynsched.rules.rule_set import Rule

GRAIN: Final = 0.001
"""Tolerance in seconds when durations are compared. ``for: 4s`` must have passed after two
intervals of 2 s, even if the difference of the floats is slightly below 4."""


class AlertState(StrEnum):
    """The alert states of Prometheus. An alert that fires only because of ``keep_firing_for`` is
    FIRING, with ``keep_firing_since`` set.
    """

    INACTIVE = "inactive"
    PENDING = "pending"
    FIRING = "firing"


class Alert(Struct, frozen=True, gc=False):
    """The state of one rule on one node after one evaluation. All times are Unix seconds."""

    rule: str
    node: str
    uid: str
    """The node's UID. A node that was created again under the same name gets new alerts."""
    state: AlertState
    since: float
    updated_at: float
    """Never decreases, even if the clock is set back."""
    known_at: float
    """The time of the last OK sample, or else of the alert's creation or adoption. ``stale_after``
    counts from here."""
    quality: Quality = Quality.MISSING
    value: float | None = None
    """The value of the last OK reading; None before the first."""
    compared: float | None = None
    """The value compared with the threshold at that reading: measured or expected (`Rule.by`)."""
    sampled_at: float | None = None
    active_since: float | None = None
    """When the threshold was first breached, while PENDING or FIRING (Prometheus's ActiveAt)."""
    keep_firing_since: float | None = None
    """While the alert fires only because of ``keep_firing_for``: when the value first was on the
    clear side of ``clear_threshold`` (Prometheus's KeepFiringSince)."""
    adopted: bool = False
    """Whether the alert was derived from a mark on the node, with no OK reading since."""

    @property
    def firing(self) -> bool:
        """True also while the alert fires only because of ``keep_firing_for``."""
        return self.state is AlertState.FIRING

    @property
    def good_value(self) -> float | None:
        """The value of the current reading, or None if that reading is not OK."""
        return self.value if self.quality is Quality.OK else None

    def shifted(self, seconds: float) -> Alert:
        """A copy with all times moved by ``seconds``."""

        def moved(at: float | None) -> float | None:
            return None if at is None else at + seconds

        return structs.replace(
            self,
            since=self.since + seconds,
            updated_at=self.updated_at + seconds,
            known_at=self.known_at + seconds,
            sampled_at=moved(self.sampled_at),
            active_since=moved(self.active_since),
            keep_firing_since=moved(self.keep_firing_since),
        )


Alerts = Mapping[str, Mapping[str, Alert]]
"""Keyed by node name, then by rule name."""


def new_alert(rule: str, node: str, uid: str, now: float) -> Alert:
    """An inactive alert without any reading."""
    return Alert(rule, node, uid, AlertState.INACTIVE, since=now, updated_at=now, known_at=now)


def next_alert(alert: Alert, rule: Rule, reading: Reading, now: float) -> Alert:
    """``alert`` after one evaluation at ``now`` (Unix seconds)."""
    quality = reading.quality
    # Age is measured against the actual `now`: after the clock was set back, new samples have
    # timestamps of the new time. The alert's own times must not go back, hence the max() below.
    if quality is Quality.OK and not now - reading.taken <= rule.stale_after:
        quality = Quality.STALE
    now = max(alert.updated_at, now)
    if quality is not Quality.OK:
        return _next_unknown(alert, rule, quality, now)
    compared = reading.value if reading.expected is None else reading.expected
    state = alert.state
    active_since, keep_since = alert.active_since, alert.keep_firing_since
    if state is AlertState.FIRING:
        if rule.holds(compared):
            keep_since = None
        else:
            keep_since = now if keep_since is None else keep_since
            if now - keep_since >= rule.keep_firing_for - GRAIN:
                state = AlertState.INACTIVE
    elif rule.breached(compared):
        active_since = now if active_since is None else active_since
        is_over = now - active_since >= rule.hold_duration - GRAIN
        state = AlertState.FIRING if is_over else AlertState.PENDING
    else:
        state = AlertState.INACTIVE
    if state is AlertState.INACTIVE:
        active_since = keep_since = None
    return Alert(
        rule=alert.rule,
        node=alert.node,
        uid=alert.uid,
        state=state,
        since=alert.since if state is alert.state else now,
        updated_at=now,
        known_at=max(alert.known_at, min(now, reading.taken)),
        quality=quality,
        value=reading.value,
        compared=compared,
        sampled_at=reading.taken,
        active_since=active_since,
        keep_firing_since=keep_since,
    )


def _next_unknown(alert: Alert, rule: Rule, quality: Quality, now: float) -> Alert:
    """The alert after an evaluation without a good reading.

    It keeps its state until the last good reading is older than ``stale_after``.
    """
    after = structs.replace(alert, updated_at=now, quality=quality)
    is_held = alert.firing and rule.on_stale == "hold"
    is_old = now - alert.known_at > rule.stale_after
    if alert.state is AlertState.INACTIVE or is_held or not is_old:
        return after
    return structs.replace(
        after,
        state=AlertState.INACTIVE,
        since=now,
        active_since=None,
        keep_firing_since=None,
        adopted=False,
    )


class NodePressure(Struct, frozen=True, gc=False):
    """A summary of one node's alerts. Alerts of shadow rules are listed, but do not count."""

    node: str
    alerts: tuple[Alert, ...]
    """One per rule that applies to the node, in the order of the rules."""
    firing: tuple[tuple[Rule, Alert], ...]
    """The firing alerts, without those of shadow rules, each with its rule."""
    severity: float
    """How far the worst firing alert is beyond its threshold, as a share of the threshold; 0 if
    none fires or no value is known."""
    new_pods: Mapping[str, int] = {}
    """Per rule, the number of just-bound pods in its expected load."""

    @property
    def known_to_fire(self) -> frozenset[str]:
        """Names of the firing rules, without adopted alerts."""
        return frozenset(rule.name for rule, alert in self.firing if not alert.adopted)

    @property
    def hot(self) -> bool:
        """Whether at least one alert fires."""
        return bool(self.firing)

    @property
    def since(self) -> float | None:
        """The earliest ``since`` of the alerts that fire now."""
        return min((alert.since for _, alert in self.firing), default=None)
