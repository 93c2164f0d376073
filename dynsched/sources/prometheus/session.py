"""Sends queries with prometheus-api-client. Each has its own thread, and a session with limits."""

from __future__ import annotations

import asyncio
import contextlib
import email.utils
import io
import logging
import ssl
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from datetime import UTC
from functools import partial
from http import HTTPStatus
from typing import Any, Final, TypeVar, cast

import requests
import urllib3
import urllib3.exceptions
from prometheus_api_client import PrometheusConnect
from requests.adapters import HTTPAdapter

from dynsched.sources.prometheus import query_errors
from dynsched.sources.prometheus.config import Credentials, Fetch, PrometheusConfig, tls_context
from dynsched.sources.prometheus.decode import AnswerLimit, Clocks, server_error
from dynsched.sources.prometheus.query_errors import QueryFailedError, explain_status, timed_out
from dynsched.util.errors import ClusterError
from dynsched.util.proxies import through

_LOG = logging.getLogger(__name__)
_T = TypeVar("_T")
Call = Callable[[PrometheusConnect, "Session", dict[str, str]], "Answer"]
"""Sends a query, with these additional parameters."""
Parsed = tuple[_T, tuple[str, ...]]
"""The content of a response, and the server's warnings."""
Parse = Callable[[bytearray, Clocks, AnswerLimit], Parsed[_T]]
Result = tuple[_T | tuple[()], str | None, tuple[str, ...], float, bool]
"""Content; error; warnings; duration in seconds; whether the server refuses the query."""
_CHUNK: Final = 64 * 1024
_ERROR_BODY: Final = 64 * 1024  # bytes of an error response; its message is at the beginning
_REFUSALS: Final = (HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY)
"""Statuses for a query that cannot be parsed or evaluated."""
_NO_SUCH_METHOD: Final = (HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.NOT_IMPLEMENTED)


class Answer(requests.Response):
    """A response whose ``body`` has been read. ``received``: when, on our clock."""

    body: bytearray
    received: float

    def json(self, **_: Any) -> dict[str, Any]:
        """Makes PrometheusConnect return the whole response. It would return only the result in it,
        without the result's type and the warnings.
        """
        return {"data": {"result": self}}


class Session(requests.Session):
    """For one query. It limits time and size of each response, and follows no redirect."""

    def __init__(
        self, config: PrometheusConfig, limit: AnswerLimit, clock: Callable[[], float]
    ) -> None:
        super().__init__()
        self.trust_env = False  # it would send credentials from ~/.netrc
        self.verify = not config.insecure_skip_verify
        if config.proxy is not None:
            self.proxies = dict.fromkeys(("http", "https"), config.proxy.url)
        self.phase = query_errors.WAITING
        self.limit = limit
        self._only_get = config.fetch is not None
        self._proxy = config.proxy
        self._clock = clock
        self._timeout = config.timeout
        self._deadline = time.monotonic() + config.timeout

    def remaining(self) -> float:
        """Seconds until the deadline. QueryFailedError after it."""
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise QueryFailedError(timed_out(self._timeout, self.phase))
        return left

    def request(self, method: str, url: str, *, params: Any = None, **options: Any) -> Answer:  # type: ignore[override]  # as PrometheusConnect calls it
        """Send by POST, with the parameters as a form, because proxies limit the length of a URL.
        GET is used if the server refuses POST, and through the API server, where it needs the
        weaker permission.
        """
        method = "GET" if self._only_get else method
        form = {"data" if method == "POST" else "params": params}
        answer: Any = super().request(method, url, **form, **options)
        if method == "POST" and answer.status_code in _NO_SUCH_METHOD:
            answer = super().request("GET", url, params=params, **options)
        if answer.status_code != HTTPStatus.OK:
            words = _explain(answer) + through(self._proxy)
            # A 400 of a proxy, or of a TLS port, says nothing about the query.
            is_its_own = server_error(answer.body) is not None
            refused = is_its_own and answer.status_code in _REFUSALS
            raise QueryFailedError(words, refused=refused)
        return cast("Answer", answer)

    def send(self, request: requests.PreparedRequest, **options: Any) -> Answer:
        """The response, whatever its status. QueryFailedError if it is too slow or too large."""
        left = self.remaining()
        # A third of the time to connect: if the first address (IPv6) is dead, the next is tried.
        options |= {"stream": True, "allow_redirects": False, "timeout": (left / 3, left)}
        answer = Answer()
        with super().send(request, **options) as response:
            answer.received = self._clock()
            self.phase = query_errors.READING
            answer.request, answer.headers = request, response.headers
            answer.status_code, answer.body = response.status_code, bytearray()
            # read1 returns after each packet, so that a slow server cannot exceed the deadline.
            while chunk := response.raw.read1(_CHUNK, decode_content=True):
                answer.body += chunk
                self.remaining()
                if response.status_code == HTTPStatus.OK:
                    self.limit.check(size=len(answer.body))
                elif len(answer.body) > _ERROR_BODY:
                    break
        return answer

    def get_redirect_target(self, _: requests.Response) -> None:
        """None, because credentials must not go to another address."""


