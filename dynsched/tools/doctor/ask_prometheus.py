"""Asks Prometheus what the checks of rules need: a bounded number of queries for each rule.

What is asked of each rule: its expression twice, 3 numbers at up to 169 moments of a week (fewer
where its query is slow), and for each selector some ten counts. No answer has more than a series
for each node.
"""

from __future__ import annotations

import asyncio
import math
import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final, Protocol

from dynsched.engine.model import QueryResult, Sample
from dynsched.rules.rule_set import FileRule, RuleSet
from dynsched.sources.prometheus import PageResult, RangeResult
from dynsched.tools.doctor.expressions import (
    Expression,
    Matcher,
    Selector,
    UnreadError,
    quoted,
    read,
    selector_text,
    spelled,
)
from dynsched.tools.doctor.gathered import (
    Copies,
    Missing,
    PrometheusFacts,
    RuleFacts,
    Seen,
    SelectorFacts,
)
from dynsched.util.durations import parse_duration

WEEK: Final = 7 * 86400.0
HOUR: Final = 3600.0
_BUDGET: Final = 5.0
"""Seconds of evaluation that each of the three looks at a rule's last week may take; a query has
ten (--prom-timeout)."""
_POINTS: Final = 168
_LEAST_POINTS: Final = 8
_JOBS: Final = 5
_SHOWN_VALUES: Final = 5
_SCRAPES: Final = 600.0
"""Seconds over which scrapes are looked at; more where a range is longer."""
CLUSTER_LABELS: Final = (
    "cluster",
    "cluster_name",
    "cluster_id",
    "k8s_cluster",
    "kubernetes_cluster",
    "prometheus",
    "prometheus_replica",
    "replica",
)
_THROTTLED: Final = "container_cpu_cfs_throttled_periods_total"
PRESSURE: Final = "node_pressure_cpu_waiting_seconds_total"


class Prometheus(Protocol):
    """Who is asked. Nothing raises: an error is a part of each answer."""

    async def query_expr(self, expr: str, label: str = "instance") -> QueryResult:
        """An instant query."""

    async def query_range(
        self, expr: str, start: float, end: float, step: float, label: str = "instance"
    ) -> RangeResult:
        """A range query."""

    async def raw(self, selector: str, label: str = "instance") -> RangeResult:
        """The samples of a range selector."""

    async def read(self, path: str, parameters: Mapping[str, str] | None = None) -> PageResult:
        """Another page of the API."""


class NotReachedError(Exception):
    """Nothing of what was asked was answered; the message is the first error."""


async def ask_prometheus(prometheus: Prometheus, rule_set: RuleSet) -> PrometheusFacts:
    """All facts about the rules that Prometheus answers. NotReachedError when it answers none."""
    rules = [rule for rule in rule_set.file_rules if rule.source == "prometheus"]
    if not rules:
        return PrometheusFacts()
    began = time.time()
    clock = await prometheus.query_expr("vector(time())")
    now = clock.samples[0].value if clock.samples else began
    answers = await asyncio.gather(*(prometheus.query_expr(rule.expr or "") for rule in rules))
    if clock.error and all(answer.error for answer in answers):
        raise NotReachedError(clock.error)
    world = _World(prometheus, now)
    recorded = await world.recorded()
    found = [
        await _rule_facts(world, rule, answer, recorded)
        for rule, answer in zip(rules, answers, strict=True)
    ]
    skew = None if clock.error else now - began - clock.duration / 2
    return PrometheusFacts(
        tuple(found),
        await world.retention(),
        skew,
        await world.number("max(abs(node_time_seconds - timestamp(node_time_seconds)))"),
        await world.throttled(found),
        world.errors,
    )


