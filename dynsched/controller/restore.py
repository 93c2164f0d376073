"""Rebuilds the alerts at the start from the history of the sources."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from dynsched.core.alerts import Alerts
from dynsched.core.evaluate import Evaluation
from dynsched.core.marks import MarkDecision
from dynsched.core.node_table import NodeTable
from dynsched.core.nodes import Node
from dynsched.core.restore import finish_replay, replay, replay_times
from dynsched.core.samples import Series
from dynsched.rules.fields import SourceName
from dynsched.rules.rule_set import Rule, RuleSet
from dynsched.sources.prometheus import PrometheusSource
from dynsched.util.durations import format_duration
from dynsched.util.errors import PastUnknownError

logger = logging.getLogger(__name__)

MAX_POINTS: Final = 30_000
"""Maximum number of history points in memory, for all rules together. This is about the number of
samples of two ticks at 5,000 nodes, so a start needs no more memory than the ticks after it."""

PastSources = Mapping[SourceName, PrometheusSource]
"""The sources that have a history, by the ``source`` of rules."""


async def past_evaluation(
    sources: PastSources,
    rule_set: RuleSet,
    nodes: Mapping[str, Node],
    *,
    now: float,
    interval: float,
) -> tuple[Evaluation | None, dict[str, str]]:
    """The alerts as if ticks had run every ``interval`` seconds until ``now``; None if the rules
    need no history, or there are no nodes. And by rule name: why its history is not available.
    """
    times = replay_times(rule_set, now, interval, len(nodes))
    if not times or not nodes:
        return None, {}
    step = now - times[-1]
    table = await asyncio.to_thread(NodeTable.of, nodes, rule_set)
    alerts: Alerts = {}
    unknown = {
        rule.name: f"source {rule.source} keeps no history"
        for rule in rule_set.rules
        if rule.source not in sources and (rule.hold_duration or rule.keep_firing_for)
    }
    queried = [rule for rule in rule_set.rules if rule.source in sources]
    # In parts: the whole history of 5,000 nodes would be hundreds of megabytes.
    part = max(1, MAX_POINTS // (len(nodes) * len(rule_set.rules)))
    for first in range(0, len(times), part):
        moments = times[first : first + part]
        past, failed = await _histories(sources, queried, moments, step)
        # A rule that failed in one part is not queried again. A source that hangs would delay the
        # first tick by its timeout for each of some hundred parts.
        unknown |= failed
        queried = [rule for rule in queried if rule.name not in failed]
        alerts = await asyncio.to_thread(
            partial(replay, table, past, alerts, times=moments, step=step, until=now)
        )
    if queried:
        replayed = format_duration(round(now - times[0]))
        logger.info("replayed the last %s from Prometheus's history", replayed)
    alerts = await asyncio.to_thread(finish_replay, table, alerts, now)
    return Evaluation(rule_set, table, alerts, {}, MarkDecision(frozenset(), {})), unknown


async def _histories(
    sources: PastSources, rules: Sequence[Rule], moments: Sequence[float], step: float
) -> tuple[dict[str, Sequence[Series] | None], dict[str, str]]:
    """The history by rule name, None if it is not available; and by rule name, why it is not."""
    failed: dict[str, str] = {}

    async def history(rule: Rule) -> Sequence[Series] | None:
        try:
            return await sources[rule.source].history(rule, moments[0], moments[-1], step)
        except PastUnknownError as error:
            failed[rule.name] = str(error)
            return None

    found = await asyncio.gather(*map(history, rules))
    return {rule.name: past for rule, past in zip(rules, found, strict=True)}, failed
