"""How the mark stands on a node: which parts of it, whose they are, what stands in their place, and
the evidence beside it.

The evidence is the annotation ``dynsched.io/pressure``: compact JSON, written with the mark. It
says to a person why the node is marked, and to us what was put on it and is to be taken back.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import isfinite
from typing import Any, Final, NamedTuple, TypeVar

from msgspec import Struct

from dynsched.engine.model import Node
from dynsched.engine.nodes.eligibility import why_ineligible
from dynsched.engine.wording import Reason
from dynsched.rules import keys
from dynsched.rules.labels import LabelMark, Mark, TaintMark, parse_label, parse_taint
from dynsched.rules.sections import NodeRules
from dynsched.util.formatting import as_mapping, as_mappings, parse_time

_T = TypeVar("_T")

_KEPT: Final = 16_384
"""Texts that are remembered with what they say: each marked node's is read at every tick."""


class Fired(NamedTuple):
    """A rule that fired; ``since``: in Unix seconds. None for what is not said."""

    rule: str
    since: float | None = None
    value: float | None = None
    threshold: float | None = None


@dataclass(frozen=True, slots=True)
class Evidence:
    """The annotation beside a mark, as it was read; ``since`` is in Unix seconds."""

    label: LabelMark | None
    taint: TaintMark | None
    fired: tuple[Fired, ...]
    since: float | None = None

    @property
    def rules(self) -> tuple[str, ...]:
        """The names of the rules that fired when the mark was written."""
        return tuple(each.rule for each in self.fired)

    def since_of(self, rule: str) -> float | None:
        """Since when a rule fires: one that is not named, since the node was marked."""
        return next((each.since for each in self.fired if each.rule == rule), self.since)


def read_evidence(node: Node) -> Evidence | None:
    """None when it has none. What cannot be read counts as not said."""
    text = node.annotations.get(keys.EVIDENCE_ANNOTATION)
    return None if text is None else _evidence(text)


@lru_cache(maxsize=_KEPT)
def _evidence(text: str) -> Evidence:
    try:
        record = as_mapping(json.loads(text, parse_int=float))  # others may write 400 digits
    except (ValueError, RecursionError):
        record = {}
    return Evidence(
        _parsed(parse_label, record.get("label")),
        _parsed(parse_taint, record.get("taint")),
        tuple(filter(None, map(_fired, as_mappings(record.get("rules"))))),
        parse_time(record.get("since")),
    )


def _fired(told: Mapping[str, Any]) -> Fired | None:
    rule = told.get("rule")
    if not isinstance(rule, str):
        return None
    numbers = (told.get("value"), told.get("threshold"))
    # JSON as Python reads it has NaN, which no other program reads where it is told again.
    known = (each if isinstance(each, float) and isfinite(each) else None for each in numbers)
    return Fired(rule, parse_time(told.get("since")), *known)


def fired_rules(text: str) -> tuple[str, ...]:
    """The names of the rules in an annotation's text; none in a text that is not ours."""
    return _evidence(text).rules


def _parsed(parse: Callable[[str], _T], text: Any) -> _T | None:
    # Parsed by the same rules as a configured mark: a forged annotation cannot make us
    # remove a label or a taint that we would never have written.
    try:
        return parse(text)
    except (TypeError, AttributeError, ValueError):
        return None


class MarkState(Struct, frozen=True, gc=False):
    """How the mark stands on one node."""

    node: Node
    has_label: bool
    has_taint: bool
    evidence: Evidence | None
    conflict: str | None
    """Which label or taint of somebody else has the mark's key and another value."""
    older: Mark
    """What an older configuration put there, as the evidence says, and what is still there."""
    unproven: LabelMark | None
    """A label that the evidence names, and that nothing shows to be ours."""
    ineligible: str | None
    """Why the node must not be marked at all."""
    marked: bool
    """The node carries our mark, a part of it, or one of an older configuration."""

    @property
    def may_mark(self) -> bool:
        """Neither the rules nor somebody else's label or taint are against it."""
        return self.ineligible is None and self.conflict is None

    @property
    def touched(self) -> bool:
        """Whether anything on the node is ours; on all others nothing can be taken back."""
        return self.evidence is not None or self.marked


def carried(state: MarkState, mark: Mark) -> tuple[str, ...]:
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
    evidence = read_evidence(node)
    older, unproven = _older(node, evidence, mark)
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
            if mark.taint.stands_at(taint) and not ours:
                theirs = f"taint {mark.taint.key}={taint.get('value', '')}"
                conflict = Reason("conflict", theirs)
    ineligible = None if rules is None else why_ineligible(node, rules)
    marked = has_label or has_taint or older.label is not None or older.taint is not None
    return MarkState(
        node=node,
        has_label=has_label,
        has_taint=has_taint,
        evidence=evidence,
        conflict=conflict,
        older=older,
        unproven=unproven,
        ineligible=ineligible,
        marked=marked,
    )


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
