"""The asynchronous face: queries side by side, each on its own thread, none past its deadline."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import requests
import urllib3
import urllib3.exceptions
from prometheus_api_client import PrometheusConnect

from dynsched.engine.columns import RangeVector
from dynsched.engine.model import QueryResult, Series
from dynsched.rules.rule_set import Rule
from dynsched.sources.prometheus.config import PrometheusConfig
from dynsched.sources.prometheus.decode import (
    AnswerLimit,
    Clocks,
    SeriesKeys,
    answer_limit,
    parse_data,
    read_spans,
    read_vector,
)
from dynsched.sources.prometheus.query_errors import QueryFailedError, timed_out
from dynsched.sources.prometheus.session import Attempt, Client, Parsed, Question
from dynsched.util.errors import PastUnknownError
from dynsched.util.threads import on_thread

_LOG = logging.getLogger(__name__)
_T = TypeVar("_T")
_Parse = Callable[[bytearray, Clocks, AnswerLimit], Parsed[_T]]
_Result = tuple[_T | tuple[()], str | None, tuple[str, ...], float]
"""What came, or the error; the warnings; and how many seconds it took."""
_STOPPING: Final = "the query was cancelled because dynsched is stopping"
_SAME_TIME: Final = 2.0
"""Seconds that two clocks may differ: a Date header has whole seconds, and takes time to arrive."""
_PAGE_LIMIT: Final = AnswerLimit(0, 50_000, 32 << 20)


@dataclass(frozen=True, slots=True)
class PageResult:
    data: Any = None
    error: str | None = None


@dataclass(frozen=True)
class RangeResult:
    """Points are in Unix seconds by the *server's* clock."""

    series: Sequence[Series] = ()
    error: str | None = None
    warnings: tuple[str, ...] = ()
    duration: float = 0.0