class _World:
    """The queries. What could not be asked is in ``errors``, by the code that it was for."""

    def __init__(self, prometheus: Prometheus, now: float) -> None:
        self.prometheus = prometheus
        self.now = now
        self.errors: dict[str, str] = {}
        self._selectors: dict[tuple[str, float | None], SelectorFacts] = {}

    async def samples(self, expr: str, code: str = "") -> Sequence[Sample] | None:
        """None when it failed."""
        answer = await self.prometheus.query_expr(expr)
        if answer.error is not None:
            self._failed(code, answer.error)
            return None
        return answer.samples

    async def number(self, expr: str, code: str = "") -> float | None:
        """The only value; None when it failed or there is none."""
        samples = await self.samples(expr, code)
        values = [each.value for each in samples or () if math.isfinite(each.value)]
        return values[0] if values else None

    async def count(self, selector: str, code: str = "") -> int | None:
        """How many series there are."""
        samples = await self.samples(f"count({selector})", code)
        return None if samples is None else int(samples[0].value) if samples else 0

    async def was_seen(self, selector: str, code: str) -> bool | None:
        """Whether there was a series at one of the hourly looks at the last week."""
        found = await self.prometheus.query_range(
            f"count({selector})", self.now - WEEK, self.now, HOUR
        )
        if found.error is not None:
            self._failed(code, found.error)
            return None
        return any(series.points for series in found.series)

    async def page(self, path: str, code: str, **parameters: str) -> Any:
        """``data`` of a page; None when it failed."""
        answer = await self.prometheus.read(path, parameters)
        if answer.error is not None:
            self._failed(code, answer.error)
        return answer.data

    async def selector_facts(self, selector: Selector) -> SelectorFacts:
        """All about one selector; asked once, wherever it stands."""
        key = (selector.text, selector.range)
        if key not in self._selectors:
            self._selectors[key] = await self._ask_selector(selector)
        return replace(self._selectors[key], selector=selector)

    async def _ask_selector(self, selector: Selector) -> SelectorFacts:
        text = selector.text
        series = await self.count(text, "P1")
        kind = await self._kind(selector.metric)
        if series is None:
            return SelectorFacts(selector, kind=kind)
        if not series:
            return await self._ask_absent(selector, kind)
        interval, job = await self._interval(selector)
        lag = await self.number(f"min(time() - timestamp({text}))", "N1")
        copies = await self._copies(text)
        return SelectorFacts(
            selector, series, interval=interval, job=job, kind=kind, lag=lag, copies=copies
        )

    async def _ask_absent(self, selector: Selector, kind: str | None) -> SelectorFacts:
        seen = await self.was_seen(selector.text, "P1")
        metric = selector.metric
        if not metric or not selector.matchers:
            return SelectorFacts(selector, 0, seen, metric_series=0, metric_seen=seen, kind=kind)
        present = await self.count(metric, "P1")
        was = True if present else await self.was_seen(metric, "P1")
        missing = [
            Missing(matcher, await self._values(metric, matcher))
            for matcher in (selector.matchers if present else ())
            if matcher.wants_something
            and not await self.count(selector_text(metric, (matcher,)), "P1")
        ]
        return SelectorFacts(selector, 0, seen, present, was, tuple(missing), kind=kind)

    async def _values(self, metric: str, matcher: Matcher) -> tuple[str, ...]:
        found = await self.samples(
            f'topk({_SHOWN_VALUES}, count by ({matcher.name}) ({metric}{{{matcher.name}!=""}}))'
        )
        return tuple(each.labels.get(matcher.name, "") for each in found or ())

    async def _kind(self, metric: str) -> str | None:
        if not metric:
            return None
        data = await self.page("metadata", "P3", metric=metric, limit="1")
        if data is None or not isinstance(data, dict):
            return None
        kinds = [each.get("type") for each in data.get(metric) or () if isinstance(each, dict)]
        return kinds[0] if kinds else None

    async def _interval(self, selector: Selector) -> tuple[float | None, str]:
        """By the samples' own distance: that of the target that they come from, or of the
        recording rule that makes them.
        """
        firsts = await self.samples(f"topk by (job) (1, {selector.text})", "P2")
        over = max(_SCRAPES, 2 * (selector.range or 0.0))
        worst: tuple[float | None, str] = (None, "")
        for sample in (firsts or ())[:_JOBS]:
            exact = ",".join(
                f"{name}={quoted(value)}"
                for name, value in sample.labels.items()
                if name != "__name__"
            )
            name = sample.labels.get("__name__", selector.metric)
            found = await self.prometheus.raw(f"{name}{{{exact}}}[{over:.0f}s]")
            if found.error is not None:
                self._failed("P2", found.error)
            times = [at for series in found.series[:1] for at, _ in series.points]
            gaps = [later - earlier for earlier, later in pairwise(times)]
            if gaps and (worst[0] is None or statistics.median(gaps) > worst[0]):
                worst = statistics.median(gaps), sample.labels.get("job", "")
        return worst

    async def _copies(self, text: str) -> tuple[Copies, ...]:
        names = ", ".join(CLUSTER_LABELS)
        found = await self.samples(f"count by ({names}) ({text})", "P10") or ()
        copies = []
        for label in CLUSTER_LABELS:
            values = sorted({each.labels.get(label, "") for each in found})
            if len(values) > 1:
                twice = f"count by (instance) (count by (instance, {label}) ({text})) > 1"
                shared = await self.count(twice, "P10")
                copies.append(Copies(label, tuple(values), shared or 0))
        return tuple(copies)

    async def retention(self) -> float | None:
        """In seconds."""
        data = await self.page("status/runtimeinfo", "P8")
        text = data.get("storageRetention", "") if isinstance(data, dict) else ""
        for part in text.replace(" or ", " ").split():
            try:
                return parse_duration(part)
            except ValueError:
                continue
        if data is not None:
            self._failed("P8", "the server does not say for how long it keeps samples")
        return None

    async def recorded(self) -> dict[str, tuple[str, ...]]:
        """Recording rules by name, each with the spellings of its expressions."""
        data = await self.page("rules", "P7", type="record")
        found: dict[str, tuple[str, ...]] = {}
        groups = data.get("groups") if isinstance(data, dict) else ()
        for rule in (each for group in groups or () for each in group.get("rules") or ()):
            try:
                expression = read(str(rule.get("query", "")))
            except UnreadError:
                continue
            name = str(rule.get("name", ""))
            found[name] = (*found.get(name, ()), spelled(expression.root))
        return found

    async def past(self, expr: str, seconds: float) -> Seen | None:
        """The values of the last week, at as many moments as the budget allows."""
        points = int(min(_POINTS, max(_LEAST_POINTS, _BUDGET / max(seconds, 1e-3))))
        whole = f"(\n{expr}\n)"  # it may end in a comment
        asked = {
            "least": f"min{whole}",
            "most": f"max{whole}",
            "odd": f"count({whole} * 0 != 0)",  # of NaN and infinity that is NaN
        }
        by: dict[str, list[tuple[float, float]]] = {}
        for what, query in asked.items():
            found = await self.prometheus.query_range(
                query, self.now - WEEK, self.now, WEEK / points
            )
            if found.error is not None:
                self._failed("P6" if what == "odd" else "P9", found.error)
                if what != "odd":
                    return None
            by[what] = [point for series in found.series for point in series.points]
        if not by["least"]:
            return None
        return Seen(
            min((v for _, v in by["least"] if not math.isnan(v)), default=math.nan),
            max((v for _, v in by["most"] if not math.isnan(v)), default=math.nan),
            len(by["least"]),
            self.now - by["least"][0][0],
            int(max((v for _, v in by["odd"]), default=0)),
        )

    async def touched(self, expr: str) -> int | None:
        """How many samples one evaluation touches; None where the server does not tell."""
        data = await self.page("query", "P7", query=expr, stats="all")
        stats = data.get("stats") if isinstance(data, dict) else None
        samples = stats.get("samples") if isinstance(stats, dict) else None
        found = samples.get("totalQueryableSamples") if isinstance(samples, dict) else None
        return found if isinstance(found, int) else None

    async def throttled(self, rules: Iterable[RuleFacts]) -> int | None:
        """Asked only where a rule goes by the pressure of nodes."""
        used = any(each.selector.metric == PRESSURE for rule in rules for each in rule.selectors)
        return await self.count(f"increase({_THROTTLED}[10m]) > 0", "P11") if used else None

    def _failed(self, code: str, error: str) -> None:
        if code:
            self.errors.setdefault(code, error)


async def _rule_facts(
    world: _World, rule: FileRule, answer: QueryResult, recorded: Mapping[str, tuple[str, ...]]
) -> RuleFacts:
    expr = rule.expr or ""
    expression: Expression | None = None
    unread = None
    try:
        expression = read(expr)
    except UnreadError as error:
        unread = str(error)
    if answer.error is not None:
        return RuleFacts(rule, answer, expression, unread)
    selectors = expression.selectors if expression else ()
    again = await world.prometheus.query_expr(expr)
    seconds = min(answer.duration, again.duration)
    return RuleFacts(
        rule,
        answer,
        expression,
        unread,
        tuple([await world.selector_facts(each) for each in selectors]),
        await world.past(expr, seconds),
        seconds,
        await world.touched(expr),
        tuple(_recorded_parts(expression, recorded)) if expression else (),
    )


def _recorded_parts(
    expression: Expression, recorded: Mapping[str, tuple[str, ...]]
) -> Iterable[tuple[str, str]]:
    for name, spellings in recorded.items():
        for text in spellings:
            if text in expression.parts:
                yield name, text
