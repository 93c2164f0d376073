"""A whole backtest, from the first query to the report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from dynsched.rules.rule_set import RuleSet
from dynsched.sources.prometheus import PrometheusConfig, PrometheusSource
from dynsched.tools.backtest.gathering import Gathered, Order, gather
from dynsched.tools.backtest.incidents import incidents_of
from dynsched.tools.backtest.pod_placements import (
    about,
    first_mark,
    lanes_by_node,
    metric_of_placements,
    placements_of,
)
from dynsched.tools.backtest.regret import regret, room_of
from dynsched.tools.backtest.replaying import replay
from dynsched.tools.backtest.suggest import suggest
from dynsched.tools.backtest.summary import difference, heading, side, whole
from dynsched.tools.backtest.tallies import Record
from dynsched.tools.backtest.world import make_world

Told = Callable[[str, int, int], None]
"""What is under way, how much of it is done, and how much it is."""


async def run(
    order: Order, prometheus: PrometheusConfig, told: Told, say: Callable[[str], None]
) -> dict[str, Any]:
    """The report (`report`), and under ``incomplete`` whether parts of the history are missing."""
    source = PrometheusSource(prometheus)
    try:
        gathered = await gather(order, source, partial(told, "history"), say)
        records = [_record(rule_set, gathered, told) for rule_set in order.rule_sets]
        sides = [
            side(rule_set, record)
            for rule_set, record in zip(order.rule_sets, records, strict=True)
        ]
        find = await lanes_by_node(source, gathered.window, gathered.scene.index, records[0].world)
        await _add_regret(
            source,
            order,
            gathered,
            find=find,
            played=list(zip(records, sides, strict=True)),
            told=told,
        )
        if order.suggest:
            incidents = await incidents_of(source, gathered.window, find)
            for rule_set, record, one in zip(order.rule_sets, records, sides, strict=True):
                one["suggested"] = suggest(
                    rule_set, gathered.scene, record.world, incidents, partial(told, "settings")
                )
    finally:
        await source.close()
    changed = difference(*records) if len(records) > 1 else None
    report = whole(heading(gathered, order.from_series), sides, changed)
    report["incomplete"] = any(past.missing for past in gathered.pasts.values())
    return report


async def _add_regret(
    source: PrometheusSource,
    order: Order,
    gathered: Gathered,
    *,
    find: Callable[[str], int | None],
    played: Sequence[tuple[Record, dict[str, Any]]],
    told: Told,
) -> None:
    """``regret`` of each side, where kube-state-metrics is in Prometheus."""
    window = gathered.window
    metric = await metric_of_placements(source, window)
    if metric is None or not gathered.nodes:
        return
    world = played[0][0].world
    placed = await placements_of(
        source,
        window,
        metric,
        order.folder,
        order.address,
        nodes=len(world.nodes),
        told=partial(told, "placements"),
    )
    room = room_of(placed, find, len(world.nodes))
    marked = await first_mark(source, window)
    for record, one in played:
        one["regret"] = regret(placed, record, find, room, first_mark=marked, limits=about(placed))


def _record(rule_set: RuleSet, gathered: Gathered, told: Told) -> Record:
    world = make_world(gathered.nodes, rule_set, gathered.spans)
    return replay(rule_set, gathered.scene, world, partial(told, "replay"))
