"""Queries side by side, each on a thread of its own, none past its deadline: prometheus-api-client
asks, by an adapter that adds what it lacks: the deadline, a limit to the answer's size, the
answer's warnings and its type.
"""

from __future__ import annotations

import asyncio
import contextlib
import email.utils
import logging
import re
import socket
import ssl
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import requests
import requests.adapters
import urllib3
from prometheus_api_client import PrometheusConnect

from dynsched.sources.prometheus import query_errors
from dynsched.sources.prometheus.config import Credentials, PrometheusConfig, TlsFiles
from dynsched.sources.prometheus.decode import AnswerLimit, Clocks, parse_data, server_error
from dynsched.sources.prometheus.query_errors import QueryFailedError, explain_status, timed_out
from dynsched.util.proxies import through
from dynsched.util.threads import on_thread

_LOG = logging.getLogger(__name__)
_T = TypeVar("_T")
Parsed = tuple[_T, tuple[str, ...]]
"""What was asked for, and the server's warnings."""
Parse = Callable[[bytearray, Clocks, AnswerLimit], Parsed[_T]]
Result = tuple[_T | tuple[()], str | None, tuple[str, ...], float, bool]
"""What came, or the error; warnings; the seconds that it took; whether the server refuses it."""
_PAGE_LIMIT: Final = AnswerLimit(0, 50_000, 32 << 20)
_STOPPING: Final = "the query was cancelled because dynsched is stopping"
_CHUNK: Final = 64 * 1024
_ERROR_BODY: Final = 64 * 1024  # of a failed request's answer; the words are at its beginning
_SERIES: Final = b'{"metric":{'  # how each begins; within a string the quotes would be escaped
_AGE: Final = re.compile(r"[0-9]{1,9}")
_SUCCESS, _REDIRECT = 2, 3  # a status's first digit
_FORM: Final = {"Content-Type": "application/x-www-form-urlencoded"}
_REFUSALS: Final = (HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY)
"""For a query that cannot be parsed, or cannot be evaluated."""
_NO_SUCH_METHOD: Final = (HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.NOT_IMPLEMENTED)


class Attempt:
    """One query under way, which any thread can end: a socket's timeout only bounds the silence
    between two bytes. At the deadline ``abort`` shuts the connection down, which wakes the reading
    thread, in the TLS handshake too. By a duplicate, for ``ssl`` takes the socket itself away.
    """

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self.phase = query_errors.PREPARING
        self._deadline = time.monotonic() + timeout
        self._lock = threading.Lock()
        self._twins: list[socket.socket] = []
        self._aborted: str | None = None

    def remaining(self) -> float:
        """Seconds. QueryFailedError past the deadline, or after ``abort``."""
        left = self._deadline - time.monotonic()
        if self._aborted or left <= 0:
            raise QueryFailedError(self._aborted or timed_out(self.timeout, self.phase))
        return left

    def watch(self, connection: socket.socket) -> None:
        """``abort`` shuts it down; at once where that was called already."""
        self.phase = query_errors.WAITING
        with self._lock:
            self._twins.append(connection.dup())
        if self._aborted:
            self.abort(self._aborted)

    def abort(self, reason: str) -> None:
        """End the query, if it is not over, with ``reason`` as its error."""
        with self._lock:
            self._aborted = self._aborted or reason
            for twin in self._twins:
                with contextlib.suppress(OSError):  # it may not be connected any more
                    twin.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """To be called when the thread is done; after that ``abort`` does nothing."""
        with self._lock:
            for twin in self._twins:
                twin.close()
            self._twins.clear()


@dataclass(frozen=True, slots=True)
class _Question(Generic[_T]):
    """``call`` asks it, with further parameters; ``parse`` reads what comes; ``most``: how large
    the answer may be. ``only_get``: the path takes no POST.
    """

    call: Callable[[PrometheusConnect, requests.Session, dict[str, str]], _T]
    parse: Parse[_T]
    most: AnswerLimit
    only_get: bool = False