def _explain(answer: Answer) -> str:
    status = answer.status_code
    if 300 <= status < 400:  # noqa: PLR2004 (redirects)
        return query_errors.explain_redirect(status, answer.headers.get("Location", ""))
    detail = server_error(answer.body) or query_errors.excerpt(answer.body)
    return explain_status(status, detail, authenticated="Authorization" in answer.request.headers)


class _TlsAdapter(HTTPAdapter):
    """Uses our SSLContext, as in the documentation of requests."""

    def __init__(self, context: ssl.SSLContext | None) -> None:
        self._context = context
        super().__init__()

    def init_poolmanager(self, *args: Any, **more: Any) -> None:
        """For connections to the server itself."""
        super().init_poolmanager(*args, **more, ssl_context=self._context)

    def proxy_manager_for(self, proxy: str, **more: Any) -> Any:
        """For connections through a proxy."""
        return super().proxy_manager_for(proxy, **more, ssl_context=self._context)

    def cert_verify(self, *_: Any, **__: Any) -> None:
        """Does nothing: the context verifies, and requests would add its own CAs to it."""


class _FetchAdapter(HTTPAdapter):
    """Opens no connection: ``fetch`` gets the paths below ``url``, on the event loop."""

    def __init__(self, url: str, fetch: Fetch, loop: asyncio.AbstractEventLoop) -> None:
        self._url, self._fetch, self._loop = url, fetch, loop
        super().__init__()

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:  # type: ignore[override]
        """The response. QueryFailedError if ``fetch`` fails."""
        path, (_, seconds) = (request.url or "")[len(self._url) :], options["timeout"]
        page = asyncio.run_coroutine_threadsafe(self._fetch(path, seconds), self._loop)
        try:
            status, headers, body = page.result(seconds)
        except ClusterError as error:
            raise QueryFailedError(str(error)) from None
        # The body is already decoded, so Content-Encoding must not be passed on.
        dated = {"Date": headers.get("Date", "")}
        raw = urllib3.HTTPResponse(
            io.BytesIO(body), headers=dated, status=status, preload_content=False
        )
        return self.build_response(request, raw)


