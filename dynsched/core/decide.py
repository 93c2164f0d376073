"""One tick without the world: answers and nodes in, alerts and patches out.

This is match -> evaluate -> guard -> plan in their one order; the loop, ``dynsched plan`` and
the tests all decide by it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dynsched.core.adoption import with_adopted
from dynsched.core.early import above_mean
from dynsched.core.evaluate import Alerts, Evaluation, RuleReadings, evaluate
from dynsched.core.expected import NO_PODS, ExpectedLoad, KnownPods, expected_load
from dynsched.core.guard import Selection, pool_of, select, why_ineligible
from dynsched.core.mark_state import MarkState, carried, mark_state
from dynsched.core.match import Matched, NodeIndex, match_samples
from dynsched.core.model import (
    Node,
    NodePatch,
    NodeView,
    Quality,
    QueryResult,
    Reading,
    SeveralSeries,
    Unmatched,
)
from dynsched.core.plan import plan, plan_node
from dynsched.core.pods import Added
from dynsched.core.rules import Rule, RuleSet
from dynsched.core.survey import Survey, survey


@dataclass(frozen=True, slots=True)
class Decision:
    """What one tick came to, on the nodes as they were. ``patches`` are due; nothing has been
    written yet.
    """

    survey: Survey
    evaluation: Evaluation
    selection: Selection
    patches: tuple[NodePatch, ...]
    unmatched: tuple[Unmatched, ...]
    several: Mapping[str, SeveralSeries]
    expected: Mapping[str, ExpectedLoad]

    @property
    def rule_set(self) -> RuleSet:
        """The rules that were decided by."""
        return self.survey.rule_set

    @property
    def nodes(self) -> Mapping[str, Node]:
        """The nodes that were decided on."""
        return self.survey.nodes

    def replan(self, node: Node) -> NodePatch | None:
        """The patch for one node that changed since; None when nothing is due any more.

        One that has replaced the node of its name is decided on in the next tick.
        """
        return self._due(*self._standing(node)) if self._is_of(node) else None

    def _standing(self, node: Node) -> tuple[MarkState, str | None]:
        """How the mark stands on it, and why it must not be marked at all: as it was found then,
        unless it changed since.
        """
        seen = self.survey
        state = seen.states[node.name]
        if state.node is node:
            return state, seen.ineligible.get(node.name)
        return mark_state(node, seen.mark), why_ineligible(node, self.rule_set.nodes)

    def _due(self, state: MarkState, ineligible: str | None) -> NodePatch | None:
        wanted = self.selection.marked if ineligible is None else frozenset()
        return plan_node(state, wanted, self.evaluation.verdicts, self.rule_set)

    def views(self, nodes: Iterable[Node]) -> dict[str, NodeView]:
        """What `/nodes` tells, of nodes as they are now (after the writes)."""
        return {node.name: self._view(node) for node in nodes if self._is_of(node)}

    def _added_to(self, node: str) -> Mapping[str, Added]:
        """By rule: what is added to the node's load; most often nothing."""
        return {
            rule: load.added[node] for rule, load in self.expected.items() if node in load.added
        }

    def _is_of(self, node: Node) -> bool:
        """Whether this node, and not a former one of its name, was decided on."""
        decided = self.nodes.get(node.name)
        return decided is not None and decided.uid == node.uid

    def _view(self, node: Node) -> NodeView:
        verdict = self.evaluation.verdicts[node.name]
        state, ineligible = self._standing(node)
        return NodeView(
            name=node.name,
            ineligible=ineligible,
            carries=carried(state, self.survey.mark),
            pressured=verdict.pressured,
            since=verdict.since,
            alerts=verdict.alerts,
            due=self._due(state, ineligible),
            conflict=state.conflict,
            withheld=self.selection.withheld.get(node.name),
            early=verdict.early,
            pool=pool_of(node, self.rule_set.guard),
            added=self._added_to(node.name),
        )


