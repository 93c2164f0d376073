"""What follows from the nodes themselves, without their load: how the mark stands on each, which
may be marked, and under which names and addresses they are known.

Most of it is the same from one tick to the next, so only nodes that changed are looked at again. A
node is replaced and never changed, so that it is enough to compare objects.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np

from dynsched.engine.columns import Bools, Floats, Ints, Roster, filled
from dynsched.engine.guard import Kind, kind_of, why_ineligible
from dynsched.engine.mark_state import MarkState, mark_state
from dynsched.engine.match import NodeIndex, index_nodes
from dynsched.engine.model import Node
from dynsched.rules.rule_set import RuleSet

_T = TypeVar("_T")

_SPARE_KINDS: Final = 2
"""So many kinds for each node are kept, those too that no node is of any more."""


@dataclass(frozen=True, slots=True, eq=False)
class NodeColumns:
    """All arrays have one element for each node of ``roster``, and are never changed."""

    roster: Roster
    applies: Bools
    """Which rule selects which node: shape (rules, nodes)."""
    eligible: Bools
    """Which nodes may be marked, and have nothing that stands in the mark's place."""
    kind: Ints
    kinds: tuple[Kind, ...]
    """The pools, and what keeps pods off the nodes."""
    capacity: Mapping[str, Floats]
    """By resource: what a node can give, in cores or bytes; NaN where that is not known."""

    @property
    def sizes(self) -> Mapping[Kind, int]:
        """How many nodes of each kind may be marked."""
        counts = np.bincount(self.kind[self.eligible], minlength=len(self.kinds))
        return dict(zip(self.kinds, counts.tolist(), strict=True))

    def weights(self, resource: str | None) -> Floats:
        """What each node has of a rule's resource, as the mean of its kind weighs it."""
        if resource is None:
            return filled((len(self.roster),), 1.0)
        capacity = self.capacity[resource]
        return np.where(np.isnan(capacity), 1.0, capacity)

    def updated(
        self,
        roster: Roster,
        changed: Iterable[Node],
        barred: tuple[Collection[str], ...],
        rule_set: RuleSet,
    ) -> NodeColumns:
        """The columns of ``roster``, of whose nodes those that are new are among ``changed``.
        ``barred``: the names of those that must not be marked.
        """
        if len(self.roster):
            places = slice(None) if roster is self.roster else roster.places_in(self.roster)
            applies, eligible = self.applies[:, places].copy(), self.eligible[places].copy()
            kind = self.kind[places].copy()
            capacity = {name: column[places].copy() for name, column in self.capacity.items()}
        else:
            size = len(roster)
            applies = np.zeros((len(self.applies), size), np.bool_)
            eligible, kind = np.zeros(size, np.bool_), np.zeros(size, np.int64)
            capacity = {name: filled((size,), np.nan) for name in self.capacity}
        kinds = {each: number for number, each in enumerate(self.kinds)}
        for node in changed:
            at = roster.places[node.name]
            applies[:, at] = [rule.applies_to(node.labels) for rule in rule_set.rules]
            eligible[at] = not any(node.name in names for names in barred)
            kind[at] = kinds.setdefault(kind_of(node, rule_set.guard), len(kinds))
            for resource, column in capacity.items():
                column[at] = node.allocatable.get(resource, np.nan)
        return NodeColumns(roster, applies, eligible, kind, tuple(kinds), capacity)


@dataclass(frozen=True, slots=True)
class Inventory:
    """Of all nodes at one moment. All mappings are by node name."""

    rule_set: RuleSet
    nodes: Mapping[str, Node]
    states: Mapping[str, MarkState]
    """How the mark stands on each."""
    ineligible: Mapping[str, str]
    """Why a node must not be marked at all; without those that may be."""
    conflicts: Mapping[str, str]
    """Which label or taint of somebody else stands in the mark's place; without other nodes."""
    index: NodeIndex
    columns: NodeColumns
    marked: frozenset[str]
    """The nodes that carry our mark, or a part of it, or the mark of an older configuration."""
    touched: frozenset[str]
    """The nodes that carry anything of ours."""

    def may_mark(self, name: str) -> bool:
        return name not in self.ineligible and name not in self.conflicts

    @property
    def marked_states(self) -> list[MarkState]:
        return [self.states[name] for name in self.marked]


def take_inventory(
    nodes: Mapping[str, Node], rule_set: RuleSet, before: Inventory | None = None
) -> Inventory:
    """Look at all nodes; from ``before``, the last one by the same rules, what still holds is
    taken over.
    """
    if (
        before is None
        or before.rule_set is not rule_set
        # Kinds come and go, as nodes do.
        or len(before.columns.kinds) > _SPARE_KINDS * (len(nodes) + 1)
    ):
        before = _nothing(rule_set)
    if before.nodes is nodes:
        return before
    known, mark = before.nodes, rule_set.mark
    changed = [node for name, node in nodes.items() if known.get(name) is not node]
    olds = [known.get(node.name) for node in changed]
    has_gone = len(nodes) < len(known) + olds.count(None)
    gone = [name for name in known if name not in nodes] if has_gone else []
    states = {node.name: mark_state(node, mark) for node in changed}
    reasons = {node.name: why_ineligible(node, rule_set.nodes) for node in changed}
    ineligible = {name: why for name, why in reasons.items() if why is not None}
    conflicts = {name: state.conflict for name, state in states.items() if state.conflict}
    past = frozenset(gone).union(states)  # of which nothing is taken over
    both = list(zip(olds, changed, strict=True))
    is_placed_otherwise = bool(gone) or any(old is None or old.uid != new.uid for old, new in both)
    index = before.index
    if is_placed_otherwise or any(old and old.known_as != new.known_as for old, new in both):
        index = index_nodes(nodes.values(), None if is_placed_otherwise else index.roster)
    marked = [name for name, state in states.items() if state.marked]
    touched = [name for name, state in states.items() if state.touched]
    barred = (ineligible, conflicts)
    return Inventory(
        rule_set=rule_set,
        nodes=nodes,
        states=_merged(before.states, frozenset(gone), states),
        ineligible=_merged(before.ineligible, past, ineligible),
        conflicts=_merged(before.conflicts, past, conflicts),
        index=index,
        columns=before.columns.updated(index.roster, changed, barred, rule_set),
        marked=(before.marked - past).union(marked),
        touched=(before.touched - past).union(touched),
    )


def _merged(
    before: Mapping[str, _T], past: frozenset[str], found: Mapping[str, _T]
) -> Mapping[str, _T]:
    """``before`` without ``past``, and with what was found."""
    if not past and not found:
        return before
    kept = dict(before)
    for name in past:
        kept.pop(name, None)
    kept.update(found)
    return kept


def _nothing(rule_set: RuleSet) -> Inventory:
    none: frozenset[str] = frozenset()
    index = index_nodes(())
    columns = NodeColumns(
        index.roster,
        applies=np.zeros((len(rule_set.rules), 0), np.bool_),
        eligible=np.zeros(0, np.bool_),
        kind=np.zeros(0, np.int64),
        kinds=(),
        capacity={name: filled((0,), np.nan) for name in ("cpu", "memory")},
    )
    return Inventory(rule_set, {}, {}, {}, {}, index, columns, none, none)