class Client:
    """Queries one Prometheus, from one event loop.

    Each query opens a new connection: a proxy may be closing a kept one at this moment, and a new
    one follows DNS changes. A query beyond ``max_concurrency`` waits, and its timeout includes the
    wait. A server that sends its headers byte by byte can occupy a thread beyond the timeout.
    """

    def __init__(
        self, config: PrometheusConfig, clock: Callable[[], float], max_concurrency: int
    ) -> None:
        self.config = config
        self.clock = clock
        self.behind = 0.0
        """As in `ServerClock`."""
        self._threads = asyncio.Semaphore(max_concurrency)
        self._decoding = threading.Lock()
        """Held while a response is decoded: each thread that computes slows down the event loop."""

    async def ask(self, call: Call, parse: Parse[_T], limit: AnswerLimit) -> Result[_T]:
        """Send a query and parse the response. Never raises."""
        session, started = Session(self.config, limit, self.clock), time.monotonic()
        refused, loop = False, asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self.config.timeout):
                items, warnings = await self._on_thread(
                    partial(self._ask, session, call, parse, loop)
                )
            return items, None, warnings, time.monotonic() - started, False
        except TimeoutError:
            error = timed_out(self.config.timeout, session.phase)
        except QueryFailedError as failed:
            error, refused = str(failed), failed.refused
        error = f"Prometheus at {self.config.url}: {error}"
        return (), error, (), time.monotonic() - started, refused

    async def _on_thread(self, work: Callable[[], _T]) -> _T:
        """Run ``work`` on a daemon thread. At exit the process would wait for the threads of an
        executor, even if they hang.
        """
        loop, answer = asyncio.get_running_loop(), Future[_T]()

        def run() -> None:
            try:
                answer.set_result(work())
            except Exception as error:  # noqa: BLE001 (raised again where it is awaited)
                answer.set_exception(error)
            with contextlib.suppress(RuntimeError):  # the event loop is closed
                loop.call_soon_threadsafe(self._threads.release)

        await self._threads.acquire()
        answer.set_running_or_notify_cancel()  # from now on it cannot be cancelled
        try:
            threading.Thread(target=run, name="prometheus-query", daemon=True).start()
        except RuntimeError as error:  # the container's process limit
            self._threads.release()
            raise QueryFailedError(f"not queried: {error}; raise the process limit") from None
        return await asyncio.wrap_future(answer)

    def _ask(
        self, session: Session, call: Call, parse: Parse[_T], loop: asyncio.AbstractEventLoop
    ) -> Parsed[_T]:
        """Send the query and parse the response, on a thread. QueryFailedError shows no secret."""
        credentials, config = Credentials({}, ()), self.config
        try:
            with session:
                credentials = config.credentials()
                api = PrometheusConnect(
                    config.url, credentials.headers, session=session, method="POST"
                )
                if config.fetch is None:
                    adapter: HTTPAdapter = _TlsAdapter(tls_context(config))
                else:
                    adapter = _FetchAdapter(api.url, config.fetch, loop)
                session.mount(api.url, adapter)  # replaces its adapter, which retries
                # A little shorter than our timeout, so that the server's own error still arrives.
                limit = f"{max(1, round(session.remaining() * 900))}ms"
                answer = call(api, session, {"timeout": limit})
            with self._decoding:
                items, warnings = parse(answer.body, self._clocks(answer), session.limit)
            return items, tuple(map(credentials.redact, warnings))
        except QueryFailedError as error:
            words = credentials.redact(str(error))
            raise QueryFailedError(words, refused=error.refused) from None
        except (urllib3.exceptions.HTTPError, OSError) as error:
            connecting = isinstance(error, requests.ConnectTimeout)
            phase = query_errors.CONNECTING if connecting else session.phase
            tls = config.url.startswith("https:")
            words = query_errors.explain_exception(error, config.timeout, phase, tls=tls)
            raise QueryFailedError(words + through(config.proxy)) from None
        except Exception as error:  # noqa: BLE001 (a bug must not stop the other rules)
            _LOG.exception("a query failed because of a bug in dynsched")
            words = f"this is a bug in dynsched, please report its log: {type(error).__name__}"
            raise QueryFailedError(words) from None

    def _clocks(self, answer: Answer) -> Clocks:
        date = None
        with contextlib.suppress(ValueError, TypeError, OverflowError, KeyError):
            sent = email.utils.parsedate_to_datetime(answer.headers["Date"])
            date = (sent if sent.tzinfo else sent.replace(tzinfo=UTC)).timestamp()
        return Clocks(answer.received, date, self.behind)
