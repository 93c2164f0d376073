"""How the tests ask a Prometheus source, and how they let its deadline pass."""

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from operator_support import until

from dynsched.engine.model import QueryResult, Sample
from dynsched.sources.prometheus import PrometheusConfig, PrometheusSource, RangeResult
from dynsched.sources.prometheus.decode import AnswerLimit


@contextlib.asynccontextmanager
async def source_at(
    url: str,
    *,
    clock: Callable[[], float] = time.time,
    limit: AnswerLimit | None = None,
    slots: int = 20,
    seconds: float = 60,
    **options: Any,
) -> AsyncIterator[PrometheusSource]:
    more = {} if limit is None else {"limit": lambda: limit}
    config = PrometheusConfig(url, timeout=seconds, **options)
    source = PrometheusSource(config, clock=clock, max_concurrency=slots, **more)
    try:
        yield source
    finally:
        await source.close()


async def ask(url: str, expr: str = "x", **options: Any) -> QueryResult:
    async with source_at(url, **options) as source:
        return await source.query_expr(expr)


async def error_of(url: str, expr: str = "x", **options: Any) -> str:
    return str((await ask(url, expr, **options)).error)


async def threads_end() -> None:
    """No query's thread stays, whatever its server does."""

    async def none_is_left() -> bool:
        return all(thread.name != "prometheus-query" for thread in threading.enumerate())

    await until(none_is_left, "the queries' threads end")


async def reaches(source: PrometheusSource, phase: str, count: int = 1) -> None:
    """So many queries are under way in this phase."""

    async def reached() -> bool:
        return sum(attempt.phase == phase for attempt in source._client._under_way) >= count

    await until(reached, phase)


class Deadlines:
    """`asyncio.timeout`, whose time passes when the test says so."""

    def __init__(self) -> None:
        self._made: list[asyncio.Timeout] = []
        self._real = asyncio.timeout

    def __call__(self, seconds: float | None) -> asyncio.Timeout:
        self._made.append(self._real(seconds))
        return self._made[-1]

    def pass_for(self, number: int) -> None:
        """For the query that was asked as the so-manieth, from 0."""
        self._made[number].reschedule(0)


class Fake:
    """A Prometheus that answers an expression by the first of ``answers`` whose key is in it."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.asked: list[str] = []
        self.clocks_asked = 0

    def _find(self, expr: str, none: Any) -> Any:
        self.asked.append(expr)
        return next((found for key, found in self.answers.items() if key in expr), none)

    async def ask_clock(self) -> None:
        self.clocks_asked += 1

    async def query_expr(self, expr: str, label: str = "instance") -> QueryResult:
        return self._find(expr, QueryResult())

    async def query_range(
        self, expr: str, start: float, end: float, step: float, label: str = "instance"
    ) -> RangeResult:
        return self._find(expr, RangeResult())


def vector(*samples: tuple[Mapping[str, str], float]) -> QueryResult:
    return QueryResult(tuple(Sample(labels, value, 0.0) for labels, value in samples))
