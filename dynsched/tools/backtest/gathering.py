"""A whole backtest: the nodes, the scrape interval, the history, the replays, and the report."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from dynsched.core.load.lag import DEFAULT_SCRAPE
from dynsched.core.nodes import AddressLookup, Node
from dynsched.core.samples import Sample
from dynsched.core.wording import some
from dynsched.features.found_prometheus import found_or_default
from dynsched.kube.client import KubeClient
from dynsched.kube.credentials import load_credentials
from dynsched.rules.rule_set import Rule, RuleSet
from dynsched.sources.pod_use import scrape_interval
from dynsched.sources.prometheus import PrometheusConfig, PrometheusSource
from dynsched.tools.backtest.history import Past, Query, Window, fetch, step_within, window_of
from dynsched.tools.backtest.replay import History, Span, replay
from dynsched.tools.backtest.summary import ENOUGH, difference, side
from dynsched.util.durations import format_duration
from dynsched.util.errors import ExpectedError
from dynsched.util.formatting import format_time

Json = dict[str, Any]
Pasts = Mapping[Query, Past]

_MOMENTS: Final = 24  # moments at which the series of an expression are counted beforehand
_UNKNOWN_SERIES: Final = 100
"""The number of series that is assumed where none could be counted."""
_MAX_NAMED: Final = 5
_GRACE: Final = 600.0  # seconds by which a history may be shorter: `rate` begins after its range


@dataclass(frozen=True, slots=True)
class BacktestOptions:
    """The options of `dynsched backtest`; durations in seconds."""

    prometheus: PrometheusConfig
    rule_sets: Sequence[RuleSet]
    since: float
    until: float | None
    """Unix seconds; None: now, by Prometheus's clock."""
    step: float | None
    """None: the scrape interval."""
    budget: int
    nodes_from_series: bool
    kubeconfig: Path | None
    context: str | None


async def backtest(options: BacktestOptions, log: Callable[[str], None]) -> Json:
    """The report; ``log`` takes a line before it. ExpectedError where no history came."""
    nodes, prometheus = dict[str, Node](), options.prometheus
    async with contextlib.AsyncExitStack() as stack:
        if not options.nodes_from_series:
            nodes, prometheus = await _ask_cluster(options, stack, log)
        source = PrometheusSource(prometheus)
        nodes, spans, history, heading = await _gather(options, source, nodes, log)
    records = [replay(rules, history, nodes, spans) for rules in options.rule_sets]
    sides = list(map(side, options.rule_sets, records))
    if len(sides) == 1:
        return {**heading, **sides[0]}
    changed = difference(*records)
    return {**heading, "before": sides[0], "after": sides[1], "difference": changed}


async def _ask_cluster(
    options: BacktestOptions, stack: contextlib.AsyncExitStack, log: Callable[[str], None]
) -> tuple[dict[str, Node], PrometheusConfig]:
    """Its nodes, and the Prometheus to ask, which may be behind the client that is open until
    ``stack`` ends. ExpectedError names the way that needs no cluster.
    """
    try:
        credentials = await load_credentials(options.kubeconfig, options.context)
        client = await stack.enter_async_context(KubeClient(credentials))
        prometheus = await found_or_default(client, options.prometheus, log)
        return await client.list_nodes(), prometheus
    except ExpectedError as error:
        raise ExpectedError(
            f"{error}; to replay without a cluster, give --nodes-from-series: each value of the "
            "node's label is then a node"
        ) from error


async def _gather(
    options: BacktestOptions,
    source: PrometheusSource,
    nodes: dict[str, Node],
    log: Callable[[str], None],
) -> tuple[dict[str, Node], dict[str, Span], History, Json]:
    """Nodes by name, from when to when each is there, what came, and the report's first part."""
    clock, error = await source.ask_clock()
    # What answers some expressions only may still answer those of the rules.
    if error is not None and not re.search(r"HTTP (400|422)", error):
        raise ExpectedError(error)
    rules = [rule for rule_set in options.rule_sets for rule in rule_set.rules]
    until = clock.now - clock.behind if options.until is None else options.until
    since = until - options.since
    series = await _series(source, rules, since, until, len(nodes))
    if not series:
        raise ExpectedError(
            "no rule has an expression that Prometheus answers: there is no history to replay"
        )
    count, scrape = sum(series.values()), await _scrape(source, rules)
    # Between two scrapes nothing is known. Rounded: a scrape more or less gives 29.9 s.
    least = max(1.0, float(round(scrape))) if scrape else None
    wanted = max(options.step, least or 0.0) if options.step else least or DEFAULT_SCRAPE
    window = window_of(since, until, step_within(options.budget, wanted, since, until, count))
    steps = f"{window.count:,} steps of {format_duration(window.step)}"
    log(f"{steps}, about {count * window.count:,} samples")
    pasts = await fetch(source, window, series)
    if not any(past.parts for past in pasts.values()):
        errors = sorted({missing.error for past in pasts.values() for missing in past.missing})
        lacking = "no part of the history could be had, so there is nothing to replay"
        raise ExpectedError("; ".join([*errors[:_MAX_NAMED], lacking]))
    spans = _spans(options.rule_sets, pasts, window) if options.nodes_from_series else {}
    nodes = dict(sorted((nodes | {each: Node(each) for each in spans}).items()))
    notes = [
        *_little_history(pasts, window, nodes.values()),
        *_about_step(window.step, wanted, options.budget, rules),
        *_about_rules(rules, pasts, window, AddressLookup(nodes.values())),
    ]
    if any(rule_set.mark.is_none for rule_set in options.rule_sets):
        notes.append("`mark: none`: no node is marked; a rule's row says when nodes were hot.")
    heading = {
        "since": format_time(window.start),
        "until": format_time(window.end),
        "step_seconds": window.step,
        "wanted_step_seconds": wanted,
        "scrape_interval_seconds": scrape,
        "steps": window.count,
        "samples": sum(len(past.seen) for past in pasts.values()) * window.count,
        "queries": sum(past.asked for past in pasts.values()),
        "node_count": len(nodes),
        "nodes_from": "series" if options.nodes_from_series else "cluster",
        "notes": notes,
    }
    return nodes, spans, History(pasts, window), heading


