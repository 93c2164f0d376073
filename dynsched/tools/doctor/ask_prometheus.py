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
from typing import Any, Final

from dynsched.engine.model import QueryResult, Sample
from dynsched.rules.rule_set import FileRule
from dynsched.sources.prometheus import PrometheusSource
from dynsched.tools.doctor.expressions import Matcher, Selector, quoted, read, selector_text
from dynsched.tools.doctor.gathered import Copies, Missing, RuleFacts, Seen, SelectorFacts, World
from dynsched.util.durations import parse_duration
from dynsched.util.formatting import as_mapping, as_mappings

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
    *("cluster", "cluster_name", "cluster_id", "k8s_cluster", "kubernetes_cluster"),
    *("prometheus", "prometheus_replica", "replica"),
)
_THROTTLED: Final = "container_cpu_cfs_throttled_periods_total"
PRESSURE: Final = "node_pressure_cpu_waiting_seconds_total"


class NotReachedError(Exception):
    """Nothing of what was asked was answered; the message is the first error."""


async def ask_prometheus(prometheus: PrometheusSource, world: World) -> World:
    """The world with all that Prometheus tells of its rules; NotReachedError when it tells none."""
    rules = [rule for rule in world.rule_set.file_rules if rule.source == "prometheus"]
    if not rules:
        return world
    began = time.time()
    clock = await prometheus.query_expr("vector(time())")
    now = clock.samples[0].value if clock.samples else began
    answers = await asyncio.gather(*(prometheus.query_expr(rule.expr or "") for rule in rules))
    if clock.error and all(answer.error for answer in answers):
        raise NotReachedError(clock.error)
    asked = _Asked(prometheus, now)
    recorded = await asked.recorded()
    found = [
        await _rule_facts(asked, rule, answer, recorded)
        for rule, answer in zip(rules, answers, strict=True)
    ]
    return replace(
        world,
        rules=tuple(found),
        retention=await asked.retention(),
        skew=None if clock.error else now - began - clock.duration / 2,
        node_skew=await asked.number("max(abs(node_time_seconds - timestamp(node_time_seconds)))"),
        throttled=await asked.throttled(found),
        errors=asked.errors,
    )


async def _rule_facts(
    asked: _Asked, rule: FileRule, answer: QueryResult, recorded: Mapping[str, str]
) -> RuleFacts:
    expr = rule.expr or ""
    expression = read(expr)
    if answer.error is not None:
        return RuleFacts(rule, answer, expression)
    again = await asked.prometheus.query_expr(expr)
    seconds = min(answer.duration, again.duration)
    found = ((recorded[part], part) for part in expression.parts if part in recorded)
    return RuleFacts(
        rule,
        answer,
        expression,
        selectors=tuple([await asked.selector(each) for each in expression.selectors]),
        past=await asked.past(expr, seconds),
        seconds=seconds,
        samples=await asked.touched(expr),
        recorded=next(found, None),
    )


