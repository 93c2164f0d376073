"""The asynchronous face: queries side by side, each on its own thread, none past its deadline."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, TypeVar

import urllib3
import urllib3.exceptions

from dynsched.core.model import QueryResult, Series
from dynsched.core.rules import Rule
from dynsched.sources.prometheus.config import Credentials, PrometheusConfig
from dynsched.sources.prometheus.failures import QueryFailedError, timed_out
from dynsched.sources.prometheus.tls import TlsFiles
from dynsched.sources.prometheus.transport import Attempt, Request, exchange
from dynsched.sources.prometheus.wire import Clocks, RangeResult, parse_matrix, parse_vector

_LOG = logging.getLogger(__name__)
_T = TypeVar("_T")
_Parse = Callable[[bytes, Clocks], tuple[_T, tuple[str, ...]]]
# What Prometheus itself evaluates at a time (--query.max-concurrency); more would wait there.
MAX_CONCURRENCY: Final = 20
_STOPPING: Final = "the query was given up, because dynsched is stopping"
_CLOSING: Final = 1.0  # seconds that `close` waits for threads that were told to end


class PrometheusSource:
    """Instant and range queries against one Prometheus; satisfies ``loop.Source``.

    Used from one event loop. ``clock`` gives Unix seconds. At most ``max_concurrency`` queries are
    under way at a time; a further one waits for its turn within its own deadline.
    """

    def __init__(
        self,
        config: PrometheusConfig,
        *,
        clock: Callable[[], float] = time.time,
        max_concurrency: int = MAX_CONCURRENCY,
    ) -> None:
        self._config = config
        self._clock = clock
        self._tls = TlsFiles(config)
        self._methods: tuple[str, ...] = ("POST", "GET")
        self._slots = asyncio.Semaphore(max_concurrency)
        self._under_way: set[Attempt] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._closed = False
        self._without_past: dict[str, str] = {}
        if config.insecure_skip_verify and config.url.startswith("https://"):
            _LOG.warning("the TLS certificate of %s is not verified, as configured", config.url)
            # Said once, above; urllib3 would say it on stderr from time to time.
            urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)

    async def query(self, rule: Rule) -> QueryResult:
        """The samples of the rule's expression now, or the reason why there are none."""
        if rule.expr is None:
            return QueryResult(error=f"rule {rule.name} has no expr: Prometheus cannot answer it")
        found = await self.query_expr(rule.expr)
        self._tell_the_past(rule, found.error)
        return found

    async def query_expr(self, expr: str) -> QueryResult:
        """As ``query``, for an expression that belongs to no rule."""
        started = time.monotonic()
        try:
            samples, warnings = await self._ask("/api/v1/query", {"query": expr}, parse_vector)
        except QueryFailedError as error:
            return QueryResult(error=str(error), duration=time.monotonic() - started)
        return QueryResult(samples, warnings=warnings, duration=time.monotonic() - started)

    async def query_range(self, expr: str, start: float, end: float, step: float) -> RangeResult:
        """The values of ``expr`` from ``start`` to ``end`` (Unix seconds), every ``step`` seconds.

        Both ends are included and are times by the server's clock, as are the points' times.
        Never raises, as ``query``.
        """
        started = time.monotonic()
        form = {"query": expr, "start": f"{start:.3f}", "end": f"{end:.3f}", "step": f"{step:.3f}"}
        try:
            series, warnings = await self._ask("/api/v1/query_range", form, parse_matrix)
        except QueryFailedError as error:
            return RangeResult(error=str(error), duration=time.monotonic() - started)
        return RangeResult(series, warnings=warnings, duration=time.monotonic() - started)

    async def history(
        self, rule: Rule, start: float, end: float, step: float
    ) -> tuple[Series, ...] | None:
        """``query_range`` of the rule's expression; None when it failed, and a log line why at the
        next ``query`` of the rule.
        """
        found = await self.query_range(rule.expr or "", start, end, step)
        if found.error is None:
            return found.series
        self._without_past[rule.name] = found.error
        return None

    def _tell_the_past(self, rule: Rule, error: str | None) -> None:
        """That a rule's past could not be had, when it is asked next: why it cannot be queried at
        all is told by whoever asks.
        """
        past = self._without_past.pop(rule.name, None)
        if past is not None and past != error:
            text = "rule %s: its past could not be had: %s"
            _LOG.warning(text, rule.name, past, extra={"rule": rule.name})

    async def close(self) -> None:
        """End what is under way (those queries come to an error) and refuse what comes after."""
        self._closed = True
        for attempt in self._under_way:
            attempt.abort(_STOPPING)
        # A thread that hangs in the resolver does not end; it is not waited for, either.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSING):
                await self._idle.wait()

    async def _ask(
        self, path: str, form: Mapping[str, str], parse: _Parse[_T]
    ) -> tuple[_T, tuple[str, ...]]:
        """One checked request. QueryFailedError carries the whole line for a person."""
        attempt = Attempt(self._config.timeout)
        try:
            return await self._within_deadline(
                attempt, lambda: self._blocking(attempt, path, form, parse)
            )
        except QueryFailedError as error:
            raise QueryFailedError(f"Prometheus at {self._config.url}: {error}") from None
        finally:
            attempt.abort("nobody waits for it")  # past the deadline, or cancelled

    async def _within_deadline(self, attempt: Attempt, work: Callable[[], _T]) -> _T:
        if self._closed:
            raise QueryFailedError(_STOPPING)
        asked = False
        try:
            async with asyncio.timeout(attempt.timeout):
                await self._slots.acquire()
                asked = True
                return await self._start(attempt, work)
        except TimeoutError:
            if asked:
                raise QueryFailedError(timed_out(attempt.timeout, attempt.phase)) from None
            raise QueryFailedError(
                f"not asked within {attempt.timeout:g}s: {len(self._under_way)} queries before it "
                "are still under way; is the DNS or the server hanging?"
            ) from None

    def _start(self, attempt: Attempt, work: Callable[[], _T]) -> asyncio.Future[_T]:
        """Run ``work`` on a thread; its slot is free again when the thread has ended.

        Daemon threads and no ThreadPoolExecutor: nothing can end a thread that hangs in the
        resolver, and an executor's threads would hold up the process's exit until it gives up.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[_T] = loop.create_future()

        def settle(result: _T | None, error: QueryFailedError | None) -> None:
            self._under_way.discard(attempt)
            if not self._under_way:
                self._idle.set()
            self._slots.release()
            if future.done():  # nobody waits any more
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)  # type: ignore[arg-type]  # a T when there is no error

        def run() -> None:
            result, failure = None, None
            try:
                result = work()
            except QueryFailedError as error:
                failure = error
            except Exception as error:  # noqa: BLE001  # our defect must not stop the other rules
                failure = _defect(error)
            attempt.close()
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
                loop.call_soon_threadsafe(settle, result, failure)

        self._under_way.add(attempt)
        self._idle.clear()
        try:
            threading.Thread(target=run, name="prometheus-query", daemon=True).start()
        except RuntimeError as error:  # the container's limit of processes
            settle(None, QueryFailedError(f"not asked: {error}; raise the limit of processes"))
        return future

    def _blocking(
        self, attempt: Attempt, path: str, form: Mapping[str, str], parse: _Parse[_T]
    ) -> tuple[_T, tuple[str, ...]]:
        """The exchange and the parsing, on the query's thread; no secret leaves it."""
        credentials = Credentials({}, ())
        try:
            credentials = self._config.credentials()
            request = Request(
                self._config.url, path, form, credentials.headers, self._tls.context()
            )
            method, answer = exchange(request, self._methods, attempt, self._clock)
            if method == "GET":
                self._methods = ("GET",)  # the server refuses POST: not asked again
            items, warnings = parse(answer.body, answer.clocks)
        except QueryFailedError as error:
            raise QueryFailedError(credentials.redact(str(error))) from None
        return items, tuple(credentials.redact(warning) for warning in warnings)


def _defect(error: Exception) -> QueryFailedError:
    """An exception that none of our code expects: where it came from, but not its text.

    The text could hold a header's value, that is, a secret.
    """
    frame = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{type(error).__name__} in {Path(frame.filename).name}:{frame.lineno}"
    _LOG.error("a query failed by a defect: %s", where)
    return QueryFailedError(f"this is a defect in dynsched, please report it: {where}")
