"""Observed nodes and what they should carry -> patches. No difference, no patch."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dynsched.core import keys
from dynsched.core.evidence import Evidence, read_evidence, write_evidence
from dynsched.core.marks import LabelMark, Mark, TaintMark
from dynsched.core.model import Action, Node, NodePatch, Verdict
from dynsched.core.rules import RuleSet


@dataclass(frozen=True, slots=True)
class Observed:
    """How our mark stands on a node. ``conflict``: what of somebody else's holds our place."""

    has_label: bool
    has_taint: bool
    evidence: Evidence | None
    conflict: str | None

    @property
    def marked(self) -> bool:
        """Whether the scheduler sees our mark, or a part of it."""
        return self.has_label or self.has_taint


def observe(node: Node, mark: Mark) -> Observed:
    """Compare one node with the mark."""
    has_label = has_taint = False
    conflict = None
    if mark.label and mark.label.key in node.labels:
        value = node.labels[mark.label.key]
        has_label = value == mark.label.value
        if not has_label:
            conflict = f"label {mark.label.key}={value} is somebody else's"
    if mark.taint:
        has_taint = any(mark.taint.is_same(taint) for taint in node.taints)
        for taint in node.taints:
            if mark.taint.stands_at(taint) and not mark.taint.is_same(taint):
                conflict = f"taint {mark.taint.key}={taint.get('value', '')} is somebody else's"
    return Observed(has_label, has_taint, read_evidence(node), conflict)


def plan(
    nodes: Iterable[Node],
    wanted: Collection[str],
    verdicts: Mapping[str, Verdict],
    rule_set: RuleSet,
) -> list[NodePatch]:
    """The patches after which exactly the ``wanted`` nodes carry the mark.

    A node on which somebody else's label or taint holds our place is never marked; what is ours
    on it is taken back. Planning again on the result gives nothing.
    """
    mark = rule_set.mark
    patches = []
    for node in nodes:
        observed = observe(node, mark)
        if node.name in wanted and observed.conflict is None:
            patch = _put(node, observed, verdicts[node.name], rule_set)
        else:
            patch = _take_back(node, observed, mark, _relief(verdicts.get(node.name), observed))
        if patch is not None:
            patches.append(patch)
    return patches


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
    _take_older(edit, observed.evidence, mark)
    if mark.label and not observed.has_label:
        edit.labels[mark.label.key] = mark.label.value
    if mark.taint and not observed.has_taint:
        edit.taints = [*edit.taints, _raw(mark.taint)]
    if observed.evidence is None or edit.changed:
        edit.annotations[keys.EVIDENCE_ANNOTATION] = write_evidence(mark, verdict, rule_set)
    action = Action.REPAIR if observed.marked else Action.MARK
    return edit.patch(action, describe(verdict, rule_set))


def _take_back(node: Node, observed: Observed, mark: Mark, reason: str) -> NodePatch | None:
    edit = _Edit(node)
    _take_older(edit, observed.evidence, mark)
    if mark.label and observed.has_label:
        edit.labels[mark.label.key] = None
    if mark.taint and observed.has_taint:
        edit.remove_taint(mark.taint)
    if observed.evidence is not None:
        edit.annotations[keys.EVIDENCE_ANNOTATION] = None
    return edit.patch(Action.RELEASE, reason)


def _take_older(edit: _Edit, evidence: Evidence | None, mark: Mark) -> None:
    """Remove what an older configuration put there, as the evidence tells."""
    if evidence is None:
        return
    if evidence.label and evidence.label != mark.label:
        edit.remove_label(evidence.label)
    if evidence.taint and evidence.taint != mark.taint:
        edit.remove_taint(evidence.taint)


def describe(verdict: Verdict, rule_set: RuleSet) -> str:
    """The firing rules in one line: ``node-cpu 91.2 > 80``."""
    parts = [
        f"{rule.name} {'?' if alert.value is None else f'{alert.value:.4g}'} "
        f"{rule.op} {rule.threshold:g}"
        for rule, alert in zip(rule_set.rules, verdict.alerts, strict=True)
        if alert.firing
    ]
    return ", ".join(parts) or "no rule fires"


def _relief(verdict: Verdict | None, observed: Observed) -> str:
    if observed.conflict is not None:
        return observed.conflict
    if verdict is None:
        return "the node is not eligible"
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
        return bool(self.labels) or len(self.taints) != len(self.node.taints)

    def remove_label(self, label: LabelMark) -> None:
        """Remove the label if it still has the value that we put."""
        if self.node.labels.get(label.key) == label.value:
            self.labels[label.key] = None

    def remove_taint(self, taint: TaintMark) -> None:
        """Remove our own taint; all others stay as they are, in their order."""
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
