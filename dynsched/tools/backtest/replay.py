"""Replays history: runs `evaluate` at every step, and applies its patches to the nodes.

Writes are assumed to succeed. Past pods are unknown, so rules with ``by: expected`` are replayed
with measured values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dynsched.core.evaluate import Evaluation, evaluate
from dynsched.core.marks import apply_patch, plan_prune
from dynsched.core.node_table import NodeTable
from dynsched.core.nodes import Node
from dynsched.core.samples import Quality, QueryResult, Sample
from dynsched.rules.rule_set import Rule, RuleSet
from dynsched.tools.backtest.history import Past, Query, Window


class Runs:
    """Steps, stored as runs of consecutive ones: ``[begun, ended]``, where ``ended`` is the step
    after the last.
    """

    __slots__ = ("runs",)

    def __init__(self) -> None:
        self.runs: list[list[int]] = []

    def add(self, step: int) -> None:
        """Steps must be added in ascending order."""
        if self.runs and self.runs[-1][1] == step:
            self.runs[-1][1] = step + 1
        else:
            self.runs.append([step, step + 1])

    @property
    def steps(self) -> int:
        return sum(ended - begun for begun, ended in self.runs)


@dataclass(slots=True)
class Times:
    """``known``: the number of steps with a good value."""

    known: int = 0
    active: Runs = field(default_factory=Runs)


@dataclass(slots=True)
class NodeRecord:
    """``marked``: when the node is marked; known while any rule is. ``rules``: for each rule that
    applies to the node, when it fires and the node is marked. A rule that marks nothing: when it
    fires.
    """

    rules: Mapping[str, Times]
    marked: Times = field(default_factory=Times)


class Record:
    """The result of a replay. ``nodes``: those that may be marked, because the rules select them
    and nobody else uses the mark's key.
    """

    def __init__(self, rule_set: RuleSet, nodes: Mapping[str, Node], window: Window) -> None:
        self.window = window
        self.nodes = {
            name: NodeRecord({rule.name: Times() for rule in entry.rules})
            for name, entry in sorted(NodeTable.of(nodes, rule_set).entries.items())
            if entry.mark.may_mark
        }
        self.writes = self.peak = 0
        self.capped = 0
        """The number of steps at which a hot node was not marked because of ``max_marked``."""
        self._marks_nothing = frozenset(
            rule.name for rule in rule_set.rules if rule.shadow or rule_set.mark.is_none
        )

    def add(self, step: int, evaluation: Evaluation) -> None:
        marked = evaluation.decision.marked
        for name, node in self.nodes.items():
            is_marked, is_known = name in marked, False
            for rule, alert in evaluation.alerts[name].items():
                times = node.rules[rule]
                if alert.quality is Quality.OK:
                    times.known += 1
                    is_known = True
                if alert.firing and (is_marked or rule in self._marks_nothing):
                    times.active.add(step)
            node.marked.known += is_known
            if is_marked:
                node.marked.active.add(step)
        self.writes += len(evaluation.patches)
        self.peak = max(self.peak, len(marked))
        limited = () if evaluation.rule_set.mark.is_none else evaluation.decision.limited
        self.capped += any(evaluation.pressures[name].hot for name in limited)


def replay(
    rule_set: RuleSet, pasts: Mapping[Query, Past], nodes: Mapping[str, Node], window: Window
) -> Record:
    """Replay the rules. It begins without marks: with ``nodes`` as `dynsched prune` leaves them."""
    nodes = dict(nodes)
    for patch in plan_prune(nodes.values(), rule_set.mark):
        nodes[patch.node] = apply_patch(nodes[patch.node], patch)
    record = Record(rule_set, nodes, window)
    queries = {rule: query for rule in rule_set.rules if (query := Query.of(rule))}
    streams = {query: pasts[query].by_step() for query in queries.values()}
    evaluation: Evaluation | None = None
    for step in range(window.count):
        now = window.at(step)
        values = {query: next(stream) for query, stream in streams.items()}
        answers = {rule.name: _answer(rule, values[query], now) for rule, query in queries.items()}
        evaluation = evaluate(rule_set, answers, nodes, evaluation, now)
        for patch in evaluation.patches:
            nodes[patch.node] = apply_patch(nodes[patch.node], patch)
        record.add(step, evaluation)
    return record


def _answer(rule: Rule, values: Mapping[str, float], now: float) -> QueryResult:
    label = rule.node_labels[0]
    return QueryResult([Sample({label: name}, value, now) for name, value in values.items()])
