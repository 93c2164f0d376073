"""The mark on a node: its observed state, and the patch that is due."""

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
    """The observed state of the mark on one node."""

    node: Node
    has_label: bool
    has_taint: bool
    record: MarkRecord | None
    conflict: str | None
    """The label or taint of someone else that has the mark's key but another value, or None."""
    older: Mark
    """Leftovers of an older configuration, according to the record."""
    ineligible: str | None
    """Why the node must not be marked, or None if it may be."""
    marked: bool
    """Whether the node carries our mark, a part of it, or one of an older configuration."""

    @property
    def may_mark(self) -> bool:
        """Whether the node is eligible and has no conflict."""
        return self.ineligible is None and self.conflict is None

    @property
    def has_our_keys(self) -> bool:
        """Whether anything on the node is ours and could be removed."""
        return self.record is not None or self.marked


def carried_parts(state: MarkState, mark: Mark) -> tuple[str, ...]:
    """Our labels and taints on the node, as ``label status=presure``; those of ``mark`` first."""
    if not state.marked:
        return ()
    present = (
        *(("label", state.has_label and mark.label), ("taint", state.has_taint and mark.taint)),
        *(("label", state.older.label), ("taint", state.older.taint)),
    )
    return tuple(f"{kind} {part}" for kind, part in present if part)


def mark_state(node: Node, mark: Mark, rules: NodeRules | None = None) -> MarkState:
    """The state of ``mark`` on a node. Without ``rules`` (`dynsched prune`) it is eligible."""
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
    """The label and taint that an older configuration put on the node.

    A recorded label is trusted only if it is the default one, because anyone who may write
    annotations can name any label in the record. A recorded taint always has a key of ours.
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
    """The mark stays; a missing or outdated part of it, or of its record, is corrected."""


@dataclass(frozen=True, slots=True)
class NodePatch:
    """A JSON merge patch for one node."""

    node: str
    action: Action
    body: Mapping[str, Any]
    """Includes the observed resourceVersion, so that the API server rejects the patch if the Node
    has changed since."""
    reason: str
    """One line for a person: the rules, values and thresholds behind the patch."""

    @property
    def changes_mark(self) -> bool:
        """Whether the patch changes the label or a taint, not only the record."""
        return "spec" in self.body or "labels" in self.body.get("metadata", {})

    @property
    def version(self) -> str:
        """The observed resourceVersion; empty if there is none."""
        return str(self.body.get("metadata", {}).get("resourceVersion", ""))


@dataclass(frozen=True, slots=True)
class MarkDecision:
    """Which nodes carry the mark from now on, within the limits of ``guard``."""

    marked: frozenset[str]
    limited: Mapping[str, str]
    """Per node, why it is hot but not marked, or marked but not hot."""
    capped: frozenset[str] = frozenset()
    """Pools that have more hot nodes than ``max_marked`` allows."""


def plan_node(
    state: MarkState, pressure: NodePressure, rule_set: RuleSet, decision: MarkDecision
) -> NodePatch | None:
    """The patch that makes the node match the ``decision``, or None if none is due.

    If someone else set the mark's label or taint to another value, the node is never marked, and
    what dynsched set on it is removed. A cool node whose release is delayed is left as it is.
    """
    wanted = pressure.node in decision.marked and state.ineligible is None
    if rule_set.mark.is_none or not (wanted or state.has_our_keys):
        return None  # most nodes, at every tick
    if wanted and state.conflict is None and (state.marked or pressure.hot):
        return _plan_mark(state, pressure, rule_set) if pressure.hot else None
    return _plan_removal(state, _why_released(state, pressure), state.older, rule_set.mark)


def plan_prune(nodes: Iterable[Node], mark: Mark) -> list[NodePatch]:
    """The patches that remove everything we ever put on these nodes, and nothing else."""
    reason = "everything that dynsched put there is removed"
    planned = []
    for state in (mark_state(node, mark) for node in nodes):
        # The user requested the removal, so any label that the record names is trusted to be ours.
        recorded = Mark(None, None) if state.record is None else state.record.mark
        planned.append(_plan_removal(state, reason, recorded, mark))
    return [patch for patch in planned if patch is not None]


def _plan_mark(state: MarkState, pressure: NodePressure, rule_set: RuleSet) -> NodePatch | None:
    mark, record = rule_set.mark, state.record
    edit = _Edit(state.node)
    edit.remove(state.older)
    if mark.label and not state.has_label:
        edit.labels[mark.label.key] = mark.label.value
    if mark.taint and not state.has_taint:
        taint = mark.taint
        raw = {"key": taint.key, "value": taint.value, "effect": taint.effect}
        edit.taints = [*edit.taints, raw]
    # Add rules that began to fire after the mark was set: they must keep it after a restart too.
    is_recorded = (
        record is not None and record.mark == mark and pressure.known_to_fire <= set(record.rules)
    )
    if is_recorded and not edit.changed:
        return None  # most marked nodes, at every tick: skip building the record
    edit.annotations[keys.EVIDENCE_ANNOTATION] = write_record(mark, pressure)
    action = Action.REPAIR if state.marked else Action.MARK
    return edit.patch(action, describe(pressure))


def _plan_removal(state: MarkState, reason: str, *marks: Mark) -> NodePatch | None:
    edit = _Edit(state.node)
    for mark in marks:
        edit.remove(mark)
    if state.record is not None:
        edit.annotations[keys.EVIDENCE_ANNOTATION] = None
    return edit.patch(Action.RELEASE, reason)


def is_done(patch: NodePatch, node: Node) -> bool:
    """Whether the patch would not change the node any more."""
    metadata = patch.body["metadata"]
    taints = patch.body["spec"]["taints"] if "spec" in patch.body else node.taints
    return list(taints or ()) == list(node.taints) and all(
        present.get(key) == value
        for present, part in ((node.labels, "labels"), (node.annotations, "annotations"))
        for key, value in metadata.get(part, {}).items()
    )


def apply_patch(node: Node, patch: NodePatch) -> Node:
    """The node after the patch. Taints of others stay as they are on the node."""
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
    """Builds a merge patch. It changes only our own keys; None removes a key."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.labels: dict[str, str | None] = {}
        self.annotations: dict[str, str | None] = {}
        self.taints: list[Mapping[str, Any]] = list(node.taints)

    @property
    def changed(self) -> bool:
        """Whether labels or taints would change; annotations do not count."""
        return bool(self.labels) or self.taints != list(self.node.taints)

    def remove(self, mark: Mark) -> None:
        """Remove our taint, and the label if it has our value. Other taints keep their order."""
        label, taint = mark.label, mark.taint
        if label and self.node.labels.get(label.key) == label.value:
            self.labels[label.key] = None
        if taint:
            self.taints = [raw for raw in self.taints if not taint.is_same(raw)]

    def patch(self, action: Action, reason: str) -> NodePatch | None:
        """The patch with the observed resourceVersion, or None if it is empty."""
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
