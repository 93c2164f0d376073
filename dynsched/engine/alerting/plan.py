"""Observed nodes and what they should carry -> patches. No difference, no patch."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import partial, reduce
from types import MappingProxyType
from typing import Any

from dynsched.engine.alerting.guard import Selection
from dynsched.engine.model import Action, Alert, AlertState, Node, NodePatch, Verdict
from dynsched.engine.nodes.mark_state import MarkState, mark_state
from dynsched.engine.pod_values import Added
from dynsched.engine.wording import Reason
from dynsched.rules import keys
from dynsched.rules.labels import Mark
from dynsched.rules.rule_set import NO_RULES, Rule, RuleSet
from dynsched.util.formatting import format_threshold, format_time, format_value


def plan_node(
    state: MarkState,
    verdict: Verdict,
    rule_set: RuleSet,
    selection: Selection,
    added: Mapping[str, Added] = MappingProxyType({}),
) -> NodePatch | None:
    """The patch after which the node carries the mark if the ``selection`` has it, and needs no
    further patch; None when nothing is due on it. ``added``: by rule, for the reason.

    Where somebody else set the mark's label or taint to another value it is never marked, and what
    dynsched set on it is removed. One that is wanted only because its release is delayed is not
    marked again when its mark is gone.
    """
    wanted = verdict.node in selection.marked and state.ineligible is None
    if rule_set.mark.is_none or not (wanted or state.touched):
        return None  # most nodes, at every tick
    if wanted and state.conflict is None and (state.marked or verdict.hot):
        return None if rule_set is NO_RULES else _put(state, verdict, rule_set, added)
    return _take_back(state, rule_set.mark, _why_taken_off(state, verdict))


def plan_prune(nodes: Iterable[Node], mark: Mark) -> list[NodePatch]:
    """The patches that take back all that we ever put on these nodes, and nothing else."""
    planned = (
        _take_back(mark_state(node, mark), mark, "everything that dynsched put there is removed")
        for node in nodes
    )
    return [patch for patch in planned if patch is not None]


def _put(
    state: MarkState, verdict: Verdict, rule_set: RuleSet, added: Mapping[str, Added]
) -> NodePatch | None:
    mark = rule_set.mark
    edit = _Edit(state.node)
    edit.take_back(state.older)
    if mark.label and not state.has_label:
        edit.labels[mark.label.key] = mark.label.value
    if mark.taint and not state.has_taint:
        taint = mark.taint
        raw = {"key": taint.key, "value": taint.value, "effect": taint.effect}
        edit.taints = [*edit.taints, raw]
    evidence = state.evidence
    differs = edit.changed or evidence is None or Mark(evidence.label, evidence.taint) != mark
    if not differs:  # most marked nodes, at every tick: no text is made for them
        return None
    edit.annotations[keys.EVIDENCE_ANNOTATION] = write_evidence(mark, verdict, rule_set)
    reason = _with_rest(describe(verdict, rule_set, added), state)
    return edit.patch(Action.REPAIR if state.marked else Action.MARK, reason)


def _take_back(state: MarkState, mark: Mark, reason: str) -> NodePatch | None:
    edit = _Edit(state.node)
    edit.take_back(state.older)
    edit.take_back(mark)
    if state.evidence is not None:
        edit.annotations[keys.EVIDENCE_ANNOTATION] = None
    return edit.patch(Action.RELEASE, _with_rest(reason, state))


def _with_rest(reason: str, state: MarkState) -> str:
    if state.unproven is None:
        return reason
    return Reason("unproven", reason, str(state.unproven))


def is_done(patch: NodePatch, node: Node) -> bool:
    """Whether the node has already all that the patch would set, and lacks what it removes."""
    metadata = patch.body["metadata"]
    taints = patch.body["spec"]["taints"] if "spec" in patch.body else node.taints
    return list(taints or ()) == list(node.taints) and all(
        present.get(key) == value
        for present, part in ((node.labels, "labels"), (node.annotations, "annotations"))
        for key, value in metadata.get(part, {}).items()
    )


def describe(
    verdict: Verdict,
    rule_set: RuleSet,
    added: Mapping[str, Added] = MappingProxyType({}),
) -> str:
    """The firing rules in one line: ``node-cpu 91.2 > 80``, or ``node-cpu was > 80, is 75``, or
    ``node-cpu 74 measured, 86 expected with 5 new pods > 80``.
    """
    parts: list[str] = [
        _reason(rule, alert, added.get(rule.name)) for rule, alert in _firing(verdict, rule_set)
    ]
    return reduce(partial(Reason, "both"), parts or [Reason("no_rule")])


def write_evidence(mark: Mark, verdict: Verdict, rule_set: RuleSet) -> str:
    """What `mark_state.read_evidence` reads."""
    label, taint = mark.texts
    record: dict[str, Any] = {
        "label": label,
        "taint": taint,
        "since": format_time(verdict.since) if verdict.since is not None else None,
        "rules": [
            {
                "rule": alert.rule,
                "value": None if alert.compared is None else round(alert.compared, 2),
                "threshold": rule.threshold,
                "since": format_time(alert.since),
            }
            for rule, alert in _firing(verdict, rule_set)
        ],
    }
    return json.dumps(record, separators=(",", ":"), ensure_ascii=False)


def _firing(verdict: Verdict, rule_set: RuleSet) -> list[tuple[Rule, Alert]]:
    """The firing alerts that count, each with its rule."""
    firing = [alert for alert in verdict.alerts if alert.state is AlertState.FIRING]
    both = [(rule_set.by_name[alert.rule], alert) for alert in firing]
    return [(rule, alert) for rule, alert in both if not rule.shadow]


def _reason(rule: Rule, alert: Alert, added: Added | None) -> str:
    over, value = f"{rule.op} {format_threshold(rule.threshold)}", format_value(alert.compared)
    if alert.compared is not None and not rule.breached(alert.compared):
        return Reason("fired", rule.name, over, value)
    measured, pods = format_value(alert.value), 0 if added is None else added.pods
    if value == measured:
        return Reason("fires", rule.name, value, over)
    code = "expected_pod" if pods == 1 else "expected_pods" if pods else "expected"
    return Reason(code, rule.name, measured, value, over, str(pods))


def _why_taken_off(state: MarkState, verdict: Verdict) -> str:
    if state.conflict is not None:
        return state.conflict
    if state.ineligible is not None:
        return Reason("not_eligible", state.ineligible)
    return Reason("hotter" if verdict.hot else "no_rule")


class _Edit:
    """A merge patch in the making. Only our own keys go in; None removes a key."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.labels: dict[str, str | None] = {}
        self.annotations: dict[str, str | None] = {}
        self.taints: list[Mapping[str, Any]] = list(node.taints)

    @property
    def changed(self) -> bool:
        """Whether labels or taints of the node differ; annotations do not count."""
        return bool(self.labels) or self.taints != list(self.node.taints)

    def take_back(self, mark: Mark) -> None:
        """Remove the label if it has the value that we put, and our own taint; all other taints
        stay as they are, in their order.
        """
        label, taint = mark.label, mark.taint
        if label and self.node.labels.get(label.key) == label.value:
            self.labels[label.key] = None
        if taint:
            self.taints = [raw for raw in self.taints if not taint.is_same(raw)]

    def patch(self, action: Action, reason: str) -> NodePatch | None:
        """The whole edit with the observed resourceVersion; None where there is nothing in it."""
        if not self.changed and not self.annotations:
            return None
        metadata: dict[str, Any] = {"resourceVersion": self.node.resource_version}
        if self.labels:
            metadata["labels"] = self.labels
        if self.annotations:
            metadata["annotations"] = self.annotations
        body: dict[str, Any] = {"metadata": metadata}
        if self.taints != list(self.node.taints):
            body["spec"] = {"taints": self.taints or None}
        return NodePatch(self.node.name, action, body, reason)