def decide(
    rule_set: RuleSet,
    results: Mapping[str, QueryResult],
    nodes: Mapping[str, Node],
    previous: Alerts,
    now: float,
    *,
    pods: KnownPods = NO_PODS,
    released: int = 0,
    before: Survey | None = None,
) -> Decision:
    """Decide over all nodes. ``results`` by rule name; ``previous`` the last evaluation's alerts;
    ``pods``: what is known of them, for the expected load. ``released``: how many marks went in
    this tick before, of those that ``guard.max_releases`` allows in one. ``before``: the last
    decision's survey of the nodes, so that only those that changed are looked at again.

    A node that carries our mark and has no alert in ``previous`` is adopted as firing; so is one
    that has replaced another of its name.
    """
    seen = survey(nodes, rule_set, before)
    matched = _match_rules(rule_set, results, seen.index, now)
    readings = {
        name: RuleReadings(_selected(rule_set.by_name[name], found.readings, nodes))
        for name, found in matched.items()
    }
    good = {
        rule.name: _good(rule_set, rule, readings[rule.name], now)
        for rule in rule_set.file_rules
        if rule.name in readings and (rule.early is not None or rule_set.has_extender)
    }
    expected = {
        rule.name: expected_load(rule, good[rule.name], nodes, pods, now)
        for rule in rule_set.file_rules
        if rule.name in good and pods is not NO_PODS
    }
    readings |= _early_readings(rule_set, good, expected, nodes, seen.eligible)
    if seen.marked:  # only a node that carries the mark can be adopted
        previous = with_adopted(rule_set, nodes, seen.states, previous, now)
    evaluation = evaluate(rule_set, readings, nodes, previous, now)
    selection = select(
        seen.eligible.values(),
        evaluation.verdicts,
        seen.marked,
        rule_set.guard,
        outgoing=[nodes[name] for name in seen.marked - seen.eligible.keys()],
        released=released,
    )
    patches = plan(seen.states.values(), selection.marked, evaluation.verdicts, rule_set)
    return Decision(
        survey=seen,
        evaluation=evaluation,
        selection=selection,
        patches=tuple(patches),
        unmatched=tuple(entry for found in matched.values() for entry in found.unmatched),
        several={
            name: found.several for name, found in matched.items() if found.several is not None
        },
        expected=expected,
    )


def _early_readings(
    rule_set: RuleSet,
    readings: Mapping[str, Mapping[str, Reading]],
    expected: Mapping[str, ExpectedLoad],
    nodes: Mapping[str, Node],
    eligible: Mapping[str, Node],
) -> dict[str, RuleReadings]:
    """Of the rules that ``early`` of others stand for, by their names."""
    found = {}
    for rule in rule_set.file_rules:
        made = rule.early_rule
        if made is None or rule.name not in readings:
            continue
        added = expected[rule.name].added if rule.name in expected else {}
        found[made.name] = RuleReadings(
            above_mean(
                *(rule, readings[rule.name], added, nodes),
                eligible=eligible,
                guard=rule_set.guard,
            )
        )
    return found


def _good(rule_set: RuleSet, rule: Rule, answer: RuleReadings, now: float) -> Mapping[str, Reading]:
    """The readings that are finite numbers and not too old."""
    fresh_since = now - rule_set.stale_after_of(rule)
    return {
        name: reading
        for name, reading in answer.readings.items()
        if reading.quality is Quality.OK and reading.timestamp >= fresh_since
    }


def _selected(
    rule: Rule, readings: Mapping[str, Reading], nodes: Mapping[str, Node]
) -> Mapping[str, Reading]:
    """The readings of the nodes that the rule applies to."""
    if not rule.selector.requirements:
        return readings
    return {
        name: reading for name, reading in readings.items() if rule.applies_to(nodes[name].labels)
    }


def _match_rules(
    rule_set: RuleSet, results: Mapping[str, QueryResult], index: NodeIndex, now: float
) -> dict[str, Matched]:
    """By rule; those whose query failed are not in it."""
    return {
        rule.name: match_samples(
            rule, result.samples, index, fresh_since=now - rule_set.stale_after_of(rule)
        )
        for rule in rule_set.rules
        if rule.early_of is None
        and (result := results.get(rule.name)) is not None
        and result.error is None
    }
