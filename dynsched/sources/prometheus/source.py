"""What is asked of Prometheus: the rules' queries, their past, and other pages of its API."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, NamedTuple

import urllib3
import urllib3.exceptions

from dynsched.engine.columns import RangeVector
from dynsched.engine.model import QueryResult, Series
from dynsched.rules.rule_set import Rule
from dynsched.sources.prometheus.config import PrometheusConfig
from dynsched.sources.prometheus.decode import (
    AnswerLimit,
    Clocks,
    SeriesKeys,
    answer_limit,
    read_spans,
    read_vector,
)
from dynsched.sources.prometheus.session import Client, Parsed
from dynsched.util.errors import PastUnknownError

_SAME_TIME: Final = 2.0
"""Seconds that two clocks may differ: a Date header has whole seconds, and takes time to arrive."""


class ServerClock(NamedTuple):
    """``now``: Unix seconds by the server's clock, which is so many ``ahead`` of ours. ``behind``:
    by how many it answers as of before where a query names no time (VictoriaMetrics: 30).
    """

    now: float
    ahead: float = 0.0
    behind: float = 0.0


@dataclass(frozen=True)
class RangeResult:
    """Points are in Unix seconds by the *server's* clock."""

    series: Sequence[Series] = ()
    error: str | None = None
    warnings: tuple[str, ...] = ()
    duration: float = 0.0
    refused: bool = False


class PrometheusSource:
    """Satisfies ``controller.loop.Source``. Used from one event loop. ``limit``: how large an
    answer may be, at each query. ``max_concurrency``: as of `Client`.
    """

    def __init__(
        self,
        config: PrometheusConfig,
        *,
        clock: Callable[[], float] = time.time,
        limit: Callable[[], AnswerLimit] = lambda: answer_limit(0, 1),
        max_concurrency: int = 20,  # as Prometheus's own --query.max-concurrency
    ) -> None:
        self._client = Client(config, clock, max_concurrency)
        self._limit = limit
        self._series = SeriesKeys()
        self._ahead = 0.0
        if config.insecure_skip_verify and self._client.tls is not None:
            logging.getLogger(__name__).warning(
                "the TLS certificate of %s is not verified, as configured", config.url
            )
            # Said once, above; urllib3 would say it on stderr from time to time.
            urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)

    async def query(self, rule: Rule) -> QueryResult:
        """The samples of a rule as of now. Never raises."""
        return await self.query_expr(rule.expr or "", rule.node_labels[-1])

    async def query_expr(self, expr: str, label: str = "instance") -> QueryResult:
        """The same of any expression; ``label`` names the node in its series."""
        parse = partial(read_vector, self._series)
        return QueryResult(*await self._client.query(expr, parse, self._most(label)))

    async def raw(self, selector: str, label: str = "instance") -> RangeResult:
        """Samples as they were scraped, of a range selector (``up[10m]``). Never raises."""
        parse = partial(read_spans, SeriesKeys())
        return RangeResult(*await self._client.query(selector, parse, self._most(label)))

    async def query_range(
        self,
        expr: str,
        start: float,
        end: float,
        step: float,
        label: str = "instance",
        *,
        limit: AnswerLimit | None = None,
    ) -> RangeResult:
        """From ``start`` to ``end``, both included (Unix seconds by the server's clock), every
        ``step`` seconds. Never raises.
        """
        moments, most = (start, end, step), self._most(label, limit)
        parse = partial(read_spans, SeriesKeys())
        return RangeResult(*await self._client.query_range(expr, moments, parse, most))

    async def read(
        self, path: str, parameters: Mapping[str, str] | None = None, *, only_get: bool = True
    ) -> tuple[Any, str | None]:
        """``data`` of another page of the API, such as ``status/flags``, or why there is none.
        Never raises. ``only_get``: the page takes no POST.
        """
        items, error, *_ = await self._client.read(path, parameters or {}, only_get=only_get)
        return items[0] if items else None, error

    async def ask_clock(self) -> tuple[ServerClock, str | None]:
        """Ours where the server's is not known, and why where it could not be asked. From now on
        samples are older by what it is behind. Never raises.
        """
        began = self._client.clock()
        answer, error = await self.read("query", {"query": "vector(time())"}, only_get=False)
        ended = self._client.clock()
        try:
            now, answered_of = map(float, answer["result"][0]["value"])
        except (LookupError, TypeError, ValueError):
            return ServerClock(ended), error
        if not math.isfinite(now - answered_of):
            return ServerClock(ended), None
        self._client.behind = max(0.0, now - answered_of)
        return ServerClock(now, now - (began + ended) / 2, self._client.behind), None

    async def history(self, rule: Rule, start: float, end: float, step: float) -> Sequence[Series]:
        """All times by *our* clock; PastUnknownError when it failed. Where the server's clock
        differs, the answer tells by how much, and it is asked once more.
        """
        seen: list[float] = []
        expr, most = rule.expr or "", self._most(rule.node_labels[-1])

        def parse(body: bytearray, clocks: Clocks, most: AnswerLimit) -> Parsed[Sequence[Series]]:
            """As `read_spans`, and by how much the server's clock is ahead."""
            seen.append(clocks.ahead)
            return read_spans(self._series, body, clocks, most)

        for _ in range(2):
            ahead = self._ahead
            moments = (start + ahead, end + ahead, step)
            found, error, *_ = await self._client.query_range(expr, moments, parse, most)
            if error is not None:
                raise PastUnknownError(error)
            if abs(seen[-1] - ahead) <= _SAME_TIME:
                break
            self._ahead = seen[-1]
        return RangeVector.of(found).moved(-ahead) if ahead else found

    async def close(self) -> None:
        """End what is under way."""
        self._client.close()

    def _most(self, label: str, limit: AnswerLimit | None = None) -> AnswerLimit:
        return replace(limit or self._limit(), label=label)
