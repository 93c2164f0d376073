"""The history of queries: which moments, and fetched in which parts. A value takes 8 bytes."""

from __future__ import annotations

import asyncio
import math
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from dynsched.rules.rule_set import Rule
from dynsched.sources.prometheus import PrometheusSource, RangeResult
from dynsched.sources.prometheus.decode import AnswerLimit
from dynsched.util.errors import ExpectedError

PART_SAMPLES: Final = 250_000
"""Samples of one range query. While it is read, a sample takes some 200 bytes: 50 MB in all."""
PART_STEPS: Final = 8192  # Prometheus refuses more than 11,000 points for one series
IN_FLIGHT: Final = 2
"""Parts that are queried at a time: while one is read, the server computes the next."""
GIVE_UP: Final = 4
"""After this number of parts that failed in a row, a query is given up."""

_POINT_BYTES: Final = 64
_SERIES_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class Window:
    """``count`` moments from ``start`` (Unix seconds), ``step`` seconds apart. ``start`` is a
    multiple of ``step``: servers with a cache of results shift other moments to such.
    """

    start: float
    step: float
    count: int

    @property
    def end(self) -> float:
        return self.start + (self.count - 1) * self.step

    def at(self, index: int) -> float:
        return self.start + index * self.step


Part = range
"""The numbers of the moments of a window that are queried together."""


def window_of(since: float, until: float, step: float) -> Window:
    """All multiples of ``step`` within; ExpectedError where there is none."""
    first, last = math.ceil(since / step - 1e-6), math.floor(until / step + 1e-6)
    if last < first:
        raise ExpectedError(
            "there is no moment to evaluate: --since is shorter than --step, or not before --until"
        )
    return Window(first * step, step, last - first + 1)


def step_within(budget: int, wanted: float, since: float, until: float, series: int) -> float:
    """``wanted``, or the least multiple of it that keeps ``series`` values a step in the budget."""
    samples = series * ((until - since) / wanted + 1)
    return wanted * max(1, math.ceil(samples / budget - 1e-6))


def parts_of(window: Window, series: int) -> list[Part]:
    """In the order of time."""
    length = min(PART_STEPS, max(1, PART_SAMPLES // max(1, series)))
    firsts = range(0, window.count, length)
    return [range(first, min(first + length, window.count)) for first in firsts]


@dataclass(frozen=True, slots=True)
class Query:
    """A rule's query. Rules with the same query share its history."""

    expr: str
    labels: tuple[str, ...]
    """The first that a series has names its node."""
    higher_is_worse: bool

    @classmethod
    def of(cls, rule: Rule) -> Query | None:
        """None for a rule that Prometheus does not answer."""
        if rule.source != "prometheus" or rule.expr is None:
            return None
        return cls(rule.expr, rule.node_labels, rule.higher_is_worse)


class Missing(NamedTuple):
    part: Part
    error: str


@dataclass(slots=True)
class Past:
    """The history of one query."""

    query: Query
    window: Window
    parts: list[tuple[Part, dict[str, array[float]]]] = field(default_factory=list)
    """By name, a value for each moment of the part; NaN where there is no finite one."""
    missing: list[Missing] = field(default_factory=list)
    seen: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By name: the first and the last step with a value."""
    warnings: set[str] = field(default_factory=set)
    """What the server said of answers that were partial."""
    unnamed: int = 0
    """The most series of a part without a label that names a node."""
    asked: int = 0

    def take(self, part: Part, answer: RangeResult) -> None:
        """Parts are taken in their order. Of several series of a node the worst value counts."""
        columns: dict[str, array[float]] = {}
        labels, unnamed = self.query.labels, 0
        worse = max if self.query.higher_is_worse else min
        for series in answer.series:
            name = next((series.labels[each] for each in labels if each in series.labels), None)
            if name is None:
                unnamed += 1
                continue
            column = columns.setdefault(name, array("d", [math.nan]) * len(part))
            for at, value in series.points:
                index = round((at - self.window.at(part.start)) / self.window.step)
                # A server may give other moments than the requested ones.
                if 0 <= index < len(part) and math.isfinite(value):
                    column[index] = worse(value, column[index])  # of NaN, the second, the first
        for name, column in columns.items():
            known = [n for n, value in zip(part, column, strict=True) if not math.isnan(value)]
            if known:
                first, last = self.seen.get(name, (known[0], known[-1]))
                self.seen[name] = min(first, known[0]), max(last, known[-1])
        self.parts.append((part, columns))
        self.warnings.update(answer.warnings)
        self.unnamed = max(self.unnamed, unnamed)

    def by_step(self) -> Iterator[Mapping[str, float] | None]:
        """At each moment the values by name; None where the query failed."""
        step = 0
        for part, columns in self.parts:
            yield from [None] * (part.start - step)
            for index in range(len(part)):
                found = ((name, column[index]) for name, column in columns.items())
                yield {name: value for name, value in found if not math.isnan(value)}
            step = part.stop
        yield from [None] * (self.window.count - step)


async def fetch(
    source: PrometheusSource, window: Window, queries: Mapping[Query, int]
) -> dict[Query, Past]:
    """``queries``: with the number of series that each is expected to have. What failed is in
    ``missing``.
    """
    pasts = {query: Past(query, window) for query in queries}
    slots = asyncio.Semaphore(IN_FLIGHT)

    async def fill(past: Past, series: int) -> None:
        failed = 0
        for part in parts_of(window, series):
            if failed == GIVE_UP:
                past.missing.append(Missing(part, past.missing[-1].error))
                continue
            async with slots:
                answer = await _ask(source, past, part, series)
            if answer.error is None:
                past.take(part, answer)
                failed = 0
            else:
                past.missing.append(Missing(part, answer.error))
                failed += 1

    await asyncio.gather(*(fill(pasts[query], most) for query, most in queries.items()))
    return pasts


async def _ask(source: PrometheusSource, past: Past, part: Part, series: int) -> RangeResult:
    window, most = past.window, max(2 * series, 2000)
    limit = AnswerLimit(series, most, most * (_SERIES_BYTES + len(part) * _POINT_BYTES))
    past.asked += 1
    return await source.query_range(
        past.query.expr, window.at(part.start), window.at(part[-1]), window.step, limit=limit
    )
