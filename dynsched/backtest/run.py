"""A whole backtest, from the first query to the report."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from dynsched.backtest.gathering import Gathered, Order, gather
from dynsched.backtest.replaying import replay
from dynsched.backtest.report import difference, heading, side, whole
from dynsched.backtest.tallies import Record
from dynsched.backtest.world import make_world
from dynsched.core.rules import RuleSet
from dynsched.sources.prometheus import PrometheusConfig, PrometheusSource

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
    finally:
        await source.close()
    changed = difference(*records) if len(records) > 1 else None
    report = whole(heading(gathered, order.from_series), sides, changed)
    report["incomplete"] = any(past.missing for past in gathered.pasts.values())
    return report


def _record(rule_set: RuleSet, gathered: Gathered, told: Told) -> Record:
    world = make_world(gathered.nodes, rule_set, gathered.spans)
    return replay(rule_set, gathered.scene, world, partial(told, "replay"))
