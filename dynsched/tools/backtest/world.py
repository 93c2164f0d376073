"""What is replayed: the nodes as arrays, and the history that was fetched of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from dynsched.engine.columns import Bools, Floats, Ints
from dynsched.engine.dry_run import Overlay
from dynsched.engine.guard import is_eligible, kind_of
from dynsched.engine.mark_state import mark_state
from dynsched.engine.match import NodeIndex
from dynsched.engine.model import Node
from dynsched.engine.plan import plan_prune
from dynsched.rules.rule_set import Rule, RuleSet
from dynsched.tools.backtest.fetching import Past, Query, Window

Span = tuple[float, float]
"""When a node was there first and last, in Unix seconds."""
Columns = Mapping[str, Floats]
"""By rule name, shape (steps, nodes): NaN where there is no good value, and on nodes that the rule
does not apply to. Rules whose past cannot be had are not in it."""


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
    """A number for each kind (`engine.guard.Kind`), from 0."""
    first: Floats
    last: Floats

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(node.name for node in self.nodes)

    def selected(self, rule: Rule) -> Bools:
        return np.array([rule.applies_to(node.labels) for node in self.nodes], np.bool_)

    def weights(self, resource: str | None) -> Floats:
        """What each node has of a rule's resource, as the mean of its kind weighs it."""
        found = [node.allocatable.get(resource, 1.0) if resource else 1.0 for node in self.nodes]
        return np.array(found, np.float64)

    def present(self, times: Floats) -> Bools:
        """Shape (times, nodes): whether the node was there."""
        moments = times[:, None]
        found: Bools = (moments >= self.first) & (moments <= self.last)
        return found


def make_world(
    nodes: Mapping[str, Node], rule_set: RuleSet, spans: Mapping[str, Span] = MappingProxyType({})
) -> World:
    """``nodes`` as `dynsched prune` would leave them: a replay begins without marks. Without an
    entry in ``spans`` a node is there from its creation on.
    """
    overlay = Overlay()
    overlay.nodes(nodes)
    overlay.write(plan_prune(nodes.values(), rule_set.mark))
    ordered = tuple(node for _, node in sorted(overlay.nodes(nodes).items()))
    eligible = [
        is_eligible(node, rule_set.nodes) and mark_state(node, rule_set.mark).conflict is None
        for node in ordered
    ]
    kinds = [kind_of(node, rule_set.guard) for node in ordered]
    numbers = {kind: number for number, kind in enumerate(dict.fromkeys(kinds))}
    pools = tuple(sorted({kind.pool for kind in kinds}))
    there = [spans.get(node.name, (node.created or -math.inf, math.inf)) for node in ordered]
    return World(
        nodes=ordered,
        eligible=np.array(eligible, np.bool_),
        pool=np.array([pools.index(kind.pool) for kind in kinds], np.int64),
        pools=pools,
        kind=np.array([numbers[kind] for kind in kinds], np.int64),
        first=np.array([first for first, _ in there], np.float64),
        last=np.array([last for _, last in there], np.float64),
    )


@dataclass(frozen=True, slots=True)
class Scene:
    """What was fetched, which node each name in it stands for, and for which moments. ``index``: of
    the nodes in the order of their names, as `World` has them.
    """

    pasts: Mapping[Query, Past]
    index: NodeIndex
    window: Window

    def index_of(self, name: str) -> int:
        """Of the node that a value of the node's label stands for; -1: of none."""
        return self.index.place_of(name)[0]


def columns_of(rule_set: RuleSet, scene: Scene, world: World, first: int, last: int) -> Columns:
    """For steps ``first`` to before ``last``."""
    found = {}
    for rule in rule_set.file_rules:
        query = Query.of(rule)
        past = scene.pasts.get(query) if query else None
        if past is not None:
            values = past.values(first, last, scene.index_of, len(world.nodes), rises=rule.rises)
            values[:, ~world.selected(rule)] = np.nan
            found[rule.name] = values
    return found
