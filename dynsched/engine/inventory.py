"""What follows from the nodes themselves, without their load: how the mark stands on each, which
may be marked, and under which names and addresses they are known.

Most of it is the same from one tick to the next, so only nodes that changed are looked at again. A
node is replaced and never changed, so that it is enough to compare objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np

from dynsched.engine.columns import Bools, Floats, Ints, Roster, filled
from dynsched.engine.guard import Kind, kind_of, why_ineligible
from dynsched.engine.mark_state import MarkState, mark_state
from dynsched.engine.match import NodeIndex, index_nodes
from dynsched.engine.model import Node
from dynsched.rules.labels import Mark
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
    """Index into ``kinds``."""
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
        self, roster: Roster, changed: Iterable[Node], eligible: Mapping[str, Node], rules: RuleSet
    ) -> NodeColumns:
        """The columns of ``roster``, of whose nodes those that are new are among ``changed``.
        ``eligible``: by name, those that are.
        """
        places = slice(None) if roster is self.roster else roster.places_in(self.roster)
        found = self._taken(roster, places)
        kinds = {each: number for number, each in enumerate(found.kinds)}
        for node in changed:
            at = roster.places[node.name]
            found.applies[:, at] = [rule.applies_to(node.labels) for rule in rules.rules]
            found.eligible[at] = node.name in eligible
            found.kind[at] = kinds.setdefault(kind_of(node, rules.guard), len(kinds))
            for resource, column in found.capacity.items():
                column[at] = node.allocatable.get(resource, np.nan)
        return NodeColumns(
            roster,
            found.applies,
            found.eligible,
            found.kind,
            tuple(kinds),
            found.capacity,
        )

    def _taken(self, roster: Roster, places: Ints | slice) -> NodeColumns:
        """Copies, in the order of ``places``."""
        if not len(self.roster):
            return no_columns(roster, len(self.applies))
        kind, kinds = self.kind[places].copy(), self.kinds
        if len(kinds) > _SPARE_KINDS * (len(roster) + 1):  # kinds come and go, as nodes do
            numbers, kind = np.unique(kind, return_inverse=True)
            kinds = tuple([kinds[number] for number in numbers.tolist()])
        return NodeColumns(
            roster,
            self.applies[:, places].copy(),
            self.eligible[places].copy(),
            kind,
            kinds,
            {name: column[places].copy() for name, column in self.capacity.items()},
        )


def no_columns(roster: Roster, rules: int) -> NodeColumns:
    """Of nodes of which nothing is known yet."""
    size = len(roster)
    return NodeColumns(
        roster,
        np.zeros((rules, size), np.bool_),
        np.zeros(size, np.bool_),
        np.zeros(size, np.int64),
        (),
        {name: filled((size,), np.nan) for name in ("cpu", "memory")},
    )


@dataclass(frozen=True, slots=True)
class Survey:
    """Of all nodes at one moment. All mappings are by node name."""

    rule_set: RuleSet
    """The rules that say what the mark is, and which nodes may carry it."""
    mark: Mark
    """The mark of these rules."""
    nodes: Mapping[str, Node]
    """All nodes."""
    states: Mapping[str, MarkState]
    """How the mark stands on each."""
    ineligible: Mapping[str, str]
    """Why a node must not be marked at all; without those that may be."""
    index: NodeIndex
    """By name and address."""
    columns: NodeColumns
    """What the evaluation needs of them."""
    conflicts: Mapping[str, str]
    """Which label or taint of somebody else stands in the mark's place; without other nodes."""
    eligible: Mapping[str, Node]
    """The nodes that may be marked, and on which nothing stands in the mark's place."""
    marked: frozenset[str]
    """The nodes that carry our mark, or a part of it."""
    touched: frozenset[str]
    """The nodes that carry anything of ours."""


def survey(nodes: Mapping[str, Node], rule_set: RuleSet, before: Survey | None = None) -> Survey:
    """Look at all nodes; from ``before``, the last one by the same rules, what still holds is
    taken over.
    """
    if before is None or before.rule_set is not rule_set:
        before = _nothing(rule_set)
    if before.nodes is nodes:
        return before
    known = before.nodes
    changed = [node for name, node in nodes.items() if known.get(name) is not node]
    olds = [known.get(node.name) for node in changed]
    has_gone = len(nodes) < len(known) + olds.count(None)
    gone = [name for name in known if name not in nodes] if has_gone else []
    states = {node.name: mark_state(node, before.mark) for node in changed}
    reasons = {node.name: why_ineligible(node, rule_set.nodes) for node in changed}
    ineligible = {name: why for name, why in reasons.items() if why is not None}
    conflicts = {name: state.conflict for name, state in states.items() if state.conflict}
    clear = {
        node.name: node
        for node in changed
        if node.name not in conflicts and node.name not in ineligible
    }
    past = frozenset(gone).union(states)  # of which nothing is taken over
    eligible = _merged(before.eligible, past, clear)
    is_placed_otherwise = bool(gone) or any(
        old is None or old.uid != node.uid for old, node in zip(olds, changed, strict=True)
    )
    is_known_otherwise = is_placed_otherwise or any(
        old is None or old.known_as != node.known_as
        for old, node in zip(olds, changed, strict=True)
    )
    index = before.index
    if is_known_otherwise:
        index = index_nodes(nodes.values(), None if is_placed_otherwise else index.roster)
    return Survey(
        rule_set=rule_set,
        mark=before.mark,
        nodes=nodes,
        states=_merged(before.states, frozenset(gone), states),
        ineligible=_merged(before.ineligible, past, ineligible),
        index=index,
        columns=before.columns.updated(index.roster, changed, eligible, rule_set),
        conflicts=_merged(before.conflicts, past, conflicts),
        eligible=eligible,
        marked=(before.marked - past).union(
            [name for name, state in states.items() if state.marked]
        ),
        touched=(before.touched - past).union(
            [name for name, state in states.items() if state.touched]
        ),
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


def _nothing(rule_set: RuleSet) -> Survey:
    none: frozenset[str] = frozenset()
    index = index_nodes(())
    columns = no_columns(index.roster, len(rule_set.rules))
    return Survey(rule_set, rule_set.mark, {}, {}, {}, index, columns, {}, {}, none, none)
