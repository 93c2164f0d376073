"""What follows from the nodes themselves, without their load: how the mark stands on each, which
may be marked, and under which names and addresses they are known.

Most of it is the same from one tick to the next, so only nodes that changed are looked at again. A
node is replaced and never changed, so that it is enough to compare objects.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dynsched.core.guard import why_ineligible
from dynsched.core.labels import Mark
from dynsched.core.mark_state import MarkState, mark_state
from dynsched.core.match import NodeIndex, index_nodes
from dynsched.core.model import Node
from dynsched.core.rules import RuleSet


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
    """How the mark stands on each, in the order of ``nodes``."""
    ineligible: Mapping[str, str]
    """Why a node must not be marked at all; without those that may be."""
    index: NodeIndex
    """By name and address."""
    conflicts: Mapping[str, str]
    """Which label or taint of somebody else stands in the mark's place; without other nodes."""
    eligible: Mapping[str, Node]
    """The nodes that may be marked, and on which nothing stands in the mark's place."""
    marked: frozenset[str]
    """The nodes that carry our mark, or a part of it."""


def survey(nodes: Mapping[str, Node], rule_set: RuleSet, before: Survey | None = None) -> Survey:
    """Look at all nodes; from ``before``, the last one by the same rules, what still holds is
    taken over.
    """
    if before is None or before.rule_set is not rule_set:
        before = _nothing(rule_set)
    if before.nodes is nodes:
        return before
    mark, known = before.mark, before.nodes
    states: dict[str, MarkState] = {}
    ineligible: dict[str, str] = {}
    is_known_otherwise = len(known) != len(nodes)
    for name, node in nodes.items():
        old = known.get(name)
        if old is node:
            states[name] = before.states[name]
            if name in before.ineligible:
                ineligible[name] = before.ineligible[name]
            continue
        states[name] = mark_state(node, mark)
        why = why_ineligible(node, rule_set.nodes)
        if why is not None:
            ineligible[name] = why
        if old is None or old.known_as != node.known_as:
            is_known_otherwise = True
    index = index_nodes(nodes.values()) if is_known_otherwise else before.index
    conflicts = {
        name: state.conflict for name, state in states.items() if state.conflict is not None
    }
    return Survey(
        rule_set=rule_set,
        mark=mark,
        nodes=nodes,
        states=states,
        ineligible=ineligible,
        index=index,
        conflicts=conflicts,
        eligible={
            name: node
            for name, node in nodes.items()
            if name not in conflicts and name not in ineligible
        },
        marked=frozenset([name for name, state in states.items() if state.marked]),
    )


def _nothing(rule_set: RuleSet) -> Survey:
    return Survey(rule_set, rule_set.mark, {}, {}, {}, NodeIndex({}), {}, {}, frozenset())