class Client:
    """Asks one Prometheus, from one event loop, each time by a new connection: one kept from the
    last tick may be closed by a proxy at this moment, or hang on a backend which is gone; a new one
    follows the DNS. A query beyond ``max_concurrency`` waits within its own deadline. No method
    raises.
    """

    def __init__(
        self, config: PrometheusConfig, clock: Callable[[], float], max_concurrency: int
    ) -> None:
        self.config = config
        self.clock = clock
        self.tls = TlsFiles(config) if config.url.startswith("https://") else None
        self.parsing = threading.Lock()
        """Held while an answer is parsed: in parallel, all would be done when the last one is, and
        the event loop would wait for each of these threads."""
        self.behind = 0.0
        """As of `ServerClock`."""
        self._slots = asyncio.Semaphore(max_concurrency)
        self._under_way: set[Attempt] = set()
        self._closed = False

    async def query(self, expr: str, parse: Parse[_T], most: AnswerLimit) -> Result[_T]:
        """An instant query; ``most``: how large the answer may be."""
        question = _Question(lambda api, _, more: api.custom_query(expr, more), parse, most)
        return await self._result(question)

    async def query_range(
        self, expr: str, moments: tuple[float, float, float], parse: Parse[_T], most: AnswerLimit
    ) -> Result[_T]:
        """``moments``: start, end (both Unix seconds) and step."""
        start, end, step = moments
        ends = [datetime.fromtimestamp(moment, UTC) for moment in (start, end)]
        # PrometheusConnect rounds both to whole seconds; its parameters give way to these.
        exact = {"start": f"{start:.3f}", "end": f"{end:.3f}"}
        question = _Question(
            lambda api, _, more: api.custom_query_range(expr, *ends, f"{step:.3f}", exact | more),
            parse,
            most,
        )
        return await self._result(question)

    async def read(
        self, path: str, parameters: Mapping[str, str], *, only_get: bool
    ) -> Result[tuple[Any, ...]]:
        """Another page of the API."""

        def call(api: PrometheusConnect, session: requests.Session, _: dict[str, str]) -> Any:
            """PrometheusConnect has no call of its own for other pages."""
            url, asked = f"{api.url}/api/v1/{path}", dict(parameters)
            return session.get(url, params=asked, headers=api.headers).json()["data"]["result"]

        return await self._result(_Question(call, parse_data, _PAGE_LIMIT, only_get))

    def close(self) -> None:
        """Threads are not waited for: one that hangs in the resolver does not end."""
        self._closed = True
        for attempt in self._under_way:
            attempt.abort(_STOPPING)

    async def _result(self, question: _Question[_T]) -> Result[_T]:
        started = time.monotonic()
        attempt = Attempt(self.config.timeout)
        try:
            items, warnings = await self._within_deadline(question, attempt)
        except QueryFailedError as failed:
            error = f"Prometheus at {self.config.url}: {failed}"
            return (), error, (), time.monotonic() - started, failed.refused
        finally:
            attempt.abort("the query was given up")  # does nothing where it has ended
        return items, None, warnings, time.monotonic() - started, False

    async def _within_deadline(self, question: _Question[_T], attempt: Attempt) -> Parsed[_T]:
        """Ask on a thread; its slot is free again when the thread has ended."""
        if self._closed:
            raise QueryFailedError(_STOPPING)
        asked, loop = False, asyncio.get_running_loop()

        def free_slot() -> None:
            """On the event loop, which the semaphore belongs to."""
            self._under_way.discard(attempt)
            self._slots.release()

        def ended(_: object) -> None:
            """Called on the query's thread when it is done."""
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

    def _ask(self, question: _Question[_T], attempt: Attempt) -> Parsed[_T]:
        """Blocks its thread; QueryFailedError shows no secret."""
        credentials = Credentials({}, ())
        try:
            credentials = self.config.credentials()
            adapter = _Adapter(self, question, attempt)
            with requests.Session() as session:
                session.trust_env = False  # it would send what ~/.netrc says
                api = PrometheusConnect(self.config.url, credentials.headers, session=session)
                session.mount(api.url, adapter)
                # No `time`: the server takes its own now. Ours, on a host whose clock is off, would
                # ask for samples that it does not have yet, or for old ones. Its `timeout` is a
                # little shorter than ours, so that its own explanation still reaches us.
                limit = f"{max(1, round(attempt.remaining() * 900))}ms"
                items = question.call(api, session, {"timeout": limit})
        except QueryFailedError as error:
            redacted = credentials.redact(str(error))
            raise QueryFailedError(redacted, refused=error.refused) from None
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
        return items, tuple(credentials.redact(warning) for warning in adapter.warnings)


class _Answered(requests.Response):
    """What PrometheusConnect gets from `_Adapter`: the parsed items where it looks for them."""

    def __init__(self, items: object) -> None:
        super().__init__()
        self.status_code = HTTPStatus.OK
        self._items = items

    def json(self, **_: Any) -> dict[str, Any]:
        """In the form of Prometheus's answer, but parsed already."""
        return {"data": {"result": self._items}}


