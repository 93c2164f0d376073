"""Marks that are found: a node that carries our mark, and of which nothing is remembered.

After a restart memory is empty, and a mark must not be removed for that. So its rules count as
firing until something is known: the rules that the mark's evidence names, else all of them. After a
reload the rules that are new count as firing on the nodes that a rule marked which is gone: it may
have been renamed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import numpy as np

from dynsched.engine.alerts import AlertTable
from dynsched.engine.mark_state import MarkState
from dynsched.engine.model import Alert, AlertState, Node, Quality
from dynsched.rules.rule_set import RuleSet


def with_adopted(
    rule_set: RuleSet, marked: Iterable[MarkState], alerts: AlertTable, now: float
) -> AlertTable:
    """``alerts``, and a firing alert for each node that carries our mark (its state is in
    ``marked``) and of which nothing is remembered.
    """
    places, is_remembered = alerts.roster.places, np.logical_or.reduce(alerts.exists, axis=0)
    unknown = [state for state in marked if not is_remembered[places[state.node.name]]]
    return alerts.having(adopted(rule_set, unknown, now)) if unknown else alerts


def adopted(rule_set: RuleSet, marked: Iterable[MarkState], now: float) -> list[Alert]:
    """The alerts of a process that remembers nothing: firing for each node with our mark.

    Where none of the rules that the evidence names exists any more (or there is no evidence:
    dynamicScheduler left none), every rule is taken to have fired, of an early mark every one that
    marks early: the mark then stays until each rule has a good reading that clears it, or is stale.
    Shadow rules mark no node, and a rule that does not apply to the node did not mark it.
    """
    found = []
    for state in marked:
        node, fired = state.node, state.evidence.rules if state.evidence else ()
        known = [r for r in rule_set.rules if not r.shadow and r.applies_to(node.labels)]
        names = {rule.name for rule in known}.intersection(fired) or {
            rule.name for rule in known if (rule.early_of is not None) is state.is_early
        }
        found += [_firing(name, node, now) for name in names]
    return found


def with_renamed(
    rule_set: RuleSet,
    marked: Iterable[MarkState],
    previous: AlertTable,
    alerts: AlertTable,
    now: float,
) -> AlertTable:
    """``alerts``, and one that fires by each new rule on each of the nodes (``marked``: they carry
    our mark) on which a rule fired in ``previous`` that is gone. An early mark goes to the rules
    that mark early, a hot one to the others.
    """
    gone = [name for name in previous.rules if name not in rule_set.by_name]
    new = [rule for rule in rule_set.rules if rule.name not in previous.rules and not rule.shadow]
    if not (gone and new):
        return alerts
    before = previous.on(gone, alerts.roster)
    fired = np.logical_or.reduce(before.states.firing & before.exists, axis=0)
    return alerts.having(
        _firing(rule.name, state.node, now)
        for state in marked
        if fired[alerts.roster.places[state.node.name]]
        for rule in new
        if rule.applies_to(state.node.labels) and (rule.early_of is not None) is state.is_early
    )


def _firing(rule: str, node: Node, now: float) -> Alert:
    return Alert(
        rule=rule,
        node=node.name,
        state=AlertState.FIRING,
        since=now,
        updated_at=now,
        known_at=now,
        quality=Quality.MISSING,
        active_since=now,
        adopted=True,
        uid=node.uid,
    )


def with_early_as_marked(
    rule_set: RuleSet, alerts: AlertTable, marked: Collection[str]
) -> AlertTable:
    """``alerts`` of a replica that does not write, with those of early marks as the leader has
    them: firing on the nodes that carry the mark, and nowhere else. Between their two lines they
    depend on what was before, and after a change of the leader no mark should change for that.
    """
    rules = [rule_set.by_name[name] for name in alerts.rules]
    is_early = np.array([r.early_of is not None and not r.shadow for r in rules], np.bool_)
    is_marked = np.array([name in marked for name in alerts.roster.names], np.bool_)
    return alerts.fired_as(is_marked, is_early[:, None] & alerts.exists)
