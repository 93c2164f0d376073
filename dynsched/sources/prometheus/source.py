"""Queries Prometheus: the rules' expressions, their history, and other pages of its API."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import urllib3
import urllib3.exceptions
from prometheus_api_client import PrometheusConnect

from dynsched.core.samples import QueryResult, Series
from dynsched.rules.promql import Reach, UnreadError, reach_by_server
from dynsched.rules.rule_set import Rule
from dynsched.sources.prometheus.config import PrometheusConfig
from dynsched.sources.prometheus.decode import (
    AnswerLimit,
    answer_limit,
    parse_data,
    read_spans,
    read_vector,
)
from dynsched.sources.prometheus.session import Answer, Client, Session
from dynsched.util.errors import PastUnknownError

logger = logging.getLogger(__name__)

_PAGE_LIMIT: Final = AnswerLimit(0, 50_000, 32 << 20)


class ServerClock(NamedTuple):
    """``now``: Unix seconds on the server's clock. ``behind``: a query without a time is evaluated
    at this number of seconds before now (VictoriaMetrics: 30).
    """

    now: float
    behind: float = 0.0


@dataclass(frozen=True)
class RangeResult:
    """Times are Unix seconds on the *server's* clock."""

    series: Sequence[Series] = ()
    error: str | None = None
    warnings: tuple[str, ...] = ()
    duration: float = 0.0
    refused: bool = False


class PrometheusSource:
    """For one event loop. ``limit`` returns the maximum size of a response, at each query."""

    def __init__(
        self,
        config: PrometheusConfig,
        *,
        clock: Callable[[], float] = time.time,
        limit: Callable[[], AnswerLimit] = lambda: answer_limit(0, 1),
        max_concurrency: int = 20,  # threads; as in Prometheus's --query.max-concurrency
    ) -> None:
        self._client = Client(config, clock, max_concurrency)
        self._limit = limit
        if config.insecure_skip_verify and config.url.startswith("https:"):
            logger.warning("the TLS certificate of %s is not verified, as configured", config.url)
            # Logged once, above; urllib3 would repeat it on stderr.
            urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)

    async def query(self, rule: Rule) -> QueryResult:
        """The samples of a rule as of now. Never raises."""
        return await self.query_expr(rule.expr or "")

    async def query_expr(self, expr: str) -> QueryResult:
        """The samples of any expression. Never raises."""
        # Without `time` the server uses its own clock. If our clock were off, our time would select
        # samples that do not exist yet, or old ones.
        answer = await self._client.ask(
            lambda api, _, more: api.custom_query(expr, more), read_vector, self._limit()
        )
        return QueryResult(*answer)

    async def query_range(
        self,
        expr: str,
        start: float,
        end: float,
        step: float,
        *,
        limit: AnswerLimit | None = None,
    ) -> RangeResult:
        """The series from ``start`` to ``end``, both included (Unix seconds on the server's clock),
        every ``step`` seconds. Never raises.
        """
        ends = [datetime.fromtimestamp(moment, UTC) for moment in (start, end)]
        # PrometheusConnect rounds both to whole seconds; these parameters override its own.
        exact = {"start": f"{start:.3f}", "end": f"{end:.3f}"}
        answer = await self._client.ask(
            lambda api, _, more: api.custom_query_range(expr, *ends, f"{step:.3f}", exact | more),
            read_spans,
            limit or self._limit(),
        )
        return RangeResult(*answer)

    async def read(self, path: str, parameters: Mapping[str, str]) -> tuple[Any, str | None]:
        """``data`` of another page of the API, such as ``labels``, and the error, if any. Never
        raises.
        """

        def call(api: PrometheusConnect, session: Session, _: object) -> Answer:
            """PrometheusConnect has no method for these pages."""
            url = f"{api.url}/api/v1/{path}"
            return session.request("POST", url, params=parameters, headers=api.headers)

        items, error, *_ = await self._client.ask(call, parse_data, _PAGE_LIMIT)
        return items[0] if items else None, error

    async def reach(self, expr: str) -> Reach | None:
        """How far back an expression reads, according to the server's parser. None if unknown: not
        every server has this page.
        """
        tree, error = await self.read("parse_query", {"query": expr})
        try:
            return None if error else reach_by_server(tree)
        except UnreadError:
            return None

    async def ask_clock(self) -> tuple[ServerClock, str | None]:
        """The server's clock, or ours if unknown, and the error of the query, if any. From now on,
        samples count as older by the number of seconds that the server is behind. Never raises.
        """
        answer, error = await self.read("query", {"query": "vector(time())"})
        ours = self._client.clock()
        try:
            now, evaluated_at = map(float, answer["result"][0]["value"])
        except (LookupError, TypeError, ValueError):
            return ServerClock(ours), error
        if not math.isfinite(now - evaluated_at):
            return ServerClock(ours), None
        self._client.behind = max(0.0, now - evaluated_at)
        return ServerClock(now, self._client.behind), None

    async def history(self, rule: Rule, start: float, end: float, step: float) -> Sequence[Series]:
        """The series of a rule. PastUnknownError if the query fails."""
        found = await self.query_range(rule.expr or "", start, end, step)
        if found.error is not None:
            raise PastUnknownError(found.error)
        return found.series
