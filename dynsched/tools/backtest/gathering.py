"""Runs a whole backtest: the nodes, the history, the replays, and the report."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dynsched.core.nodes import AddressLookup, Node
from dynsched.core.wording import some
from dynsched.features.found_prometheus import found_or_default
from dynsched.kube.client import KubeClient
from dynsched.kube.credentials import load_credentials
from dynsched.rules.rule_set import Rule, RuleSet
from dynsched.sources.prometheus import PrometheusConfig, PrometheusSource
from dynsched.tools.backtest.history import Past, Query, Window, fetch, window_of
from dynsched.tools.backtest.replay import replay
from dynsched.tools.backtest.summary import difference, side
from dynsched.util.durations import format_duration
from dynsched.util.errors import ExpectedError
from dynsched.util.formatting import format_time

Json = dict[str, Any]

MOST_SAMPLES: Final = 20_000_000
"""Maximum in memory, for all rules together: 160 MB. The step grows to stay within it."""
_UNKNOWN_SERIES: Final = 100
"""The assumed number of series if they cannot be counted."""
_MAX_NAMED: Final = 5
_GRACE: Final = 600.0
"""Seconds by which a history may begin late without a note: `rate` begins after its range."""


@dataclass(frozen=True, slots=True)
class BacktestOptions:
    """The options of `dynsched backtest`; durations in seconds."""

    prometheus: PrometheusConfig
    rule_sets: Sequence[RuleSet]
    since: float
    until: float | None
    """Unix seconds; None: now, by Prometheus's clock."""
    step: float
    kubeconfig: Path | None
    context: str | None


async def backtest(options: BacktestOptions, log: Callable[[str], None]) -> Json:
    """Run a backtest, and return its report. ``log`` takes progress lines. Raises ExpectedError if
    there is no history.
    """
    credentials = await load_credentials(options.kubeconfig, options.context)
    async with KubeClient(credentials) as client:
        source = PrometheusSource(await found_or_default(client, options.prometheus, log))
        nodes = dict(sorted((await client.list_nodes()).items()))
        window, pasts = await _fetch(options, source, len(nodes), log)
    heading = {
        "since": format_time(window.start),
        "until": format_time(window.end),
        "step_seconds": window.step,
        "node_count": len(nodes),
        "notes": [*_notes(options, window, pasts, nodes)],
    }
    records = [replay(rules, pasts, nodes, window) for rules in options.rule_sets]
    sides = list(map(side, options.rule_sets, records))
    if len(sides) == 1:
        return {**heading, **sides[0]}
    changed = difference(*records)
    return {**heading, "before": sides[0], "after": sides[1], "difference": changed}


async def _fetch(
    options: BacktestOptions, source: PrometheusSource, nodes: int, log: Callable[[str], None]
) -> tuple[Window, Mapping[Query, Past]]:
    clock, error = await source.ask_clock()
    # A server that rejects this query may still answer those of the rules.
    if error is not None and not re.search(r"HTTP (400|422)", error):
        raise ExpectedError(error)
    until = clock.now - clock.behind if options.until is None else options.until
    since = until - options.since
    rules = [rule for rule_set in options.rule_sets for rule in rule_set.rules]
    queries = dict.fromkeys(filter(None, map(Query.of, rules)))
    series = {query: await _series(source, query, nodes) for query in queries}
    if not series:
        raise ExpectedError(
            "no rule has an expression that Prometheus answers: there is no history to replay"
        )
    samples = sum(series.values()) * (options.since / options.step + 1)
    step = options.step * math.ceil(samples / MOST_SAMPLES)
    window = window_of(since, until, step)
    log(f"{window.count:,} steps of {format_duration(step)}")
    pasts = await fetch(source, window, series)
    if not any(past.parts for past in pasts.values()):
        errors = sorted({past.error for past in pasts.values() if past.error})
        lacking = "no part of the history could be had, so there is nothing to replay"
        raise ExpectedError("; ".join([*errors[:_MAX_NAMED], lacking]))
    return window, pasts


async def _series(source: PrometheusSource, query: Query, nodes: int) -> int:
    """The number of series that a query has now, or should have: at least one per node."""
    answer = await source.query_expr(f"count(\n{query.expr}\n)")  # \n: it may end in a comment
    count = next((int(each.value) for each in answer.samples if math.isfinite(each.value)), 0)
    return max(count, nodes) or _UNKNOWN_SERIES


def _notes(
    options: BacktestOptions,
    window: Window,
    pasts: Mapping[Query, Past],
    nodes: Mapping[str, Node],
) -> Iterator[str]:
    firsts = [past.first for past in pasts.values() if past.first is not None]
    begun = window.at(min(firsts, default=window.count))
    if begun - window.start > _GRACE:
        yield f"The history begins at {format_time(begun)}."
    if window.step > options.step:
        yield (
            f"The step is {format_duration(window.step)} instead of "
            f"{format_duration(options.step)}, to stay within {MOST_SAMPLES:,} samples."
        )
    rules = (rule for rule_set in options.rule_sets for rule in rule_set.rules)
    yield from _about_rules(rules, window, pasts, AddressLookup(nodes.values()))
    if any(rule_set.mark.is_none for rule_set in options.rule_sets):
        yield "`mark: none`: no node is marked; a rule's row shows when nodes were hot."


def _about_rules(
    rules: Iterable[Rule], window: Window, pasts: Mapping[Query, Past], lookup: AddressLookup
) -> Iterator[str]:
    # If several rules have the same query, only one of them is named.
    by_query = {Query.of(rule) or rule.name: rule for rule in rules}
    for query, rule in by_query.items():
        if isinstance(query, str):
            yield f"Rule {query}: source {rule.source} keeps no history, so it is not replayed."
            continue
        past = pasts[query]
        if past.error is not None:
            begun = format_time(window.at(past.end))
            yield f"Rule {rule.name}: no data from {begun} on, so it is unknown: {past.error}."
        for warning in sorted(past.warnings):
            yield (
                f"Rule {rule.name}: answers were partial, and nodes that are missing in them count "
                f"as unknown: {warning}."
            )
        lost = sorted(name for name in past.names if lookup.find(name).node is None)
        if lost:
            yield (
                f"Rule {rule.name}: no node now has the name or address {some(lost, _MAX_NAMED)}; "
                "its samples are left out."
            )
