"""What the extender refuses, and why: `/filter` and `/preempt` both go by this.

A node is refused by load while a rule of ``extender.reject`` fires on it and something was known of
it within the rule's ``stale_after`` (also with ``on_stale: hold``: that keeps a soft mark, and must
not close a node for ever). A node of which nothing is known passes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dynsched.engine.model import Alert, Quality
from dynsched.engine.snapshot import Snapshot
from dynsched.rules.rule_set import Rule
from dynsched.util.formatting import format_threshold, format_value


class Refusal(NamedTuple):
    """Why a node is refused: with the value, for a few nodes; without it, for the scheduler's
    event, which counts nodes by equal reasons (``3 node load high: node-mem-usage > 85``).
    """

    long: str
    short: str


def load_refusals(snapshot: Snapshot) -> dict[str, Refusal]:
    names = set(snapshot.rule_set.extender.reject)
    rules = [rule for rule in snapshot.rule_set.rules if rule.name in names]
    if not rules:
        return {}
    refused: dict[str, Refusal] = {}
    views = snapshot.nodes
    alerts = views.evaluation.alerts
    for rule in rules:
        row = alerts.rules.index(rule.name)
        since = snapshot.taken_at - snapshot.rule_set.stale_after_of(rule)
        firing = alerts.states.firing[row] & alerts.exists[row] & (alerts.known_at[row] >= since)
        for place in np.flatnonzero(firing).tolist():
            name = alerts.roster.names[place]
            if name not in refused and name in views:
                refused[name] = _refusal(rule, alerts.alert(row, place))
    return refused


def missing_label(key: str) -> str:
    """Why a node without the required label is refused."""
    return f"node does not carry the label {key}"


def _refusal(rule: Rule, alert: Alert) -> Refusal:
    limit = f"{rule.op} {format_threshold(rule.threshold)}"
    short = f"node load high: {rule.name} {limit}"
    if alert.quality is Quality.OK and rule.breached(alert.value):
        return Refusal(f"node load high: {rule.name} {format_value(alert.value)} {limit}", short)
    # Held by clear_threshold, keep_firing_for, or through a gap in the data.
    return Refusal(f"node load high: {rule.name} was {limit} and is held", short)
