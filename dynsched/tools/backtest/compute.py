"""A whole backtest, from the first query to the report."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from dynsched.sources.prometheus import PrometheusConfig, PrometheusSource
from dynsched.tools.backtest.gathering import Order, gather
from dynsched.tools.backtest.incidents import incidents_of
from dynsched.tools.backtest.pod_placements import place_finder, placements_of
from dynsched.tools.backtest.regret import regret
from dynsched.tools.backtest.replaying import replay
from dynsched.tools.backtest.suggest import suggest
from dynsched.tools.backtest.summary import difference, side
from dynsched.tools.backtest.world import make_world

Told = Callable[[str, int, int], None]
"""What is under way, how much of it is done, and how much it is."""


async def run(
    order: Order, prometheus: PrometheusConfig, told: Told, say: Callable[[str], None]
) -> dict[str, Any]:
    """The report, and under ``incomplete`` whether parts of the history are missing."""
    source = PrometheusSource(prometheus)
    try:
        gathered = await gather(order, source, partial(told, "history"), say)
        scene, window = gathered.scene, gathered.scene.window
        records = []
        for rule_set in order.rule_sets:
            world = make_world(gathered.nodes, rule_set, gathered.spans)
            records.append(replay(rule_set, scene, world, partial(told, "replay")))
        sides = list(map(side, order.rule_sets, records))
        find = await place_finder(source, window, scene.index)
        placed = gathered.nodes and await placements_of(
            source,
            window,
            order.folder,
            order.address,
            find=find,
            nodes=len(gathered.nodes),
            told=partial(told, "placements"),
        )
        incidents = await incidents_of(source, window, find) if order.suggest else []
    finally:
        await source.close()
    for rule_set, record, one in zip(order.rule_sets, records, sides, strict=True):
        if placed:
            one["regret"] = regret(placed, record)
        if order.suggest:
            settings = partial(told, "settings")
            one["suggested"] = suggest(rule_set, scene, record.world, incidents, settings)
    if len(sides) == 1:
        report = {**gathered.heading, **sides[0]}
    else:
        changed = difference(*records)
        report = {**gathered.heading, "before": sides[0], "after": sides[1], "difference": changed}
    return {**report, "incomplete": any(past.missing for past in scene.pasts.values())}
