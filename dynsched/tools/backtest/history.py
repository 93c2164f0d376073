"""Fetches the history of queries in parts, and stores it with 8 bytes per value."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from dynsched.rules.rule_set import Rule
from dynsched.sources.prometheus import PrometheusSource, RangeResult
from dynsched.sources.prometheus.decode import AnswerLimit
from dynsched.util.errors import ExpectedError

PART_SAMPLES: Final = 250_000
"""Samples per range query. While it is read, a sample takes about 200 bytes: 50 MB in all."""
PART_STEPS: Final = 8192  # Prometheus refuses more than 11,000 points for one series

_POINT_BYTES: Final = 64
_SERIES_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class Window:
    """``count`` moments from ``start`` (Unix seconds), ``step`` seconds apart. ``start`` is a
    multiple of ``step``, because servers with a results cache shift other moments to multiples.
    """

    start: float
    step: float
    count: int

    @property
    def end(self) -> float:
        return self.at(self.count - 1)

    def at(self, index: int) -> float:
        return self.start + index * self.step


Part = range
"""Indexes of the moments of a window that are queried together."""


def window_of(since: float, until: float, step: float) -> Window:
    """All multiples of ``step`` from ``since`` to ``until``; ExpectedError if there is none."""
    first, last = math.ceil(since / step - 1e-6), math.floor(until / step + 1e-6)
    if last < first:
        raise ExpectedError(
            "there is no moment to evaluate: --since is shorter than --step, or not before --until"
        )
    return Window(first * step, step, last - first + 1)


def parts_of(window: Window, series: int) -> list[Part]:
    """The parts of a window in ascending order; ``series``: the expected number of series."""
    length = min(PART_STEPS, max(1, PART_SAMPLES // max(1, series)))
    firsts = range(0, window.count, length)
    return [range(first, min(first + length, window.count)) for first in firsts]


@dataclass(frozen=True, slots=True)
class Query:
    """A rule's query. Rules with the same query share its history."""

    expr: str
    labels: tuple[str, ...]
    """The first label that a series has names its node."""
    higher_is_worse: bool

    @classmethod
    def of(cls, rule: Rule) -> Query | None:
        """The query of a rule; None if its source is not Prometheus."""
        if rule.source != "prometheus" or rule.expr is None:
            return None
        return cls(rule.expr, rule.node_labels, rule.higher_is_worse)


@dataclass(slots=True)
class Past:
    """The history of one query, up to the first part that failed."""

    query: Query
    window: Window
    parts: list[tuple[Part, dict[str, array[float]]]] = field(default_factory=list)
    """By name, a value for each moment of the part; NaN if there is no finite one."""
    error: str | None = None
    """Why the part after the last one failed; None if none did."""
    warnings: set[str] = field(default_factory=set)
    """The server's warnings about partial answers."""

    @property
    def end(self) -> int:
        """The step after the last part."""
        return self.parts[-1][0].stop if self.parts else 0

    @property
    def first(self) -> int | None:
        """The first step with a value."""
        return next((step for step, values in enumerate(self.by_step()) if values), None)

    @property
    def names(self) -> set[str]:
        return {name for _, columns in self.parts for name in columns}

    def take(self, part: Part, answer: RangeResult) -> None:
        """Add the next part, in ascending order. If a node has several series, the worst value
        counts.
        """
        columns: dict[str, array[float]] = {}
        worse = max if self.query.higher_is_worse else min
        for series in answer.series:
            labels = (each for each in self.query.labels if each in series.labels)
            if (label := next(labels, None)) is None:
                continue
            name = series.labels[label]
            column = columns.setdefault(name, array("d", [math.nan]) * len(part))
            for at, value in series.points:
                index = round((at - self.window.at(part.start)) / self.window.step)
                # A server may return other moments than the requested ones.
                if 0 <= index < len(part) and math.isfinite(value):
                    # If the second is NaN, max and min return the first.
                    column[index] = worse(value, column[index])
        self.parts.append((part, columns))
        self.warnings.update(answer.warnings)

    def by_step(self) -> Iterator[Mapping[str, float]]:
        """For each moment, the values by name; no values once the query has failed."""
        for part, columns in self.parts:
            for index in range(len(part)):
                found = ((name, column[index]) for name, column in columns.items())
                yield {name: value for name, value in found if not math.isnan(value)}
        yield from [{}] * (self.window.count - self.end)


async def fetch(
    source: PrometheusSource, window: Window, queries: Mapping[Query, int]
) -> dict[Query, Past]:
    """Fetch the history of all queries. ``queries``: with their expected numbers of series."""
    pasts = {query: Past(query, window) for query in queries}
    for query, past in pasts.items():
        for part in parts_of(window, queries[query]):
            answer = await _ask(source, past, part, queries[query])
            if answer.error is not None:
                past.error = answer.error
                break
            past.take(part, answer)
    return pasts


async def _ask(source: PrometheusSource, past: Past, part: Part, series: int) -> RangeResult:
    window, most = past.window, max(2 * series, 2000)
    limit = AnswerLimit(series, most, most * (_SERIES_BYTES + len(part) * _POINT_BYTES))
    return await source.query_range(
        past.query.expr, window.at(part.start), window.at(part[-1]), window.step, limit=limit
    )
