"""One tick without the world: answers and nodes in, alerts and patches out.

This is match -> evaluate -> guard -> plan in their one order; the loop, ``dynsched plan`` and
the tests all decide by it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dynsched.core.evaluate import Alerts, Evaluation, Observation, adopt, evaluate
from dynsched.core.guard import Selection, is_eligible, select, why_ineligible
from dynsched.core.match import Matched, index_nodes, match_samples
from dynsched.core.model import (
    Alert,
    Node,
    NodePatch,
    NodeView,
    QueryResult,
    RuleHealth,
    SeveralSeries,
    Unmatched,
)
from dynsched.core.plan import Observed, carried, observe, plan, plan_node
from dynsched.core.rules import Rule, RuleSet


@dataclass(frozen=True, slots=True)
class Decision:
    """What one tick came to, on ``nodes`` as they were. ``patches`` are due; nothing has been
    written yet.
    """

    rule_set: RuleSet
    nodes: Mapping[str, Node]
    evaluation: Evaluation
    selection: Selection
    patches: tuple[NodePatch, ...]
    unmatched: tuple[Unmatched, ...]
    conflicts: Mapping[str, str]
    several: Mapping[str, SeveralSeries]

    def replan(self, node: Node) -> NodePatch | None:
        """The patch for one node that changed since; None when nothing is due any more.

        One that has replaced the node of its name is decided on in the next tick.
        """
        return self._due(node, observe(node, self.rule_set.mark)) if self._is_of(node) else None

    def _due(self, node: Node, observed: Observed) -> NodePatch | None:
        wanted = self.selection.marked if is_eligible(node, self.rule_set.nodes) else frozenset()
        return plan_node(node, observed, wanted, self.evaluation.verdicts, self.rule_set)

    def views(self, nodes: Iterable[Node]) -> dict[str, NodeView]:
        """What `/nodes` tells, of nodes as they are now (after the writes)."""
        return {node.name: self._view(node) for node in nodes if self._is_of(node)}

    def _is_of(self, node: Node) -> bool:
        """Whether this node, and not a former one of its name, was decided on."""
        decided = self.nodes.get(node.name)
        return decided is not None and decided.uid == node.uid

    def _view(self, node: Node) -> NodeView:
        verdict = self.evaluation.verdicts[node.name]
        observed = observe(node, self.rule_set.mark)
        return NodeView(
            name=node.name,
            ineligible=why_ineligible(node, self.rule_set.nodes),
            carries=carried(observed, self.rule_set.mark),
            pressured=verdict.pressured,
            since=verdict.since,
            alerts=verdict.alerts,
            due=self._due(node, observed),
            conflict=observed.conflict,
            withheld=self.selection.withheld.get(node.name),
        )


def decide(
    rule_set: RuleSet,
    results: Mapping[str, QueryResult],
    nodes: Mapping[str, Node],
    previous: Alerts,
    now: float,
) -> Decision:
    """Decide over all nodes. ``results`` by rule name; ``previous`` the last evaluation's alerts.

    A node that carries our mark and has no alert in ``previous`` is adopted as firing; so is one
    that has replaced another of its name.
    """
    matched = _match_rules(rule_set, results, nodes, now)
    observations = {name: Observation(found.readings) for name, found in matched.items()}
    observed = {name: observe(node, rule_set.mark) for name, node in nodes.items()}
    remembered = with_adopted(rule_set, nodes, observed, previous, now)
    evaluation = evaluate(rule_set, observations, nodes, remembered, now)
    conflicts = {
        name: state.conflict for name, state in observed.items() if state.conflict is not None
    }
    selection = select(
        [
            node
            for name, node in nodes.items()
            if name not in conflicts and is_eligible(node, rule_set.nodes)
        ],
        evaluation.verdicts,
        {name for name, state in observed.items() if state.marked},
        rule_set.guard,
    )
    patches = plan(nodes.values(), selection.marked, evaluation.verdicts, rule_set)
    return Decision(
        rule_set=rule_set,
        nodes=nodes,
        evaluation=evaluation,
        selection=selection,
        patches=tuple(patches),
        unmatched=tuple(entry for found in matched.values() for entry in found.unmatched),
        conflicts=conflicts,
        several={
            name: found.several for name, found in matched.items() if found.several is not None
        },
    )


def rule_health(
    rule: Rule,
    result: QueryResult,
    decision: Decision,
    last_success: float | None,
    past_error: str | None = None,
) -> RuleHealth:
    """One rule's health after a tick; ``last_success`` is when its query last answered."""
    alerts = decision.evaluation.alerts[rule.name].values()
    return RuleHealth(
        rule=rule,
        error=result.error,
        warnings=result.warnings,
        duration=result.duration,
        last_success=last_success,
        samples=len(result.samples),
        unmatched=sum(entry.rule == rule.name for entry in decision.unmatched),
        quality=Counter(alert.quality for alert in alerts),
        states=Counter(alert.state for alert in alerts),
        past_error=past_error,
        several=decision.several.get(rule.name),
    )


def _match_rules(
    rule_set: RuleSet, results: Mapping[str, QueryResult], nodes: Mapping[str, Node], now: float
) -> dict[str, Matched]:
    """By rule; those whose query failed are not in it."""
    index = index_nodes(nodes.values())
    return {
        rule.name: match_samples(
            rule, result.samples, index, fresh_since=now - rule_set.stale_after_of(rule)
        )
        for rule in rule_set.rules
        if (result := results.get(rule.name)) is not None and result.error is None
    }


def with_adopted(
    rule_set: RuleSet,
    nodes: Mapping[str, Node],
    observed: Mapping[str, Observed],
    previous: Alerts,
    now: float,
) -> Alerts:
    """``previous``, and a firing alert for each node that carries our mark and has none in it."""
    known = [previous[rule.name] for rule in rule_set.rules if rule.name in previous]
    adopted: dict[str, dict[str, Alert]] = {}
    for name, state in observed.items():
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
