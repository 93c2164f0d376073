"""A mark must not be removed because memory is empty: a marked node of which nothing is remembered
has firing alerts.
"""

from __future__ import annotations

from collections.abc import Mapping

from dynsched.core.alerts import Alert, AlertState
from dynsched.core.node_table import NodeEntry
from dynsched.rules.rule_set import RuleSet


def alerts_before(
    entry: NodeEntry, previous: Mapping[str, Alert], rule_set: RuleSet, now: float
) -> Mapping[str, Alert]:
    """The node's alerts of the last evaluation, and those that its mark stands for."""
    if any(alert.uid != entry.node.uid for alert in previous.values()):
        previous = {}
    if not entry.mark.marked:
        return previous
    known = rule_set.by_name
    if not previous.keys() & known.keys():
        previous = {**previous, **adopted_alerts(entry, rule_set, now)}
    # A rule that fired and is gone may have been renamed: the new rules count as firing.
    if any(alert.firing and rule not in known for rule, alert in previous.items()):
        new = [r.name for r in entry.rules if not r.shadow and r.name not in previous]
        return {**previous, **{name: _adopted(entry, name, now) for name in new}}
    return previous


def adopted_alerts(entry: NodeEntry, rule_set: RuleSet, now: float) -> dict[str, Alert]:
    """Firing alerts for a node that carries our mark and of which nothing is remembered.

    They are of the rules that the mark's record names. Where none of these exists any more, or
    there is no record (dynamicScheduler left none), every rule is taken to have fired: the mark
    stays until each rule has a good reading that clears it, or is stale. With ``mark: none`` marks
    are older than anything that is known, and say nothing.
    """
    if rule_set.mark.is_none or not entry.mark.marked:
        return {}
    fired = entry.mark.record.rules if entry.mark.record else ()
    names = [rule.name for rule in entry.rules if not rule.shadow]
    names = [name for name in names if name in fired] or names
    return {name: _adopted(entry, name, now) for name in names}


def _adopted(entry: NodeEntry, rule: str, now: float) -> Alert:
    recorded = entry.mark.record.since_of(rule) if entry.mark.record else None
    since = now if recorded is None else recorded
    return Alert(
        rule=rule,
        node=entry.node.name,
        uid=entry.node.uid,
        state=AlertState.FIRING,
        since=since,
        updated_at=now,
        known_at=now,
        active_since=since,
        adopted=True,
    )