class _Adapter(requests.adapters.BaseAdapter):
    """Sends once, and returns good answers only. (requests' own adapter adds its authorities to our
    TLS context, and reads the whole body of a redirect.)
    """

    def __init__(self, client: Client, question: _Question[Any], attempt: Attempt) -> None:
        super().__init__()
        self._client = client
        self._question = question
        self._attempt = attempt
        self._proxy = client.config.proxy
        self._tls = client.tls.context() if client.tls else None
        self.warnings: tuple[str, ...] = ()

    def close(self) -> None:
        """Nothing: what was opened is closed by ``send``."""

    def send(self, request: requests.PreparedRequest, *_: object, **__: object) -> _Answered:
        """The parsed answer of the query; QueryFailedError with the cause in words."""
        try:
            with self._pools() as pools:
                return self._send(pools, request)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            self._attempt.remaining()  # past the deadline, that is the cause
            timeout, phase = self._attempt.timeout, self._attempt.phase
            words = query_errors.explain_exception(error, timeout, phase, tls=self._tls is not None)
            raise QueryFailedError(words + through(self._proxy)) from None

    def _pools(self) -> urllib3.PoolManager:
        if self._proxy is None:
            return urllib3.PoolManager(ssl_context=self._tls)
        user = self._proxy.authorization
        headers = {"Proxy-Authorization": user} if user else {}
        return urllib3.ProxyManager(self._proxy.url, proxy_headers=headers, ssl_context=self._tls)

    def _send(self, pools: urllib3.PoolManager, request: requests.PreparedRequest) -> _Answered:
        """By POST, for an expression may be longer than a URL can be; by GET where a proxy refuses
        that with 405 or 501. Each query begins with POST: a proxy may refuse while it starts.
        """
        url, _, form = str(request.url).partition("?")
        pool: Any = pools.connection_from_url(url)
        pool.ConnectionCls = _watched(pool.ConnectionCls, self._attempt)
        for method in ("GET",) if self._question.only_get else ("POST", "GET"):
            self._attempt.phase = query_errors.CONNECTING
            left = self._attempt.remaining()
            posts = method == "POST"
            response = pools.urlopen(
                method,
                url if posts else str(request.url),
                body=form if posts else None,
                headers={**request.headers, **(_FORM if posts else {})},
                # A third to connect: the first of two addresses may be dead (IPv6), the other not.
                timeout=urllib3.Timeout(connect=left / 3, read=left),
                retries=False,
                redirect=False,
                preload_content=False,
            )
            with contextlib.closing(response):
                received = self._client.clock()
                self._attempt.phase = query_errors.READING
                if posts and response.status in _NO_SUCH_METHOD:
                    continue
                body = self._read(response, authenticated="Authorization" in request.headers)
            clocks = _clocks(response.headers, received, self._client.behind)
            with self._client.parsing:
                items, self.warnings = self._question.parse(body, clocks, self._question.most)
            return _Answered(items)
        raise AssertionError("GET answers or fails")

    def _read(self, response: urllib3.BaseHTTPResponse, *, authenticated: bool) -> bytearray:
        status = response.status
        if status // 100 == _REDIRECT:
            where = response.headers.get("Location", "")
            raise QueryFailedError(query_errors.explain_redirect(status, where))
        succeeded = status // 100 == _SUCCESS
        body = bytearray()
        series = parts = 0
        # Said outright: urllib3's default leaves what comes in chunks compressed.
        for chunk in response.stream(_CHUNK, decode_content=True):
            begun = max(0, len(body) - len(_SERIES) + 1)
            body += chunk
            if succeeded:
                series += body.count(_SERIES, begun)
                parts += chunk.count(b",")
                self._question.most.check(series, len(body), parts)
            elif len(body) > _ERROR_BODY:
                break
        self._attempt.remaining()  # an aborted connection looks like the end of the body
        if succeeded:
            return body
        detail, proxied = server_error(body) or query_errors.excerpt(body), self._proxy is not None
        words = explain_status(status, detail, authenticated=authenticated, proxied=proxied)
        raise QueryFailedError(words + through(self._proxy), refused=status in _REFUSALS)


def _watched(base: Any, attempt: Attempt) -> Any:
    class Watched(base):  # type: ignore[misc]  # urllib3's class, or a proxy's, as it comes
        """Its ``sock`` is watched from when it is connected: for TLS, before the handshake."""

        @property
        def sock(self) -> socket.socket | None:
            """None while there is no connection."""
            return self._watched_sock

        @sock.setter
        def sock(self, connection: socket.socket | None) -> None:
            """For TLS it is set a second time, to what wraps the connection."""
            self._watched_sock = connection
            if connection is not None and not isinstance(connection, ssl.SSLSocket):
                attempt.watch(connection)

    return Watched


def _clocks(headers: Mapping[str, str], received: float, behind: float) -> Clocks:
    date = None
    with contextlib.suppress(ValueError, TypeError, OverflowError, KeyError):
        sent = email.utils.parsedate_to_datetime(headers["Date"])
        date = (sent if sent.tzinfo else sent.replace(tzinfo=UTC)).timestamp()
    age = headers.get("Age", "")
    return Clocks(received, date, float(age) if _AGE.fullmatch(age) else 0.0, behind)
