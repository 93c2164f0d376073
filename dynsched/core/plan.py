"""Observed nodes and what they should carry -> patches. No difference, no patch."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dynsched.core import keys
from dynsched.core.evidence import Evidence, read_evidence, write_evidence
from dynsched.core.guard import why_ineligible
from dynsched.core.marks import LabelMark, Mark, TaintMark
from dynsched.core.model import Action, Alert, Node, NodePatch, Verdict
from dynsched.core.numbers import format_threshold, format_value
from dynsched.core.rules import Rule, RuleSet


@dataclass(frozen=True, slots=True)
class Observed:
    """How our mark stands on a node. ``conflict``: what of somebody else's holds our place.
    ``older``: what an older configuration put there, as the evidence tells, and is there still.
    ``unproven``: a label that the evidence names, and that nothing shows to be ours.
    """

    has_label: bool
    has_taint: bool
    evidence: Evidence | None
    conflict: str | None
    older: Mark
    unproven: LabelMark | None = None

    @property
    def marked(self) -> bool:
        """Whether the node carries our mark, a part of it, or one of an older configuration."""
        older = self.older.label is not None or self.older.taint is not None
        return self.has_label or self.has_taint or older


def carried(observed: Observed, mark: Mark) -> tuple[str, ...]:
    """What of ours is on the node, each as ``label status=presure``; of ``mark`` first."""
    present = (
        f"label {mark.label}" if observed.has_label else None,
        f"taint {mark.taint}" if observed.has_taint else None,
        f"label {observed.older.label}" if observed.older.label else None,
        f"taint {observed.older.taint}" if observed.older.taint else None,
    )
    return tuple(part for part in present if part is not None)


def observe(node: Node, mark: Mark) -> Observed:
    """Compare one node with the mark."""
    evidence = read_evidence(node)
    older, unproven = _older(node, evidence, mark)
    has_label = has_taint = False
    conflict = None
    if mark.label and mark.label.key in node.labels:
        value = node.labels[mark.label.key]
        has_label = value == mark.label.value
        if not has_label and not (older.label and older.label.key == mark.label.key):
            conflict = f"label {mark.label.key}={value} is somebody else's"
    if mark.taint:
        has_taint = any(mark.taint.is_same(taint) for taint in node.taints)
        for taint in node.taints:
            ours = mark.taint.is_same(taint) or (older.taint and older.taint.is_same(taint))
            if mark.taint.stands_at(taint) and not ours:
                conflict = f"taint {mark.taint.key}={taint.get('value', '')} is somebody else's"
    return Observed(has_label, has_taint, evidence, conflict, older, unproven)


def _older(node: Node, evidence: Evidence | None, mark: Mark) -> tuple[Mark, LabelMark | None]:
    """What an older configuration put; and a label that might have been put by it, or by others."""
    label = evidence.label if evidence else None
    unproven = None
    if label and (label == mark.label or node.labels.get(label.key) != label.value):
        label = None
    elif label and str(label) != keys.DEFAULT_LABEL and label.key not in node.owned:
        # Whoever may write annotations can name any label in one. Who wrote a label's value is in
        # the API server's own record. The default mark is ours whoever wrote it: the first
        # project did, and those marks were taken over.
        label, unproven = None, label
    # A taint needs no such proof: by its key it is ours.
    taint = evidence.taint if evidence else None
    if taint and (taint == mark.taint or not any(map(taint.is_same, node.taints))):
        taint = None
    return Mark(label, taint), unproven


def plan(
    nodes: Iterable[Node],
    wanted: Collection[str],
    verdicts: Mapping[str, Verdict],
    rule_set: RuleSet,
) -> list[NodePatch]:
    """The patches after which exactly the ``wanted`` nodes carry the mark.

    A node on which somebody else's label or taint holds our place is never marked; what is ours
    on it is taken back. One that is wanted only because its release has to wait is not marked
    anew, should its mark be gone. Planning again on the result gives nothing.
    """
    mark = rule_set.mark
    planned = (plan_node(node, observe(node, mark), wanted, verdicts, rule_set) for node in nodes)
    return [patch for patch in planned if patch is not None]


def plan_node(
    node: Node,
    observed: Observed,
    wanted: Collection[str],
    verdicts: Mapping[str, Verdict],
    rule_set: RuleSet,
) -> NodePatch | None:
    """As ``plan``, for one node that was observed already; None when nothing is due on it."""
    stays = node.name in wanted and (observed.marked or verdicts[node.name].pressured)
    if stays and observed.conflict is None:
        return _put(node, observed, verdicts[node.name], rule_set)
    ineligible = why_ineligible(node, rule_set.nodes)
    reason = _relief(verdicts.get(node.name), observed, ineligible)
    return _take_back(node, observed, rule_set.mark, reason)


def plan_prune(nodes: Iterable[Node], mark: Mark) -> list[NodePatch]:
    """The patches that take back all that we ever put on these nodes, and nothing else."""
    planned = (
        _take_back(node, observe(node, mark), mark, "everything of dynsched's is removed")
        for node in nodes
    )
    return [patch for patch in planned if patch is not None]


def _put(node: Node, observed: Observed, verdict: Verdict, rule_set: RuleSet) -> NodePatch | None:
    mark = rule_set.mark
    edit = _Edit(node)
    edit.take_back(observed.older)
    if mark.label and not observed.has_label:
        edit.labels[mark.label.key] = mark.label.value
    if mark.taint and not observed.has_taint:
        edit.taints = [*edit.taints, _raw(mark.taint)]
    evidence = observed.evidence
    if evidence is None or edit.changed or Mark(evidence.label, evidence.taint) != mark:
        edit.annotations[keys.EVIDENCE_ANNOTATION] = write_evidence(mark, verdict, rule_set)
    action = Action.REPAIR if observed.marked else Action.MARK
    return edit.patch(action, _with_rest(describe(verdict, rule_set), observed))


def _take_back(node: Node, observed: Observed, mark: Mark, reason: str) -> NodePatch | None:
    edit = _Edit(node)
    edit.take_back(observed.older)
    edit.take_back(mark)
    if observed.evidence is not None:
        edit.annotations[keys.EVIDENCE_ANNOTATION] = None
    return edit.patch(Action.RELEASE, _with_rest(reason, observed))


def _with_rest(reason: str, observed: Observed) -> str:
    if observed.unproven is None:
        return reason
    return f"{reason}; label {observed.unproven} stays: nothing shows that dynsched put it there"


def is_done(patch: NodePatch, node: Node) -> bool:
    """Whether the node is as the patch would make it."""
    metadata = patch.body["metadata"]
    taints = patch.body["spec"]["taints"] if "spec" in patch.body else node.taints
    return (
        _has(node.labels, metadata.get("labels", {}))
        and _has(node.annotations, metadata.get("annotations", {}))
        and list(taints or ()) == list(node.taints)
    )


def _has(present: Mapping[str, str], changes: Mapping[str, str | None]) -> bool:
    return all(present.get(key) == value for key, value in changes.items())


def describe(verdict: Verdict, rule_set: RuleSet) -> str:
    """The firing rules in one line: ``node-cpu 91.2 > 80``, or ``node-cpu was > 80, is 75``."""
    parts = [
        _reason(rule, alert)
        for rule, alert in zip(rule_set.rules, verdict.alerts, strict=True)
        if alert.firing
    ]
    return ", ".join(parts) or "no rule fires"


def _reason(rule: Rule, alert: Alert) -> str:
    over, value = f"{rule.op} {format_threshold(rule.threshold)}", format_value(alert.value)
    if alert.value is None or rule.breached(alert.value):
        return f"{rule.name} {value} {over}"
    return f"{rule.name} was {over}, is {value}"


def _relief(verdict: Verdict | None, observed: Observed, ineligible: str | None) -> str:
    if observed.conflict is not None:
        return observed.conflict
    if ineligible is not None:
        return f"the node is not eligible: {ineligible}"
    if verdict is None:
        return "nothing is known of the node"
    if verdict.pressured:
        return "another node is hotter and the number of marks is limited"
    return "no rule fires any more"


def _raw(taint: TaintMark) -> dict[str, str]:
    return {"key": taint.key, "value": taint.value, "effect": taint.effect}


class _Edit:
    """A merge patch in the making. Only our own keys go in; None removes a key."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.labels: dict[str, str | None] = {}
        self.annotations: dict[str, str | None] = {}
        self.taints: list[Mapping[str, Any]] = list(node.taints)

    @property
    def changed(self) -> bool:
        """Whether a label or a taint differs."""
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
        """The patch, or None when nothing differs."""
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
