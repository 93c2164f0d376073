"""The alerts at the start, rebuilt from what the sources remember of the past."""

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
"""Points of the past that are held at a time, of all rules together: about as many as the samples
of two ticks at 5,000 nodes, so that a start needs no more memory than what follows."""

PastSources = Mapping[SourceName, PrometheusSource]
"""Those that remember, by the rules' ``source``."""


async def past_evaluation(
    sources: PastSources,
    rule_set: RuleSet,
    nodes: Mapping[str, Node],
    *,
    now: float,
    interval: float,
) -> tuple[Evaluation | None, dict[str, str]]:
    """The alerts as if ticks had gone on until ``now``, every ``interval`` seconds; None when the
    rules need no past, or there are no nodes. By rule: why its past could not be had.
    """
    times = replay_times(rule_set, now, interval, len(nodes))
    if not times or not nodes:
        return None, {}
    step = now - times[-1]
    table = await asyncio.to_thread(NodeTable.of, nodes, rule_set)
    alerts: Alerts = {}
    unknown = {
        rule.name: f"source {rule.source} keeps none"
        for rule in rule_set.rules
        if rule.source not in sources and (rule.hold_duration or rule.keep_firing_for)
    }
    asked = [rule for rule in rule_set.rules if rule.source in sources]
    # In parts: the whole past of 5,000 nodes would be hundreds of megabytes.
    part = max(1, MAX_POINTS // (len(nodes) * len(rule_set.rules)))
    for first in range(0, len(times), part):
        moments = times[first : first + part]
        past, failed = await _of_rules(sources, asked, moments, step)
        # What failed for one part is not asked for the next: a source that hangs would cost its
        # timeout for each of some hundred parts before the first tick.
        unknown |= failed
        asked = [rule for rule in asked if rule.name not in failed]
        alerts = await asyncio.to_thread(
            partial(replay, table, past, alerts, times=moments, step=step, until=now)
        )
    if asked:
        lasted = format_duration(round(now - times[0]))
        logger.info("replayed the last %s from Prometheus's history", lasted)
    alerts = await asyncio.to_thread(finish_replay, table, alerts, now)
    return Evaluation(rule_set, table, alerts, {}, MarkDecision(frozenset(), {})), unknown


async def _of_rules(
    sources: PastSources, rules: Sequence[Rule], moments: Sequence[float], step: float
) -> tuple[dict[str, Sequence[Series] | None], dict[str, str]]:
    """The past by rule, None where it cannot be had; and why it cannot."""
    failed: dict[str, str] = {}

    async def of_rule(rule: Rule) -> Sequence[Series] | None:
        try:
            return await sources[rule.source].history(rule, moments[0], moments[-1], step)
        except PastUnknownError as error:
            failed[rule.name] = str(error)
            return None

    found = await asyncio.gather(*map(of_rule, rules))
    return {rule.name: past for rule, past in zip(rules, found, strict=True)}, failed
