"""The mark on a node: how it stands there, and the patch that is due."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial, reduce
from typing import Any

from msgspec import Struct

from dynsched.core.alerts import Alert, NodePressure
from dynsched.core.mark_record import MarkRecord, read_record, write_record
from dynsched.core.nodes import Node, why_ineligible
from dynsched.core.wording import Reason
from dynsched.rules import keys
from dynsched.rules.labels import Mark, own_taints
from dynsched.rules.rule_set import Rule, RuleSet
from dynsched.rules.sections import NodeRules
from dynsched.util.formatting import format_threshold, format_value


class MarkState(Struct, frozen=True, gc=False):
    """How the mark stands on one node."""

    node: Node
    has_label: bool
    has_taint: bool
    record: MarkRecord | None
    conflict: str | None
    """Which label or taint of somebody else has the mark's key and another value."""
    older: Mark
    """What of an older configuration is still there, according to the record."""
    ineligible: str | None
    """Why the node must not be marked at all."""
    marked: bool
    """The node carries our mark, a part of it, or one of an older configuration."""

    @property
    def may_mark(self) -> bool:
        """Neither the rules nor somebody else's label or taint are against it."""
        return self.ineligible is None and self.conflict is None

    @property
    def has_our_keys(self) -> bool:
        """Whether anything on the node is ours; on all others nothing can be taken back."""
        return self.record is not None or self.marked


def carried_parts(state: MarkState, mark: Mark) -> tuple[str, ...]:
    """What of ours is on the node, each as ``label status=presure``; of ``mark`` first."""
    if not state.marked:
        return ()
    present = (
        *(("label", state.has_label and mark.label), ("taint", state.has_taint and mark.taint)),
        *(("label", state.older.label), ("taint", state.older.taint)),
    )
    return tuple(f"{kind} {part}" for kind, part in present if part)


def mark_state(node: Node, mark: Mark, rules: NodeRules | None = None) -> MarkState:
    """Without ``rules`` every node is eligible, as for `dynsched prune`."""
    record = read_record(node)
    older = _older(node, record, mark)
    has_label = has_taint = False
    conflict = None
    if mark.label and mark.label.key in node.labels:
        value = node.labels[mark.label.key]
        has_label = value == mark.label.value
        if not has_label and not (older.label and older.label.key == mark.label.key):
            conflict = Reason("conflict", f"label {mark.label.key}={value}")
    if mark.taint:
        has_taint = any(mark.taint.is_same(taint) for taint in node.taints)
        for taint in node.taints:
            ours = mark.taint.is_same(taint) or (older.taint and older.taint.is_same(taint))
            if mark.taint.shares_key_and_effect(taint) and not ours:
                theirs = f"taint {mark.taint.key}={taint.get('value', '')}"
                conflict = Reason("conflict", theirs)
    marked = has_label or has_taint or older.label is not None or older.taint is not None
    return MarkState(
        node=node,
        has_label=has_label,
        has_taint=has_taint,
        record=record,
        conflict=conflict,
        older=older,
        ineligible=None if rules is None else why_ineligible(node, rules),
        marked=marked,
    )


def _older(node: Node, record: MarkRecord | None, mark: Mark) -> Mark:
    """What an older configuration put there. Only the default label is believed, because any client
    that may write annotations can name any label in the record. The key of a taint is ours.
    """
    label, taint = (record.label, record.taint) if record else (None, None)
    if str(label) != keys.DEFAULT_LABEL or (label and node.labels.get(label.key) != label.value):
        label = None
    if taint and not any(map(taint.is_same, node.taints)):
        taint = None
    return Mark(None if label == mark.label else label, None if taint == mark.taint else taint)


class Action(StrEnum):
    """What a patch does to the mark."""

    MARK = "mark"
    RELEASE = "release"
    REPAIR = "repair"
    """The mark stays; a part of it was missing or belongs to an older configuration."""


@dataclass(frozen=True, slots=True)
class NodePatch:
    """One JSON merge patch for one node, not sent yet."""

    node: str
    action: Action
    body: Mapping[str, Any]
    """With the observed resourceVersion, so that the API server refuses it when the Node has
    changed since."""
    reason: str
    """One line for a person: the rules, values and thresholds behind the patch."""

    @property
    def changes_mark(self) -> bool:
        """Whether it changes more than the record."""
        return "spec" in self.body or "labels" in self.body.get("metadata", {})

    @property
    def version(self) -> str:
        """The observed resourceVersion; empty when there is none."""
        return str(self.body.get("metadata", {}).get("resourceVersion", ""))


@dataclass(frozen=True, slots=True)
class MarkDecision:
    """Which nodes carry the mark from now on, as far as the guard decides."""

    marked: frozenset[str]
    limited: Mapping[str, str]
    """By node, why it is not marked although it is hot, or still marked although it is not."""
    capped: frozenset[str] = frozenset()
    """The pools in which ``max_marked`` binds."""


