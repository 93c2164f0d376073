"""The alerts at the start, rebuilt from what the sources remember of the past."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final, Protocol

from dynsched.engine.alerts import AlertTable
from dynsched.engine.inventory import take_inventory
from dynsched.engine.model import Node, Series
from dynsched.engine.replay import adopted_alerts, finish_replay, replay, replay_times
from dynsched.rules.fields import SourceName
from dynsched.rules.rule_set import Rule, RuleSet
from dynsched.util.durations import format_duration
from dynsched.util.errors import PastUnknownError

logger = logging.getLogger(__name__)

MAX_POINTS: Final = 30_000
"""Points of the past that are held at a time, of all rules together: about as many as the samples
of two ticks at 5,000 nodes, so that a start needs no more memory than what follows."""


class HistorySource(Protocol):
    async def history(self, rule: Rule, start: float, end: float, step: float) -> Sequence[Series]:
        """The rule's expression from ``start`` to ``end``, every ``step``. PastUnknownError when
        it cannot be had.
        """


class Past:
    """``sources`` by the rules' ``source``."""

    def __init__(self, sources: Mapping[SourceName, HistorySource]) -> None:
        self._sources = sources
        self._unknown: dict[str, str] = {}

    def take_unknown(self) -> Mapping[str, str]:
        """Why the past of a rule could not be had, by rule; told once."""
        unknown, self._unknown = self._unknown, {}
        return unknown

    async def alerts(
        self, rule_set: RuleSet, nodes: Mapping[str, Node], *, now: float, interval: float
    ) -> AlertTable | None:
        """The alerts as if ticks had gone on until ``now``, every ``interval`` seconds; None when
        the rules do not look at the past, or there are no nodes.
        """
        times = replay_times(rule_set, now, interval)
        if not times or not nodes:
            return None
        step = now - times[-1]
        seen = await asyncio.to_thread(take_inventory, nodes, rule_set)
        alerts = await asyncio.to_thread(adopted_alerts, seen, times[0])
        self._unknown = {
            rule.name: f"source {rule.source} keeps none"
            for rule in rule_set.rules
            if rule.source not in self._sources and (rule.hold_duration or rule.keep_firing_for)
        }
        # In parts: the whole past of 5,000 nodes would be hundreds of megabytes.
        part = max(1, MAX_POINTS // (len(nodes) * len(rule_set.rules)))
        for first in range(0, len(times), part):
            moments = times[first : first + part]
            past = await self._of_rules(rule_set, moments, step)
            alerts = await asyncio.to_thread(
                partial(replay, seen, past, alerts, times=moments, step=step, until=now)
            )
        if self._known(rule_set):
            logger.info(
                "replayed the last %s from Prometheus's history",
                format_duration(round(now - times[0])),
            )
        return await asyncio.to_thread(finish_replay, seen, alerts, now)

    def _known(self, rule_set: RuleSet) -> list[Rule]:
        """The rules whose past can be had, as far as is known."""
        return [
            rule
            for rule in rule_set.rules
            if rule.source in self._sources and rule.name not in self._unknown
        ]

    async def _of_rules(
        self, rule_set: RuleSet, moments: Sequence[float], step: float
    ) -> dict[str, Sequence[Series] | None]:
        # What failed for one part is not asked for the next: a source that hangs would cost its
        # timeout for each of some hundred parts before the first tick.
        rules = self._known(rule_set)
        found = await asyncio.gather(*(self._of_rule(rule, moments, step) for rule in rules))
        return {rule.name: series for rule, series in zip(rules, found, strict=True)}

    async def _of_rule(
        self, rule: Rule, moments: Sequence[float], step: float
    ) -> Sequence[Series] | None:
        try:
            return await self._sources[rule.source].history(rule, moments[0], moments[-1], step)
        except PastUnknownError as error:
            self._unknown[rule.name] = str(error)
            return None