async def _series(
    source: PrometheusSource, rules: Iterable[Rule], since: float, until: float, nodes: int
) -> dict[Query, int]:
    """The most series that each query has at some moments of the window."""
    found, step = {}, max(1.0, (until - since) / _MOMENTS)
    for query in dict.fromkeys(filter(None, map(Query.of, rules))):
        answer = await source.query_range(f"count({query.expr})", since, until, step)
        counts = [value for one in answer.series for _, value in one.points]
        found[query] = max(int(max(counts, default=0)), nodes)
    most = max(found.values(), default=0) or _UNKNOWN_SERIES
    return {query: count or most for query, count in found.items()}


async def _scrape(source: PrometheusSource, rules: Iterable[Rule]) -> float | None:
    async def ask(expr: str) -> Sequence[Sample] | None:
        answer = await source.query_expr(expr)
        return None if answer.error else answer.samples

    asked = {Query.of(rule): rule for rule in rules}
    found = [await scrape_interval(ask, rule) for query, rule in asked.items() if query]
    return min(filter(None, found), default=None)


def _spans(rule_sets: Iterable[RuleSet], pasts: Pasts, window: Window) -> dict[str, Span]:
    """When each node is there: from its first value to its last, and until that is stale."""
    stale_after = max(rule.stale_after for each in rule_sets for rule in each.rules)
    spans: dict[str, Span] = {}
    for name, (first, last) in (item for past in pasts.values() for item in past.seen.items()):
        begun, ended = spans.get(name, (math.inf, -math.inf))
        spans[name] = min(begun, window.at(first)), max(ended, window.at(last) + stale_after)
    return spans


def _little_history(pasts: Pasts, window: Window, nodes: Iterable[Node]) -> Iterator[str]:
    """Whether there is history, and a node that is as old, for less than the window."""
    steps = [step for past in pasts.values() for seen in past.seen.values() for step in seen]
    begun, ended = window.at(min(steps, default=0)), window.at(max(steps, default=window.count))
    born = min((node.created or -math.inf for node in nodes), default=-math.inf)
    lasted = max(0.0, ended - max(begun, born) + window.step)
    asked = window.count * window.step
    if asked - lasted > max(_GRACE, asked / 50):
        little = "Not enough" if lasted < ENOUGH * asked else "Shorter"
        yield (
            f"{little} history: {format_duration(round(lasted))} of the "
            f"{format_duration(round(asked))} that were asked for; values are there from "
            f"{format_time(begun)} to {format_time(ended)}."
        )
        if born > begun:
            yield (
                f"A node counts from its creation on, the oldest from {format_time(born)}; "
                "--nodes-from-series replays the nodes that were there before."
            )


def _about_step(step: float, wanted: float, budget: int, rules: Iterable[Rule]) -> Iterator[str]:
    if step > wanted:
        yield (
            f"The step is {format_duration(step)} instead of {format_duration(wanted)}, to stay "
            f"within {budget:,} samples (--budget)."
        )
    for rule in rules:
        if 0 < rule.hold_duration < step:
            yield (
                f"Rule {rule.name}: `for` is {format_duration(rule.hold_duration)}, shorter than "
                f"the step of {format_duration(step)}: what lasted less than a step is not seen."
            )


def _about_rules(
    rules: Iterable[Rule], pasts: Pasts, window: Window, lookup: AddressLookup
) -> Iterator[str]:
    # Of rules with the same query, one is named.
    by_query = {Query.of(rule) or rule.name: rule for rule in reversed([*rules])}
    for query, rule in reversed(by_query.items()):
        if isinstance(query, str):
            yield f"Rule {query}: source {rule.source} keeps no history, so it is not replayed."
        else:
            yield from (
                f"Rule {rule.name}: {each}" for each in _about(pasts[query], window, lookup)
            )


def _about(past: Past, window: Window, lookup: AddressLookup) -> Iterator[str]:
    for error, several in groupby(past.missing, lambda missing: missing.error):
        parts = [missing.part for missing in several]
        begun, ended = (format_time(window.at(step)) for step in (parts[0][0], parts[-1][-1]))
        steps = f"{sum(map(len, parts)):,} steps from {begun} to {ended}"
        yield f"no data for {steps}, which count as unknown: {error}."
    for warning in sorted(past.warnings):
        yield f"answers were partial, and nodes that they lack count as unknown: {warning}."
    if past.unnamed:
        yield f"{past.unnamed} series have no label that names a node."
    lost = [name for name in past.seen if lookup.find(name).node is None]
    if lost:
        named = some(sorted(lost), _MAX_NAMED)
        yield f"no node now has the name or address {named}; what was measured there is left out."
