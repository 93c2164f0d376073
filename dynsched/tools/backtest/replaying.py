"""A rule set over the history that was fetched, chunk after chunk."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from dynsched.engine.columns import Floats
from dynsched.engine.match import NodeIndex
from dynsched.engine.transitions import Setting
from dynsched.rules.rule_set import RuleSet
from dynsched.tools.backtest.engine import Engine
from dynsched.tools.backtest.fetching import Past, Query, chunks
from dynsched.tools.backtest.steps import Window
from dynsched.tools.backtest.tallies import Record, Recorder
from dynsched.tools.backtest.world import Span, World

Pasts = Mapping[Query, Past]


@dataclass(frozen=True, slots=True)
class Scene:
    """What was fetched, which node each name in it stands for, and for which moments."""

    pasts: Pasts
    index: NodeIndex
    window: Window


def lanes_of(names: Mapping[str, object], index: NodeIndex, world: World) -> dict[str, int]:
    """Values of a node's label -> the place of the node. What is nobody's, or shared by several
    nodes, has none.
    """
    places = {name: number for number, name in enumerate(world.names)}
    found = {}
    for name in names:
        try:
            node = index.find(name)
        except ValueError:
            continue
        if node is not None and node in places:
            found[name] = places[node]
    return found


def spans_of(pasts: Pasts, window: Window, stale_after: float) -> dict[str, Span]:
    """By name: from its first value to its last, and until it is stale. Nodes without an end in
    the window have none: the series may go on.
    """
    found: dict[str, tuple[int, int]] = {}
    for past in pasts.values():
        for name, (first, last) in past.seen.items():
            known = found.get(name, (first, last))
            found[name] = (min(first, known[0]), max(last, known[1]))
    return {
        name: Span(window.at(first), window.at(last) + stale_after)
        for name, (first, last) in found.items()
    }


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
            lanes = lanes_of(past.seen, scene.index, world)
            values = past.values(first, last, lanes, len(world.nodes), rises=rule.rises)
            values[:, ~world.selected(rule)] = np.nan
            found[rule.name] = values
    return found


def replay(
    rule_set: RuleSet,
    scene: Scene,
    world: World,
    told: Callable[[int, int], None] = lambda _done, _all: None,
) -> Record:
    """Play the whole window. ``told`` is called with the steps done and all steps."""
    window = scene.window
    engine = Engine(rule_set, world)
    recorder = Recorder(window, world, [rule.name for rule in rule_set.rules])
    for first, last in chunks(window, len(world.nodes), len(rule_set.rules)):
        columns = columns_of(rule_set, scene, world, first, last)
        played = engine.play(window.times(first, last), columns)
        over = np.zeros(played.marked.shape, np.bool_)
        for rule in rule_set.file_rules:
            if rule.name in columns and not rule.shadow:
                over |= Setting.of(rule, rule_set).breached(columns[rule.name])
        known = {name: ~np.isnan(column) for name, column in columns.items()}
        recorder.add(first, played, known, over)
        told(last, window.count)
    return recorder.record