def plan_node(
    state: MarkState, pressure: NodePressure, rule_set: RuleSet, decision: MarkDecision
) -> NodePatch | None:
    """The patch after which the node is as the ``decision`` wants it; None when nothing is due.

    Where somebody else set the mark's label or taint to another value the node is never marked, and
    what dynsched set on it is removed. A cool node whose release is delayed stays as it is.
    """
    wanted = pressure.node in decision.marked and state.ineligible is None
    if rule_set.mark.is_none or not (wanted or state.has_our_keys):
        return None  # most nodes, at every tick
    if wanted and state.conflict is None and (state.marked or pressure.hot):
        return _put(state, pressure, rule_set) if pressure.hot else None
    return _take_back(state, _why_released(state, pressure), state.older, rule_set.mark)


def plan_prune(nodes: Iterable[Node], mark: Mark) -> list[NodePatch]:
    """The patches that take back all that we ever put on these nodes, and nothing else."""
    reason = "everything that dynsched put there is removed"
    planned = []
    for state in (mark_state(node, mark) for node in nodes):
        # Someone asked for it, so any label that the record names is believed to be ours.
        recorded = Mark(None, None) if state.record is None else state.record.mark
        planned.append(_take_back(state, reason, recorded, mark))
    return [patch for patch in planned if patch is not None]


def _put(state: MarkState, pressure: NodePressure, rule_set: RuleSet) -> NodePatch | None:
    mark, record = rule_set.mark, state.record
    edit = _Edit(state.node)
    edit.take_back(state.older)
    if mark.label and not state.has_label:
        edit.labels[mark.label.key] = mark.label.value
    if mark.taint and not state.has_taint:
        taint = mark.taint
        raw = {"key": taint.key, "value": taint.value, "effect": taint.effect}
        edit.taints = [*edit.taints, raw]
    # A rule that fires since the mark was set is added: after a restart it must keep the mark too.
    is_recorded = (
        record is not None and record.mark == mark and pressure.known_to_fire <= set(record.rules)
    )
    if is_recorded and not edit.changed:
        return None  # most marked nodes, at every tick: no text is made for them
    edit.annotations[keys.EVIDENCE_ANNOTATION] = write_record(mark, pressure)
    action = Action.REPAIR if state.marked else Action.MARK
    return edit.patch(action, describe(pressure))


def _take_back(state: MarkState, reason: str, *marks: Mark) -> NodePatch | None:
    edit = _Edit(state.node)
    for mark in marks:
        edit.take_back(mark)
    if state.record is not None:
        edit.annotations[keys.EVIDENCE_ANNOTATION] = None
    return edit.patch(Action.RELEASE, reason)


def is_done(patch: NodePatch, node: Node) -> bool:
    """Whether the node has already all that the patch would set, and lacks what it removes."""
    metadata = patch.body["metadata"]
    taints = patch.body["spec"]["taints"] if "spec" in patch.body else node.taints
    return list(taints or ()) == list(node.taints) and all(
        present.get(key) == value
        for present, part in ((node.labels, "labels"), (node.annotations, "annotations"))
        for key, value in metadata.get(part, {}).items()
    )


def apply_patch(node: Node, patch: NodePatch) -> Node:
    """The node as the API server would have it after the patch. Taints of others stay."""
    metadata = patch.body["metadata"]
    changed, taints = metadata.get("labels", {}), node.taints
    labels = _merged(node.labels, changed)
    if "spec" in patch.body:
        ours = own_taints(node.taints)
        theirs = [taint for taint in node.taints if taint not in ours]
        taints = (*theirs, *own_taints(patch.body["spec"]["taints"] or ()))
    return replace(
        node,
        labels=labels,
        annotations=_merged(node.annotations, metadata.get("annotations", {})),
        taints=taints,
    )


def _merged(old: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    return {key: value for key, value in {**old, **changes}.items() if value is not None}


def describe(pressure: NodePressure) -> str:
    """The firing rules in one line: ``node-cpu 91.2 > 80``, ``node-cpu was > 80, is 75``, or
    ``node-cpu 74 measured, 86 expected with 5 new pods > 80``.
    """
    parts: list[str] = [
        _reason(rule, alert, pressure.new_pods.get(rule.name, 0)) for rule, alert in pressure.firing
    ]
    return reduce(partial(Reason, "both"), parts or [Reason("no_rule")])


def _reason(rule: Rule, alert: Alert, new_pods: int) -> str:
    over, value = f"{rule.op} {format_threshold(rule.threshold)}", format_value(alert.compared)
    if alert.compared is not None and not rule.breached(alert.compared):
        return Reason("fired", rule.name, over, value)
    measured = format_value(alert.value)
    if value == measured:
        return Reason("fires", rule.name, value, over)
    code = "expected_pod" if new_pods == 1 else "expected_pods" if new_pods else "expected"
    return Reason(code, rule.name, measured, value, over, str(new_pods))


def _why_released(state: MarkState, pressure: NodePressure) -> str:
    if state.conflict is not None:
        return state.conflict
    if state.ineligible is not None:
        return Reason("not_eligible", state.ineligible)
    if pressure.hot:
        return Reason("hotter")
    is_unknown = pressure.alerts and all(each.good_value is None for each in pressure.alerts)
    return Reason("no_value" if is_unknown else "no_rule")


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
