"""One evaluation: from query results and nodes to alerts, marks and patches.

    evaluate(rules, answers, nodes, previous, now) -> Evaluation

The controller, ``dynsched plan``, the replay at startup and the tests all use this module.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

from msgspec import structs

from dynsched.core.alerts import (
    Alert,
    Alerts,
    AlertState,
    NodePressure,
    new_alert,
    next_alert,
)
from dynsched.core.guard import NO_WRITES, MarkCandidate, WriteBatch, decide_marks
from dynsched.core.load.expected import NO_PODS, ExpectedLoad, KnownPods, expected_load
from dynsched.core.marks import (
    Action,
    MarkDecision,
    NodePatch,
    mark_state,
    plan_node,
)
from dynsched.core.node_table import NodeEntry, NodeTable
from dynsched.core.nodes import Node
from dynsched.core.percent import load_percent
from dynsched.core.samples import (
    FAILED,
    MISSING,
    Matched,
    Quality,
    QueryResult,
    Reading,
    match_samples,
)
from dynsched.core.wording import Reason
from dynsched.rules.rule_set import Rule, RuleSet

NOT_MARKED: Final = Reason("mark_none")
OLDER_STAYS: Final = Reason("left")


@dataclass(frozen=True)
class Evaluation:
    """The result of one evaluation. Mappings are keyed by node name unless stated otherwise."""

    rule_set: RuleSet
    table: NodeTable
    alerts: Alerts
    pressures: Mapping[str, NodePressure]
    decision: MarkDecision
    patches: tuple[NodePatch, ...] = ()
    """The patches that were due before any write, hottest nodes first."""
    matched: Mapping[str, Matched] = field(default_factory=dict)
    """Keyed by rule; rules whose query failed are absent."""
    expected: Mapping[str, ExpectedLoad] = field(default_factory=dict)
    """Keyed by rule: those that use it, and only while pods are known."""
    released: int = 0
    """Marks released earlier in this tick; they count against ``guard.max_releases``."""

    @cached_property
    def hot(self) -> frozenset[str]:
        """Names of the nodes with a firing alert; shadow rules do not count."""
        return frozenset(name for name, pressure in self.pressures.items() if pressure.hot)

    def patch_for_changed(self, node: Node) -> NodePatch | None:
        """The patch for a node that changed after this evaluation, or None if none is due.

        A new node, or one that replaced another of the same name, waits for the next tick.
        """
        entry = self.table.entries.get(node.name)
        if entry is None or entry.node.uid != node.uid:
            return None
        state = mark_state(node, self.rule_set.mark, self.rule_set.nodes)
        return plan_node(state, self.pressures[node.name], self.rule_set, self.decision)

    def patch_for(self, name: str) -> NodePatch | None:
        """The patch for a node, or None if none is due."""
        mark = self.table.entries[name].mark
        return plan_node(mark, self.pressures[name], self.rule_set, self.decision)

    def after_writes(self, nodes: Mapping[str, Node], batch: WriteBatch = NO_WRITES) -> Evaluation:
        """The evaluation with ``nodes`` as they are after ``batch`` was sent.

        New nodes wait for the next evaluation.
        """
        entries = self.table.entries
        known = {
            name: node
            for name, node in nodes.items()
            if name in entries and entries[name].node.uid == node.uid
        }
        return replace(
            self,
            table=NodeTable.of(known, self.rule_set, self.table),
            alerts={name: self.alerts[name] for name in known},
            pressures={name: self.pressures[name] for name in known},
            decision=replace(self.decision, limited={**self.decision.limited, **batch.delayed}),
            released=self.released + sum(each.action is Action.RELEASE for each in batch.patches),
        )

    def shifted(self, seconds: float) -> Evaluation:
        """A copy with all alert times moved by ``seconds``, by which the clock was set."""
        alerts = {
            node: {rule: alert.shifted(seconds) for rule, alert in of_node.items()}
            for node, of_node in self.alerts.items()
        }
        return replace(self, alerts=alerts)

    def measured_load(self, rule: Rule, node: str) -> float | None:
        """The measured load in percent, or None if there is no good reading."""
        alert = self.alerts[node].get(rule.name)
        value = None if alert is None else alert.good_value
        return None if value is None else load_percent(rule, value)

    def fires_above_threshold(self, rule: Rule, node: str) -> bool:
        """Whether the rule fires on the node, and the load there is not below the threshold.

        The load is the expected one if known, otherwise the measured one. The result is False in
        the dead band, and True if the rule fires and no load is known.

        A node whose expected load has dropped accepts pods before its delayed metric clears the
        alert. Otherwise the remaining nodes would receive them all.
        """
        alert = self.alerts[node].get(rule.name)
        if alert is None or not alert.firing:
            return False
        load, expected = self.measured_load(rule, node), self.expected.get(rule.name)
        if load is not None and expected is not None:
            load = expected.of(node, load)
        return load is None or load >= load_percent(rule, rule.threshold)


def evaluate(
    rule_set: RuleSet,
    answers: Mapping[str, QueryResult],
    nodes: Mapping[str, Node],
    previous: Evaluation | None,
    now: float,
    *,
    pods: KnownPods = NO_PODS,
) -> Evaluation:
    """Evaluate all rules on all nodes. ``answers`` is keyed by rule.

    A marked node without alerts in ``previous`` starts with firing alerts. This includes a node
    that was deleted and created again under the same name.
    """
    table = NodeTable.of(nodes, rule_set, None if previous is None else previous.table)
    matched, expected = read_answers(table, answers, pods, now)
    readings = {name: each.readings for name, each in matched.items()}
    alerts = next_alerts(table, readings, {} if previous is None else previous.alerts, now)
    pressures = {
        name: node_pressure(entry, alerts[name], _new_pods(name, expected))
        for name, entry in table.entries.items()
    }
    released = 0 if previous is None else previous.released
    decision = _decide(table, pressures, released)
    planned_for = [
        name
        for name, entry in table.entries.items()
        if pressures[name].hot or entry.mark.has_our_keys
    ]
    planned_for.sort(key=lambda name: -pressures[name].severity)
    planned = (
        plan_node(table.entries[name].mark, pressures[name], rule_set, decision)
        for name in planned_for
    )
    patches = tuple(patch for patch in planned if patch is not None)
    return Evaluation(
        rule_set, table, alerts, pressures, decision, patches, matched, expected, released
    )


def read_answers(
    table: NodeTable, answers: Mapping[str, QueryResult], pods: KnownPods, now: float
) -> tuple[dict[str, Matched], dict[str, ExpectedLoad]]:
    """Match samples to nodes and estimate the expected load. Both results are keyed by rule.

    Rules whose query failed are absent. The expected load is computed only if pods are known, and
    only for rules that use it.
    """
    rule_set, matched, expected = table.rule_set, {}, {}
    expecting = {rule.name for rule in rule_set.expecting_rules}
    for rule in rule_set.rules:
        answer = answers.get(rule.name)
        if answer is None or answer.error is not None:
            continue
        fresh_since = now - rule.stale_after
        found = match_samples(rule, answer.samples, table.lookup, fresh_since=fresh_since)
        matched[rule.name] = found
        if pods is NO_PODS or rule.name not in expecting:
            continue
        good = {
            node: reading
            for node, reading in found.readings.items()
            if reading.quality is Quality.OK
            and reading.taken >= fresh_since
            and rule.applies_to(table.nodes[node].labels)
        }
        load = expected_load(rule, good, table.nodes, table.groups, pods=pods, now=now)
        expected[rule.name] = load
        if rule.by == "expected":
            changed = {
                node: structs.replace(
                    good[node], expected=load.value_of(rule, node, good[node].value)
                )
                for node in load.added
            }
            matched[rule.name] = structs.replace(found, readings={**found.readings, **changed})
    return matched, expected


def next_alerts(
    table: NodeTable,
    readings: Mapping[str, Mapping[str, Reading]],
    previous: Alerts,
    now: float,
) -> dict[str, dict[str, Alert]]:
    """The alerts after one evaluation. ``readings`` is keyed by rule; failed rules are absent."""
    found: dict[str, dict[str, Alert]] = {}
    for name, entry in table.entries.items():
        before = _alerts_before(entry, previous.get(name, {}), table.rule_set, now)
        found[name] = {
            rule.name: next_alert(
                before.get(rule.name) or new_alert(rule.name, name, entry.node.uid, now),
                rule,
                readings[rule.name].get(name, MISSING) if rule.name in readings else FAILED,
                now,
            )
            for rule in entry.rules
        }
    return found


def _alerts_before(
    entry: NodeEntry, previous: Mapping[str, Alert], rule_set: RuleSet, now: float
) -> Mapping[str, Alert]:
    """The node's alerts from the last evaluation, plus those adopted from its mark."""
    if any(alert.uid != entry.node.uid for alert in previous.values()):
        previous = {}
    if not entry.mark.marked:
        return previous
    known = rule_set.by_name
    if not previous.keys() & known.keys():
        previous = {**previous, **adopted_alerts(entry, rule_set, now)}
    # A firing rule that disappeared may have been renamed, so the new rules count as firing.
    if any(alert.firing and rule not in known for rule, alert in previous.items()):
        new = [r.name for r in entry.rules if not r.shadow and r.name not in previous]
        return {**previous, **{name: _adopted(entry, name, now) for name in new}}
    return previous


