"""Marks that are found: a node that carries our mark, and of which nothing is remembered.

After a restart memory is empty, and a mark must not be removed for that. So its rules count as
firing until something is known: the rules that the mark's evidence names, else all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from dynsched.core.evaluate import Alerts
from dynsched.core.mark_state import MarkState, mark_states
from dynsched.core.model import Alert, AlertState, Node, Quality
from dynsched.core.rules import RuleSet


def with_adopted(
    rule_set: RuleSet,
    nodes: Mapping[str, Node],
    states: Mapping[str, MarkState],
    previous: Alerts,
    now: float,
) -> Alerts:
    """``previous``, and a firing alert for each node that carries our mark and has none in it."""
    known = [previous[rule.name] for rule in rule_set.rules if rule.name in previous]
    adopted: dict[str, dict[str, Alert]] = {}
    for name, state in states.items():
        if not state.marked:
            continue
        node = nodes[name]
        if any(name in alerts and alerts[name].uid == node.uid for alerts in known):
            continue
        fired = state.evidence.rules if state.evidence else ()
        for rule, alert in adopt(rule_set, node, fired, now).items():
            adopted.setdefault(rule, {})[name] = alert
    if not adopted:
        return previous
    return {
        rule.name: {**previous.get(rule.name, {}), **adopted.get(rule.name, {})}
        for rule in rule_set.rules
    }


def adopted_alerts(rule_set: RuleSet, nodes: Mapping[str, Node], now: float) -> Alerts:
    """The alerts of a process that remembers nothing: firing for each node with our mark."""
    return with_adopted(rule_set, nodes, mark_states(nodes.values(), rule_set.mark), {}, now)


def without_aging(alerts: Alerts, adopted: Alerts) -> Alerts:
    """``alerts``, and those of ``adopted`` that are not among them. Alerts that were adopted and
    have had no good reading since are adopted once more: they do not grow stale in a time of which
    nothing is known.
    """
    if not adopted:
        return alerts
    return {
        rule: {
            **firing,
            **{
                name: alert
                for name, alert in alerts.get(rule, {}).items()
                if not (alert.adopted and name in firing)
            },
        }
        for rule, firing in adopted.items()
    }


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
    rule_set: RuleSet, alerts: Alerts, states: Mapping[str, MarkState]
) -> Alerts:
    """``alerts`` of a replica that does not write, with those of early marks as the leader has
    them: firing where the node carries the mark, and nowhere else. Between their two lines they
    depend on what was before, and after a change of the leader no mark should change for that.
    """
    found = dict(alerts)
    for rule in rule_set.rules:
        if rule.early_of is not None and not rule.shadow and rule.name in alerts:
            found[rule.name] = {
                name: _as_marked(alert, is_marked=states[name].marked) if name in states else alert
                for name, alert in alerts[rule.name].items()
            }
    return found


def _as_marked(alert: Alert, *, is_marked: bool) -> Alert:
    if is_marked is alert.firing:
        return alert
    state = AlertState.FIRING if is_marked else AlertState.INACTIVE
    return replace(alert, state=state, since=alert.updated_at)
