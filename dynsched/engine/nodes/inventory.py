"""What follows from the nodes themselves, without their load: how the mark stands on each, which
may be marked, and under which names and addresses they are known.

Most of it is the same from one tick to the next, so only nodes that changed are read again. A node
is replaced and never changed, so that it is enough to compare objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from dynsched.engine.columns import Bools, Floats, Ints, Roster
from dynsched.engine.limits import Limits
from dynsched.engine.model import Node
from dynsched.engine.nodes.eligibility import NodeKind, kind_of
from dynsched.engine.nodes.mark_state import MarkState, mark_state
from dynsched.engine.nodes.match import NodeIndex, index_nodes
from dynsched.rules.rule_set import RuleSet

_SPARE_KINDS: Final = 2
"""So many kinds for each node are kept, those too that no node is of any more."""


@dataclass(frozen=True, slots=True, eq=False)
class NodeColumns:
    """All arrays have one element for each node of ``roster``, and are never changed."""

    roster: Roster
    applies: Bools
    """Which rule selects which node: shape (rules, nodes)."""
    may_mark: Bools
    """Which nodes may be marked (`MarkState.may_mark`)."""
    kind: Ints
    kinds: tuple[NodeKind, ...]
    """The pools, and what keeps pods off the nodes."""
    capacity: Mapping[str, Floats]
    """By resource: what a node can give, in cores or bytes; NaN where that is not known."""

    def kind_means(self, loads: Floats) -> Floats:
        """For each node, the mean of the loads that are known of its kind."""
        known, number = ~np.isnan(loads), len(self.kinds)
        counts = np.bincount(self.kind[known], minlength=number)
        means = np.bincount(self.kind[known], loads[known], number) / np.maximum(1, counts)
        return np.asarray(means[self.kind])

    def updated(
        self, roster: Roster, changed: Iterable[MarkState], rule_set: RuleSet
    ) -> NodeColumns:
        """The columns of ``roster``, of whose nodes those that are new are among ``changed``."""
        if len(self.roster):
            indices = slice(None) if roster is self.roster else roster.indices_in(self.roster)
            applies, may_mark = self.applies[:, indices].copy(), self.may_mark[indices].copy()
            kind = self.kind[indices].copy()
            capacity = {name: column[indices].copy() for name, column in self.capacity.items()}
        else:
            size = len(roster)
            applies = np.zeros((len(self.applies), size), np.bool_)
            may_mark, kind = np.zeros(size, np.bool_), np.zeros(size, np.int64)
            capacity = {name: np.full(size, np.nan) for name in self.capacity}
        kinds = {each: number for number, each in enumerate(self.kinds)}
        for state in changed:
            node = state.node
            at = roster.indices[node.name]
            applies[:, at] = [rule.applies_to(node.labels) for rule in rule_set.rules]
            may_mark[at] = state.may_mark
            kind[at] = kinds.setdefault(kind_of(node, rule_set.guard), len(kinds))
            for resource, column in capacity.items():
                column[at] = node.allocatable.get(resource, np.nan)
        return NodeColumns(roster, applies, may_mark, kind, tuple(kinds), capacity)


@dataclass(frozen=True, slots=True)
class Inventory:
    """Of all nodes at one moment. All mappings are by node name."""

    rule_set: RuleSet
    limits: Limits = field(compare=False)
    nodes: Mapping[str, Node]
    states: Mapping[str, MarkState]
    index: NodeIndex
    columns: NodeColumns
    ineligible: Mapping[str, str]
    """Why a node must not be marked at all; without those that may be."""
    conflicts: Mapping[str, str]
    """Which label or taint of somebody else stands in the mark's place; without other nodes."""
    marked: frozenset[str]
    touched: frozenset[str]

    @property
    def marked_states(self) -> list[MarkState]:
        """Of the nodes that carry the mark, in no order."""
        return [self.states[name] for name in self.marked]


def take_inventory(
    nodes: Mapping[str, Node], rule_set: RuleSet, before: Inventory | None = None
) -> Inventory:
    """From ``before``, the last one by the same rules, what still holds is taken over."""
    if (
        before is None
        or before.rule_set is not rule_set
        # Kinds come and go, as nodes do.
        or len(before.columns.kinds) > _SPARE_KINDS * (len(nodes) + 1)
    ):
        before = _nothing(rule_set)
    if before.nodes is nodes:
        return before
    known = before.nodes
    new = [node for name, node in nodes.items() if known.get(name) is not node]
    olds = [known.get(node.name) for node in new]
    changed = [mark_state(node, rule_set.mark, rule_set.nodes) for node in new]
    states = {**before.states, **{state.node.name: state for state in changed}}
    if len(states) > len(nodes):
        states = {name: states[name] for name in nodes}
    index, both = before.index, list(zip(olds, new, strict=True))
    if len(nodes) != len(known) or any(old is None or old.uid != node.uid for old, node in both):
        index = index_nodes(nodes.values())
    elif any(old and old.known_as != node.known_as for old, node in both):
        index = index_nodes(nodes.values(), index.roster)
    told = [state for state in states.values() if state.touched or not state.may_mark]
    return Inventory(
        rule_set=rule_set,
        limits=before.limits,
        nodes=nodes,
        states=states,
        index=index,
        columns=before.columns.updated(index.roster, changed, rule_set),
        ineligible={each.node.name: each.ineligible for each in told if each.ineligible},
        conflicts={each.node.name: each.conflict for each in told if each.conflict},
        marked=frozenset(each.node.name for each in told if each.marked),
        touched=frozenset(each.node.name for each in told if each.touched),
    )


def _nothing(rule_set: RuleSet) -> Inventory:
    index = index_nodes(())
    columns = NodeColumns(
        index.roster,
        applies=np.zeros((len(rule_set.rules), 0), np.bool_),
        may_mark=np.zeros(0, np.bool_),
        kind=np.zeros(0, np.int64),
        kinds=(),
        capacity={name: np.zeros(0) for name in ("cpu", "memory")},
    )
    limits = Limits.of(rule_set.rules, rule_set)
    return Inventory(rule_set, limits, {}, {}, index, columns, {}, {}, frozenset(), frozenset())
