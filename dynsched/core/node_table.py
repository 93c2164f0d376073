"""The nodes of one evaluation, with all values derived from them except load."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from msgspec import Struct

from dynsched.core.marks import MarkState, mark_state
from dynsched.core.nodes import (
    AddressLookup,
    Node,
    NodeGroup,
    Taint,
    group_of,
    is_closed,
    is_ready,
)
from dynsched.rules.rule_set import Rule, RuleSet


class NodeEntry(Struct, frozen=True, gc=False):
    """A node and all values derived from it except load."""

    node: Node
    mark: MarkState
    group: NodeGroup
    rules: tuple[Rule, ...]
    """The rules that apply to the node."""


@dataclass(frozen=True)
class NodeTable:
    """The nodes of one evaluation, keyed by name. Nodes are immutable, so the entry of an unchanged
    node is reused in the next evaluation.
    """

    rule_set: RuleSet
    entries: Mapping[str, NodeEntry]
    lookup: AddressLookup

    @classmethod
    def of(
        cls, nodes: Mapping[str, Node], rule_set: RuleSet, before: NodeTable | None = None
    ) -> NodeTable:
        """Build the table. Entries of the last one, ``before``, are reused under the same rules."""
        known = before.entries if before is not None and before.rule_set is rule_set else {}
        entries = {}
        for name, node in nodes.items():
            entry = known.get(name)
            if entry is None or entry.node is not node:
                entry = _entry(node, rule_set)
            entries[name] = entry
        if before is not None and _have_same_lookup(entries, before.entries):
            return cls(rule_set, entries, before.lookup)
        return cls(rule_set, entries, AddressLookup(nodes.values()))

    @cached_property
    def nodes(self) -> Mapping[str, Node]:
        """Keyed by node name."""
        return {name: entry.node for name, entry in self.entries.items()}

    @cached_property
    def groups(self) -> Mapping[str, NodeGroup]:
        """Keyed by node name."""
        return {name: entry.group for name, entry in self.entries.items()}

    @cached_property
    def marked(self) -> frozenset[str]:
        """Names of the nodes that carry the mark, or a part of it."""
        return frozenset(name for name, entry in self.entries.items() if entry.mark.marked)

    @cached_property
    def conflicts(self) -> Mapping[str, str]:
        """Per node name, the label or taint of someone else in the place of the mark."""
        marks = ((name, entry.mark.conflict) for name, entry in self.entries.items())
        return {name: conflict for name, conflict in marks if conflict is not None}

    @cached_property
    def pool_sizes(self) -> Counter[str]:
        """Number of nodes per pool that may be marked."""
        return Counter(each.group.pool for each in self.entries.values() if each.mark.may_mark)

    @cached_property
    def open_sizes(self) -> Counter[str]:
        """Number of nodes per pool that may be marked and accept pods now (are not closed)."""
        return Counter(
            each.group.pool
            for each in self.entries.values()
            if each.mark.may_mark and not is_closed(each.node)
        )

    @cached_property
    def pool_taints(self) -> Mapping[str, frozenset[Taint]]:
        """Per pool, the hard taints of most of its nodes, which its pods are assumed to tolerate.

        If all nodes had to have a taint, one node without it would close all others.
        """
        groups = Counter(group for group in self.groups.values() if group.pool)
        sizes, carriers = Counter[str](), Counter[tuple[str, Taint]]()
        for group, count in groups.items():
            sizes[group.pool] += count
            for taint in group.taints:
                carriers[group.pool, taint] += count
        return {
            pool: frozenset(
                taint for (of, taint), count in carriers.items() if of == pool and 2 * count > size
            )
            for pool, size in sizes.items()
        }


def _have_same_lookup(entries: Mapping[str, NodeEntry], before: Mapping[str, NodeEntry]) -> bool:
    """Whether an `AddressLookup` gives the same results for both."""
    return entries.keys() == before.keys() and all(
        entry is (old := before[name])
        or (entry.node.known_as == old.node.known_as and is_ready(entry.node) is is_ready(old.node))
        for name, entry in entries.items()
    )


def _entry(node: Node, rule_set: RuleSet) -> NodeEntry:
    return NodeEntry(
        node,
        mark_state(node, rule_set.mark, rule_set.nodes),
        group_of(node, rule_set.guard),
        tuple(rule for rule in rule_set.rules if rule.applies_to(node.labels)),
    )
