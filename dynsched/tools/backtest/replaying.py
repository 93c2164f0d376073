"""A rule set over the history that was fetched, chunk after chunk."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from dynsched.engine.columns import Bools, Floats
from dynsched.engine.match import NodeIndex
from dynsched.engine.transitions import Setting
from dynsched.rules.rule_set import RuleSet
from dynsched.tools.backtest.engine import Engine, Played
from dynsched.tools.backtest.fetching import Past, Query, chunks
from dynsched.tools.backtest.steps import Window
from dynsched.tools.backtest.world import World

Pasts = Mapping[Query, Past]


@dataclass(frozen=True, slots=True)
class Scene:
    """What was fetched, which node each name in it stands for, and for which moments. ``index``: of
    the nodes in the order of their names, as `World` has them.
    """

    pasts: Pasts
    index: NodeIndex
    window: Window

    def place_of(self, name: str) -> int:
        """Of the node that a value of the node's label stands for; -1: of none."""
        return self.index.place_of(name)[0]


def columns_of(
    rule_set: RuleSet, scene: Scene, world: World, first: int, last: int
) -> dict[str, Floats]:
    """The values of every rule whose past is there, for steps ``first`` to before ``last``; only of
    nodes that the rule applies to.
    """
    found = {}
    for rule in rule_set.file_rules:
        query = Query.of(rule)
        past = scene.pasts.get(query) if query else None
        if past is not None:
            values = past.values(first, last, scene.place_of, len(world.nodes), rises=rule.rises)
            values[:, ~world.selected(rule)] = np.nan
            found[rule.name] = values
    return found


@dataclass(frozen=True, slots=True)
class Record:
    """All steps of one replay; shapes are (steps, nodes)."""

    window: Window
    world: World
    played: Played
    present: Bools
    known: Mapping[str, Bools]
    """By rule: where there is a good value."""
    over: Bools
    """Where a rule's threshold is breached at this moment."""

    @property
    def counted(self) -> Bools:
        """Where a node is there and may be marked."""
        found: Bools = self.present & self.world.eligible
        return found

    @property
    def any_known(self) -> Bools:
        return np.asarray(np.logical_or.reduce([*self.known.values()]), np.bool_)

    @property
    def moments(self) -> int:
        """At how many steps any node counts: what is told per day is told of this time."""
        return int(self.counted.any(axis=1).sum())


def replay(
    rule_set: RuleSet,
    scene: Scene,
    world: World,
    told: Callable[[int, int], None] = lambda _done, _all: None,
) -> Record:
    """Play the whole window. ``told`` is called with the steps done and all steps."""
    window, engine = scene.window, Engine(rule_set, world)
    shape = (window.count, len(world.nodes))
    record = Record(
        window,
        world,
        Played.empty(len(engine.rules), *shape, len(world.pools)),
        world.present(window.times()),
        {rule.name: np.zeros(shape, np.bool_) for rule in rule_set.rules},
        np.zeros(shape, np.bool_),
    )
    for first, last in chunks(window, len(world.nodes), len(engine.rules)):
        columns = columns_of(rule_set, scene, world, first, last)
        engine.play(window.times(first, last), columns, record.played.part(first, last))
        for name, values in columns.items():
            rule = rule_set.by_name[name]
            record.known[name][first:last] = ~np.isnan(values)
            if not rule.shadow:
                breached = Setting.of(rule, rule_set).breached(values)
                record.over[first:last] |= breached
        told(last, window.count)
    return record