class _Asked:
    """The queries. What could not be asked is in ``errors``, by the code that it was for."""

    def __init__(self, prometheus: PrometheusSource, now: float) -> None:
        self.prometheus = prometheus
        self.now = now
        self.errors: dict[str, str] = {}
        self._selectors: dict[tuple[str, float | None], SelectorFacts] = {}

    async def samples(self, expr: str, code: str = "") -> Sequence[Sample] | None:
        """None when it failed."""
        answer = await self.prometheus.query_expr(expr)
        return None if self._failed(code, answer.error) else answer.samples

    async def number(self, expr: str, code: str = "") -> float | None:
        """The only value; None when it failed or there is none."""
        samples = await self.samples(expr, code)
        return next((each.value for each in samples or () if math.isfinite(each.value)), None)

    async def count(self, selector: str, code: str = "") -> int | None:
        """How many series there are."""
        samples = await self.samples(f"count({selector})", code)
        return None if samples is None else int(samples[0].value) if samples else 0

    async def was_seen(self, selector: str) -> bool | None:
        """Whether there was a series at one of the hourly looks at the last week."""
        found = await self.prometheus.query_range(
            f"count({selector})", self.now - WEEK, self.now, HOUR
        )
        if self._failed("P1", found.error):
            return None
        return any(series.points for series in found.series)

    async def page(self, path: str, code: str, **parameters: str) -> Mapping[str, Any]:
        """``data`` of a page; empty when it failed."""
        answer = await self.prometheus.read(path, parameters)
        self._failed(code, answer.error)
        return as_mapping(answer.data)

    async def selector(self, selector: Selector) -> SelectorFacts:
        """All about one selector; asked once, wherever it stands."""
        key = (selector.text, selector.range)
        if key not in self._selectors:
            self._selectors[key] = await self._ask_selector(selector)
        return replace(self._selectors[key], selector=selector)

    async def _ask_selector(self, selector: Selector) -> SelectorFacts:
        text = selector.text
        series = await self.count(text, "P1")
        facts = SelectorFacts(selector, series, kind=await self._kind(selector.metric))
        if series is None:
            return facts
        if not series:
            return await self._ask_absent(facts)
        interval, job = await self._interval(selector)
        lag = await self.number(f"min(time() - timestamp({text}))", "N1")
        return replace(facts, interval=interval, job=job, lag=lag, copies=await self._copies(text))

    async def _ask_absent(self, facts: SelectorFacts) -> SelectorFacts:
        metric, matchers = facts.selector.metric, facts.selector.matchers
        seen = await self.was_seen(facts.selector.text)
        if not metric or not matchers:
            return replace(facts, seen=seen, metric_series=0, metric_seen=seen)
        present = await self.count(metric, "P1")
        missing = [
            Missing(matcher, await self._values(metric, matcher))
            for matcher in (matchers if present else ())
            if matcher.op in ("=", "=~")
            and matcher.value not in ("", ".*", ".+")  # which select what has no label, or any
            and not await self.count(selector_text(metric, (matcher,)), "P1")
        ]
        return replace(
            facts,
            seen=seen,
            metric_series=present,
            metric_seen=True if present else await self.was_seen(metric),
            missing=tuple(missing),
        )

    async def _values(self, metric: str, matcher: Matcher) -> tuple[str, ...]:
        found = await self.samples(
            f'topk({_SHOWN_VALUES}, count by ({matcher.name}) ({metric}{{{matcher.name}!=""}}))'
        )
        return tuple(each.labels.get(matcher.name, "") for each in found or ())

    async def _kind(self, metric: str) -> str | None:
        if not metric:
            return None
        data = await self.page("metadata", "P3", metric=metric, limit="1")
        return next((each.get("type") for each in as_mappings(data.get(metric))), None)

    async def _interval(self, selector: Selector) -> tuple[float | None, str]:
        """By the samples' own distance: that of the target that they come from, or of the
        recording rule that makes them.
        """
        firsts = await self.samples(f"topk by (job) (1, {selector.text})", "P2")
        over = max(_SCRAPES, 2 * (selector.range or 0.0))
        worst: tuple[float | None, str] = (None, "")
        for sample in (firsts or ())[:_JOBS]:
            labels = dict(sample.labels)
            name = labels.pop("__name__", selector.metric)
            exact = ",".join(f"{label}={quoted(value)}" for label, value in labels.items())
            found = await self.prometheus.raw(f"{name}{{{exact}}}[{over:.0f}s]")
            self._failed("P2", found.error)
            times = [at for series in found.series[:1] for at, _ in series.points]
            gaps = [later - earlier for earlier, later in pairwise(times)]
            if gaps and statistics.median(gaps) > (worst[0] or 0.0):
                worst = statistics.median(gaps), labels.get("job", "")
        return worst

    async def _copies(self, text: str) -> tuple[Copies, ...]:
        found = await self.samples(f"count by ({', '.join(CLUSTER_LABELS)}) ({text})", "P10") or ()
        copies = []
        for label in CLUSTER_LABELS:
            values = sorted({each.labels.get(label, "") for each in found})
            if len(values) > 1:
                twice = f"count by (instance) (count by (instance, {label}) ({text})) > 1"
                copies.append(Copies(label, tuple(values), await self.count(twice, "P10") or 0))
        return tuple(copies)

    async def retention(self) -> float | None:
        """In seconds."""
        data = await self.page("status/runtimeinfo", "P8")
        for part in str(data.get("storageRetention")).split():  # `15d or 1GiB`
            try:
                return parse_duration(part)
            except ValueError:
                continue
        self._failed("P8", "the server does not say for how long it keeps samples")
        return None

    async def recorded(self) -> dict[str, str]:
        """The names of recording rules, by the spelling of their expressions."""
        data = await self.page("rules", "P7", type="record")
        found: dict[str, str] = {}
        for group in as_mappings(data.get("groups")):
            for rule in as_mappings(group.get("rules")):
                for text in read(str(rule.get("query"))).parts[:1]:
                    found.setdefault(text, str(rule.get("name")))
        return found

    async def past(self, expr: str, seconds: float) -> Seen | None:
        """The values of the last week, at as many moments as the budget allows."""
        points = int(min(_POINTS, max(_LEAST_POINTS, _BUDGET / max(seconds, 1e-3))))
        whole = f"(\n{expr}\n)"  # it may end in a comment
        found = []
        for code, query in (
            ("P9", f"min{whole}"),
            ("P9", f"max{whole}"),
            ("P6", f"count({whole} * 0 != 0)"),  # of NaN and infinity that is NaN
        ):
            answer = await self.prometheus.query_range(
                query, self.now - WEEK, self.now, WEEK / points
            )
            if self._failed(code, answer.error) and code == "P9":
                return None
            found.append([point for series in answer.series for point in series.points])
        least, most, odd = found
        if not least:
            return None
        return Seen(
            min((v for _, v in least if not math.isnan(v)), default=math.nan),
            max((v for _, v in most if not math.isnan(v)), default=math.nan),
            self.now - least[0][0],
            int(max((v for _, v in odd), default=0)),
        )

    async def touched(self, expr: str) -> int | None:
        """How many samples one evaluation touches; None where the server does not tell."""
        data = await self.page("query", "P7", query=expr, stats="all")
        stats = as_mapping(as_mapping(data.get("stats")).get("samples"))
        found = stats.get("totalQueryableSamples")
        return found if isinstance(found, int) else None

    async def throttled(self, rules: Iterable[RuleFacts]) -> int | None:
        """Asked only where a rule goes by the pressure of nodes."""
        used = any(each.selector.metric == PRESSURE for rule in rules for each in rule.selectors)
        return await self.count(f"increase({_THROTTLED}[10m]) > 0", "P11") if used else None

    def _failed(self, code: str, error: str | None) -> bool:
        if code and error:
            self.errors.setdefault(code, error)
        return error is not None
