"""Helpers to query a Prometheus source, and a fake source."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from dynsched.core.samples import QueryResult, Sample
from dynsched.rules.promql import Reach
from dynsched.sources.prometheus import PrometheusConfig, PrometheusSource, RangeResult
from dynsched.sources.prometheus.decode import AnswerLimit


def source_at(
    url: str,
    *,
    clock: Callable[[], float] = time.time,
    limit: AnswerLimit | None = None,
    slots: int = 20,
    seconds: float = 60,
    **options: Any,
) -> PrometheusSource:
    more = {} if limit is None else {"limit": lambda: limit}
    config = PrometheusConfig(url, timeout=seconds, **options)
    return PrometheusSource(config, clock=clock, max_concurrency=slots, **more)


async def ask(url: str, expr: str = "x", **options: Any) -> QueryResult:
    return await source_at(url, **options).query_expr(expr)


async def error_of(url: str, expr: str = "x", **options: Any) -> str:
    return str((await ask(url, expr, **options)).error)


class Fake:
    """Answers an expression with the first of ``answers`` whose key occurs in it."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.asked: list[str] = []
        self.clocks_asked = 0
        self.reaches: dict[str, Reach] = {}

    def _find(self, expr: str, none: Any) -> Any:
        self.asked.append(expr)
        return next((found for key, found in self.answers.items() if key in expr), none)

    async def ask_clock(self) -> None:
        self.clocks_asked += 1

    async def reach(self, expr: str) -> Reach | None:
        return self.reaches.get(expr)

    async def query_expr(self, expr: str) -> QueryResult:
        return self._find(expr, QueryResult())

    async def query_range(self, expr: str, start: float, end: float, step: float) -> RangeResult:
        return self._find(expr, RangeResult())


def vector(*samples: tuple[Mapping[str, str], float]) -> QueryResult:
    return QueryResult(tuple(Sample(labels, value, 0.0) for labels, value in samples))