class PrometheusSource:
    """Satisfies ``controller.loop.Source``. Used from one event loop. ``limit``: how large an
    answer may be, at each query. A query beyond ``max_concurrency`` waits within its own deadline.
    """

    def __init__(
        self,
        config: PrometheusConfig,
        *,
        clock: Callable[[], float] = time.time,
        limit: Callable[[], AnswerLimit] = lambda: answer_limit(0, 1),
        max_concurrency: int = 20,  # as Prometheus's own --query.max-concurrency
    ) -> None:
        self._client = Client(config, clock)
        self._limit = limit
        self._slots = asyncio.Semaphore(max_concurrency)
        self._under_way: set[Attempt] = set()
        self._closed = False
        self._series = SeriesKeys()
        self._ahead = 0.0
        if config.insecure_skip_verify and config.url.startswith("https://"):
            _LOG.warning("the TLS certificate of %s is not verified, as configured", config.url)
            # Said once, above; urllib3 would say it on stderr from time to time.
            urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)

    def now(self) -> float:
        return self._client.clock()

    async def query(self, rule: Rule) -> QueryResult:
        return await self.query_expr(rule.expr or "", rule.node_labels[-1])

    async def query_expr(self, expr: str, label: str = "instance") -> QueryResult:
        return QueryResult(*await self._instant(expr, partial(read_vector, self._series), label))

    async def raw(self, selector: str, label: str = "instance") -> RangeResult:
        """Samples as they were scraped, of a range selector (``up[10m]``). Never raises."""
        return RangeResult(*await self._instant(selector, partial(read_spans, SeriesKeys()), label))

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
        parse = partial(read_spans, SeriesKeys())
        return RangeResult(*await self._range(expr, (start, end, step), parse, label, limit))

    async def _instant(self, expr: str, parse: _Parse[_T], label: str) -> _Result[_T]:
        most = replace(self._limit(), label=label)
        question = Question(lambda api, _, more: api.custom_query(expr, more), parse, most)
        return await self._result(question)

    async def _range(
        self,
        expr: str,
        moments: tuple[float, float, float],
        parse: _Parse[_T],
        label: str,
        limit: AnswerLimit | None = None,
    ) -> _Result[_T]:
        start, end, step = moments
        ends = [datetime.fromtimestamp(moment, UTC) for moment in (start, end)]
        # PrometheusConnect rounds both to whole seconds; its parameters give way to these.
        exact = {"start": f"{start:.3f}", "end": f"{end:.3f}"}
        question = Question(
            lambda api, _, more: api.custom_query_range(expr, *ends, f"{step:.3f}", exact | more),
            parse,
            replace(limit or self._limit(), label=label),
        )
        return await self._result(question)

    async def read(
        self, path: str, parameters: Mapping[str, str] | None = None, *, only_get: bool = True
    ) -> PageResult:
        """``data`` of another page of the API, such as ``status/flags``. Never raises.
        ``only_get``: the page takes no POST.
        """

        def call(api: PrometheusConnect, session: requests.Session, _: dict[str, str]) -> Any:
            # PrometheusConnect has no call of its own for other pages.
            url, asked = f"{api.url}/api/v1/{path}", dict(parameters or {})
            answered = session.get(url, params=asked, headers=api.headers)
            return answered.json()["data"]["result"]  # as session._Answered has it

        question: Question[tuple[Any, ...]] = Question(call, parse_data, _PAGE_LIMIT, only_get)
        items, error, *_ = await self._result(question)
        return PageResult(items[0] if items else None, error)

    async def history(self, rule: Rule, start: float, end: float, step: float) -> Sequence[Series]:
        """All times by *our* clock; PastUnknownError when it failed. Where the server's clock
        differs, the answer tells by how much, and it is asked once more.
        """
        seen: list[float] = []

        def parse(body: bytearray, clocks: Clocks, most: AnswerLimit) -> Parsed[Sequence[Series]]:
            seen.append(clocks.ahead)
            return read_spans(self._series, body, clocks, most)

        for _ in range(2):
            ahead = self._ahead
            moments = (start + ahead, end + ahead, step)
            label = rule.node_labels[-1]
            found, error, *_ = await self._range(rule.expr or "", moments, parse, label)
            if error is not None:
                raise PastUnknownError(error)
            if abs(seen[-1] - ahead) <= _SAME_TIME:
                break
            self._ahead = seen[-1]
        return RangeVector.of(found).moved(-ahead) if ahead else found

    async def close(self) -> None:
        """Threads are not waited for: one that hangs in the resolver does not end."""
        self._closed = True
        for attempt in self._under_way:
            attempt.abort(_STOPPING)

    async def _result(self, question: Question[_T]) -> _Result[_T]:
        started = time.monotonic()
        attempt = Attempt(self._client.config.timeout)
        try:
            items, warnings = await self._within_deadline(question, attempt)
        except QueryFailedError as failed:
            error = f"Prometheus at {self._client.config.url}: {failed}"
            return (), error, (), time.monotonic() - started
        finally:
            attempt.abort("the query was given up")  # does nothing where it has ended
        return items, None, warnings, time.monotonic() - started

    async def _within_deadline(self, question: Question[_T], attempt: Attempt) -> Parsed[_T]:
        """Ask on a thread; its slot is free again when the thread has ended."""
        if self._closed:
            raise QueryFailedError(_STOPPING)
        asked, loop = False, asyncio.get_running_loop()

        def free_slot() -> None:
            self._under_way.discard(attempt)
            self._slots.release()

        def ended(_: object) -> None:
            with contextlib.suppress(RuntimeError):  # the event loop is closed
                loop.call_soon_threadsafe(free_slot)

        try:
            async with asyncio.timeout(attempt.timeout):
                await self._slots.acquire()
                asked = True
                self._under_way.add(attempt)
                answer = on_thread("prometheus-query", partial(self._ask, question, attempt))
                answer.add_done_callback(ended)
                return await asyncio.wrap_future(answer)
        except TimeoutError:
            if asked:
                raise QueryFailedError(timed_out(attempt.timeout, attempt.phase)) from None
            raise QueryFailedError(
                f"not asked within {attempt.timeout:g} s: {len(self._under_way)} queries before it "
                "are still under way; is the DNS or the server hanging?"
            ) from None
        except OSError as error:  # no thread
            raise QueryFailedError(f"not asked: {error.strerror}") from None

    def _ask(self, question: Question[_T], attempt: Attempt) -> Parsed[_T]:
        try:
            return self._client.ask(question, attempt)
        except QueryFailedError:
            raise
        except Exception as error:  # noqa: BLE001  # our defect must not stop the other rules
            # Where it came from, but not its text: it could hold a secret.
            frame = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{type(error).__name__} in {Path(frame.filename).name}:{frame.lineno}"
            _LOG.error("a query failed because of a bug in dynsched: %s", where)
            raise QueryFailedError(
                f"this is a defect in dynsched, please report it: {where}"
            ) from None
        finally:
            attempt.close()
