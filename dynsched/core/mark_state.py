"""Which parts of the mark a node carries, whose they are, and what stands in their place.

Computed once for each node and tick; `plan`, `decide` and `adoption` go by it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dynsched.core import keys
from dynsched.core.evidence import Evidence, read_evidence
from dynsched.core.marks import LabelMark, Mark
from dynsched.core.model import Node


@dataclass(frozen=True, slots=True)
class MarkState:
    """Which parts of the mark are on a node, and whose they are."""

    node: Node
    """The node as it was looked at."""
    has_label: bool
    """The configured label is there, with our value."""
    has_taint: bool
    """The configured taint is there."""
    evidence: Evidence | None
    """What our annotation says; None where the node has none."""
    conflict: str | None
    """Which label or taint of somebody else has the mark's key and another value; else None."""
    older: Mark
    """What an older configuration put there, as the evidence says, and what is still there."""
    unproven: LabelMark | None = None
    """A label that the evidence names, and that nothing shows to be ours."""

    @property
    def marked(self) -> bool:
        """Whether the node carries our mark, a part of it, or one of an older configuration."""
        older = self.older.label is not None or self.older.taint is not None
        return self.has_label or self.has_taint or older


def carried(state: MarkState, mark: Mark) -> tuple[str, ...]:
    """What of ours is on the node, each as ``label status=presure``; of ``mark`` first."""
    present = (
        f"label {mark.label}" if state.has_label else None,
        f"taint {mark.taint}" if state.has_taint else None,
        f"label {state.older.label}" if state.older.label else None,
        f"taint {state.older.taint}" if state.older.taint else None,
    )
    return tuple(part for part in present if part is not None)


def mark_state(node: Node, mark: Mark) -> MarkState:
    """Compare one node with the mark."""
    evidence = read_evidence(node)
    older, unproven = _older(node, evidence, mark)
    has_label = has_taint = False
    conflict = None
    if mark.label and mark.label.key in node.labels:
        value = node.labels[mark.label.key]
        has_label = value == mark.label.value
        if not has_label and not (older.label and older.label.key == mark.label.key):
            conflict = f"label {mark.label.key}={value} was set by somebody else"
    if mark.taint:
        has_taint = any(mark.taint.is_same(taint) for taint in node.taints)
        for taint in node.taints:
            ours = mark.taint.is_same(taint) or (older.taint and older.taint.is_same(taint))
            if mark.taint.stands_at(taint) and not ours:
                conflict = (
                    f"taint {mark.taint.key}={taint.get('value', '')} was set by somebody else"
                )
    return MarkState(node, has_label, has_taint, evidence, conflict, older, unproven)


def _older(node: Node, evidence: Evidence | None, mark: Mark) -> tuple[Mark, LabelMark | None]:
    """What an older configuration put; and a label that might have been put by it, or by others."""
    label = evidence.label if evidence else None
    unproven = None
    if label and (label == mark.label or node.labels.get(label.key) != label.value):
        label = None
    elif label and str(label) != keys.DEFAULT_LABEL and label.key not in node.owned:
        # Any client that may write annotations can name any label in one, so the annotation is no
        # proof. managedFields, which the API server keeps, records who wrote a label's value.
        # The default mark needs no proof: dynamicScheduler set it, and its marks are taken over.
        label, unproven = None, label
    # A taint needs no such proof: by its key it is ours.
    taint = evidence.taint if evidence else None
    if taint and (taint == mark.taint or not any(map(taint.is_same, node.taints))):
        taint = None
    return Mark(label, taint), unproven


def mark_states(nodes: Iterable[Node], mark: Mark) -> dict[str, MarkState]:
    """`mark_state` of each node, by name."""
    return {node.name: mark_state(node, mark) for node in nodes}
