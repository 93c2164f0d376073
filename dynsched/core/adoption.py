"""Marks that are found: a node that carries our mark, and of which nothing is remembered.

After a restart memory is empty, and a mark must not be removed for that. So its rules count as
firing until something is known: the rules that the mark's evidence names, else all of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import numpy as np

from dynsched.core.alerts import AlertTable
from dynsched.core.columns import Bools
from dynsched.core.mark_state import MarkState
from dynsched.core.model import Alert, AlertState, Node, Quality
from dynsched.core.rules import RuleSet


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
            rule_set, state.node, state.evidence.rules if state.evidence else (), now
        ).values()
    ]


def adopt(rule_set: RuleSet, node: Node, fired: Iterable[str], now: float) -> dict[str, Alert]:
    """Firing alerts by rule name for a node that carries our mark but is not remembered.

    ``fired`` are the rules that the mark's evidence names. Where none of them exists any more (or
    there is no evidence: dynamicScheduler left none), every rule is taken to have fired: the
    mark then stays until each rule has a good reading that clears it, or is stale. Shadow rules
    mark no node, and a rule that does not apply to the node did not mark it.
    """
    known = {
        rule.name for rule in rule_set.rules if not rule.shadow and rule.applies_to(node.labels)
    }
    names = known.intersection(fired) or known
    return {
        name: Alert(
            rule=name,
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
        for name in names
    }


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
