"""Marks that are found: a node that carries our mark, and of which nothing is remembered.

After a restart memory is empty, and a mark must not be removed for that. So its rules count as
firing until something is known: the rules that the mark's evidence names, else all of them. After a
reload the rules that are new count as firing on the nodes that a rule marked which is gone: it may
have been renamed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import numpy as np

from dynsched.engine.alerts import Alerts, AlertTable, table_of
from dynsched.engine.columns import Bools
from dynsched.engine.mark_state import MarkState
from dynsched.engine.model import Alert, AlertState, Node, Quality
from dynsched.rules.rule_set import RuleSet


def with_adopted(
    rule_set: RuleSet,
    marked: Iterable[MarkState],
    alerts: AlertTable,
    remembered: Bools,
    now: float,
) -> AlertTable:
    """``alerts``, and a firing alert for each node that carries our mark (its state is in
    ``marked``) and of which nothing is ``remembered``: an element for each node.
    """
    places = alerts.roster.places
    unknown = [state for state in marked if not remembered[places[state.node.name]]]
    return alerts.having(adopted(rule_set, unknown, now)) if unknown else alerts


def adopted(rule_set: RuleSet, marked: Iterable[MarkState], now: float) -> list[Alert]:
    """The alerts of a process that remembers nothing: firing for each node with our mark."""
    return [
        alert
        for state in marked
        for alert in adopt(
            *(rule_set, state.node, state.evidence.rules if state.evidence else (), now),
            early=_is_early(state),
        ).values()
    ]


def adopt(
    rule_set: RuleSet, node: Node, fired: Iterable[str], now: float, *, early: bool = False
) -> dict[str, Alert]:
    """Firing alerts by rule name for a node that carries our mark but is not remembered.

    ``fired`` are the rules that the mark's evidence names. Where none of them exists any more (or
    there is no evidence: dynamicScheduler left none), every rule is taken to have fired, of an
    ``early`` mark every one that marks early: the mark then stays until each rule has a good
    reading that clears it, or is stale. Shadow rules mark no node, and a rule that does not apply
    to the node did not mark it.
    """
    known = [rule for rule in rule_set.rules if not rule.shadow and rule.applies_to(node.labels)]
    names = {rule.name for rule in known}.intersection(fired)
    names = names or {rule.name for rule in known if (rule.early_of is not None) is early}
    return {name: _firing(name, node, now) for name in names}


def with_renamed(
    rule_set: RuleSet,
    marked: Iterable[MarkState],
    previous: Alerts,
    alerts: AlertTable,
    now: float,
) -> AlertTable:
    """``alerts``, and one that fires by each new rule on each of the nodes (``marked``: they carry
    our mark) on which a rule fired in ``previous`` that is gone. An early mark goes to the rules
    that mark early, a hot one to the others.
    """
    gone = [name for name in previous if name not in rule_set.by_name]
    new = [rule for rule in rule_set.rules if rule.name not in previous and not rule.shadow]
    if not (gone and new):
        return alerts
    before = table_of(previous, gone, alerts.roster)
    fired = np.asarray((before.states.firing & before.exists).any(axis=0), np.bool_)
    return alerts.having(
        _firing(rule.name, state.node, now)
        for state in marked
        if fired[alerts.roster.places[state.node.name]]
        for rule in new
        if rule.applies_to(state.node.labels) and (rule.early_of is not None) is _is_early(state)
    )


def _is_early(state: MarkState) -> bool:
    return state.evidence is not None and state.evidence.early


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
