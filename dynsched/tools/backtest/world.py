"""The nodes of a replay as arrays: which may be marked, in which pool, and from when to when."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dynsched.engine.columns import Bools, Floats, Ints
from dynsched.engine.dry_run import Rehearsal
from dynsched.engine.guard import is_eligible, kind_of
from dynsched.engine.mark_state import mark_state
from dynsched.engine.model import Node
from dynsched.engine.plan import plan_prune
from dynsched.rules.rule_set import Rule, RuleSet


@dataclass(frozen=True, slots=True)
class Span:
    """When a node was there, in Unix seconds, both ends included."""

    first: float = -math.inf
    last: float = math.inf


ALWAYS = Span()


@dataclass(frozen=True, slots=True)
class World:
    """Nodes in the order of their names; every array has one element for each."""

    nodes: tuple[Node, ...]
    eligible: Bools
    """Whether it may be marked: by the rules, and because nobody else uses the mark's key."""
    pool: Ints
    """Index into ``pools``."""
    pools: tuple[str, ...]
    kind: Ints
    """A number for each kind (`core.guard.Kind`), from 0."""
    first: Floats
    last: Floats

    @property
    def names(self) -> tuple[str, ...]:
        """Of the nodes."""
        return tuple(node.name for node in self.nodes)

    def selected(self, rule: Rule) -> Bools:
        """The nodes that the rule applies to."""
        return np.array([rule.applies_to(node.labels) for node in self.nodes], np.bool_)

    def present(self, times: Floats) -> Bools:
        """Shape (times, nodes): whether the node was there."""
        moments = times[:, None]
        found: Bools = (moments >= self.first) & (moments <= self.last)
        return found


def make_world(
    nodes: Mapping[str, Node], rule_set: RuleSet, spans: Mapping[str, Span] | None = None
) -> World:
    """``nodes`` without the marks that they carry now: a replay begins without any. Without an
    entry in ``spans`` a node is there from its creation on.
    """
    bare = without_marks(nodes, rule_set)
    ordered = tuple(bare[name] for name in sorted(bare))
    eligible = np.array(
        [
            is_eligible(node, rule_set.nodes) and mark_state(node, rule_set.mark).conflict is None
            for node in ordered
        ],
        dtype=np.bool_,
    )
    kinds = [kind_of(node, rule_set.guard) for node in ordered]
    numbers = {kind: number for number, kind in enumerate(dict.fromkeys(kinds))}
    pools = tuple(sorted({kind.pool for kind in kinds}))
    spans = spans or {}
    kept = [spans.get(node.name, Span(node.created or -math.inf)) for node in ordered]
    return World(
        nodes=ordered,
        eligible=eligible,
        pool=np.array([pools.index(kind.pool) for kind in kinds], np.int64),
        pools=pools,
        kind=np.array([numbers[kind] for kind in kinds], np.int64),
        first=np.array([span.first for span in kept], np.float64),
        last=np.array([span.last for span in kept], np.float64),
    )


def without_marks(nodes: Mapping[str, Node], rule_set: RuleSet) -> dict[str, Node]:
    """The nodes as `dynsched prune` would leave them."""
    rehearsal = Rehearsal()
    rehearsal.nodes(nodes)
    rehearsal.write(plan_prune(nodes.values(), rule_set.mark))
    return rehearsal.nodes(nodes)


def weights(nodes: Sequence[Node], resource: str | None) -> Floats:
    """What each node has of a rule's resource, as the mean of its kind weighs it."""
    found = [node.allocatable.get(resource, 1.0) if resource else 1.0 for node in nodes]
    return np.array(found, np.float64)