def adopted_alerts(entry: NodeEntry, rule_set: RuleSet, now: float) -> dict[str, Alert]:
    """Firing alerts for a marked node without known alerts, so that lost state removes no mark.

    They cover the rules that the mark's record names. If none of these exists any more, or there is
    no record (dynamicScheduler wrote none), all rules count as firing. The mark then stays until
    each rule has a good reading that clears it, or is stale. With ``mark: none`` a mark is left
    over from older rules and says nothing about the current ones, so there are no such alerts.
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


def _new_pods(node: str, expected: Mapping[str, ExpectedLoad]) -> Mapping[str, int]:
    return {name: load.added[node].pods for name, load in expected.items() if node in load.added}


def node_pressure(
    entry: NodeEntry, alerts: Mapping[str, Alert], new_pods: Mapping[str, int] = {}
) -> NodePressure:
    """Combine the alerts of a node."""
    firing = tuple(
        (rule, alerts[rule.name])
        for rule in entry.rules
        if not rule.shadow and alerts[rule.name].firing
    )
    severity = max((rule.excess(alert.compared) for rule, alert in firing), default=0.0)
    return NodePressure(entry.node.name, tuple(alerts.values()), firing, severity, new_pods)


def _decide(table: NodeTable, pressures: Mapping[str, NodePressure], released: int) -> MarkDecision:
    candidates = [
        MarkCandidate(
            name=name,
            pool=entry.group.pool,
            hot=pressures[name].hot,
            marked=entry.mark.marked,
            may_mark=entry.mark.may_mark,
            severity=pressures[name].severity,
        )
        for name, entry in table.entries.items()
        if pressures[name].hot or entry.mark.marked
    ]
    if table.rule_set.mark.is_none:
        unmarked = (each.name for each in candidates if each.hot and each.may_mark)
        limited = dict.fromkeys(unmarked, NOT_MARKED)
        limited |= dict.fromkeys((each.name for each in candidates if each.marked), OLDER_STAYS)
        return MarkDecision(frozenset(), limited)
    return decide_marks(
        table.rule_set.guard, candidates, table.pool_sizes, table.open_sizes, released
    )
