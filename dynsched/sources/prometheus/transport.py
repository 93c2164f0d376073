"""One HTTP exchange with Prometheus: it blocks its thread, and is ended from outside."""

from __future__ import annotations

import contextlib
import email.utils
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC
from http import HTTPStatus
from typing import Any, Final

import requests
import requests.adapters
import requests.auth
import urllib3
import urllib3.exceptions
from prometheus_api_client import PrometheusConnect

from dynsched.sources.prometheus.failures import (
    CONNECTING,
    PREPARING,
    READING,
    WAITING,
    QueryFailedError,
    excerpt,
    explain_exception,
    explain_redirect,
    explain_status,
    timed_out,
)
from dynsched.sources.prometheus.wire import Clocks, server_error

MAX_BODY: Final = 64 * 1024 * 1024  # bytes, decompressed: some 500,000 series
_SUCCESS, _REDIRECT = 2, 3  # a status's first digit
_AGE: Final = re.compile(r"[0-9]{1,9}")
_CHUNK: Final = 64 * 1024
_ERROR_BODY: Final = 64 * 1024  # of a failed request's answer; the words are at its beginning
_NO_SUCH_METHOD: Final = (HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.NOT_IMPLEMENTED)


@dataclass(frozen=True, slots=True)
class Answer:
    """The body of a successful exchange, and when it came by both clocks."""

    body: bytes
    clocks: Clocks


class Attempt:
    """One exchange under way, which any thread can end.

    A socket's timeout only bounds the silence between two bytes: a server that sends one byte a
    second holds its reader for ever. So the one who waits calls ``abort`` at the deadline; it
    shuts the connection down, which wakes the reading thread at once, in whatever phase it is,
    TLS handshake included. It works on duplicates, because ``ssl`` takes the socket itself away.
    """

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self.phase = PREPARING
        self._deadline = time.monotonic() + timeout
        self._lock = threading.Lock()
        self._twins: list[socket.socket] = []
        self._aborted: str | None = None

    def remaining(self) -> float:
        """Seconds until the deadline. QueryFailedError when it has passed, or after ``abort``."""
        left = self._deadline - time.monotonic()
        if self._aborted or left <= 0:
            raise QueryFailedError(self._aborted or timed_out(self.timeout, self.phase))
        return left

    def watch(self, connection: socket.socket) -> None:
        """Shut this connection down on ``abort``, or now when that has been called already."""
        self.phase = WAITING
        with self._lock:
            twin = connection.dup()
            self._twins.append(twin)
            if self._aborted:
                _shut_down(twin)

    def abort(self, reason: str) -> None:
        """End the exchange with ``reason`` as its error; nothing happens when it is over.

        Does not wait for the exchange's thread.
        """
        with self._lock:
            self._aborted = self._aborted or reason
            for twin in self._twins:
                _shut_down(twin)

    def close(self) -> None:
        """Let the connections go; called by the exchange's own thread at its end."""
        with self._lock:
            for twin in self._twins:
                twin.close()
            self._twins.clear()


def _shut_down(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it may not be connected any more
        connection.shutdown(socket.SHUT_RDWR)


class _Adapter(requests.adapters.HTTPAdapter):
    """Connections that an Attempt watches, with our TLS context, and no retry of any kind."""

    def __init__(self, attempt: Attempt, tls: ssl.SSLContext | None) -> None:
        self._attempt = attempt
        self._tls = tls
        super().__init__(max_retries=urllib3.Retry(total=0))

    def get_connection_with_tls_context(self, *args: Any, **kwargs: Any) -> Any:
        pool: Any = super().get_connection_with_tls_context(*args, **kwargs)
        # Here a direct connection and one through a proxy have become the same thing.
        pool.ConnectionCls = _watched(pool.ConnectionCls, self._attempt)
        return pool

    def build_connection_pool_key_attributes(self, *args: Any, **kwargs: Any) -> Any:
        host, _ = super().build_connection_pool_key_attributes(*args, **kwargs)
        return host, {"ssl_context": self._tls} if self._tls else {}

    def cert_verify(self, *args: Any, **kwargs: Any) -> None:
        """Nothing: requests would add its own authorities to the context that we made."""


def _watched(base: Any, attempt: Attempt) -> Any:
    class Watched(base):  # type: ignore[misc]  # urllib3's class, or a proxy's, as it comes
        def _new_conn(self) -> socket.socket:
            connection: socket.socket = super()._new_conn()
            attempt.watch(connection)
            return connection

    return Watched


class _Session(requests.Session):
    """A session that never looks at a redirect.

    Even with ``allow_redirects=False`` requests reads the whole body of a redirect at once,
    without any limit, to prepare the next request.
    """

    def get_redirect_target(self, resp: requests.Response) -> None:  # noqa: ARG002  # requests' name
        return None


class _Headers(requests.auth.AuthBase):
    """Our headers, put on last: as an ``auth`` they keep a .netrc from replacing Authorization."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        self._headers = headers

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers.update(self._headers)
        return request


@dataclass(frozen=True, slots=True)
class Request:
    """What to ask: ``path`` under ``url``, the form, and the headers that let us in."""

    url: str
    path: str
    form: Mapping[str, str]
    headers: Mapping[str, str]
    tls: ssl.SSLContext | None


def exchange(
    request: Request, methods: tuple[str, ...], attempt: Attempt, clock: Callable[[], float]
) -> tuple[str, Answer]:
    """Ask, by the first method that the server knows; that method, and a successful answer.

    POST comes first, for an expression may be longer than a URL can be; a proxy that lets only
    reading pass refuses it with 405 or 501, and is then asked by GET. Raises QueryFailedError.
    """
    for method in methods:
        try:
            answer = _once(request, method, attempt, clock, last=method == methods[-1])
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
            attempt.remaining()  # past the deadline, that is the cause
            words = explain_exception(
                error, attempt.timeout, attempt.phase, tls=request.tls is not None
            )
            raise QueryFailedError(words) from None
        if answer is not None:
            return method, answer
    raise AssertionError("the last method answers or fails")


def _once(
    request: Request, method: str, attempt: Attempt, clock: Callable[[], float], *, last: bool
) -> Answer | None:
    """One HTTP request; None when the server refuses this method and another one is left.

    A session, and with it a connection, of its own for each: a requests.Session is not made for
    several threads; and a connection kept from the last tick may be one that a proxy is closing
    at this moment (a failure without a cause) or that hangs on a backend which is gone, while a
    new one follows the DNS and the Service to a living one.
    """
    attempt.phase = CONNECTING
    with contextlib.closing(_Session()) as session:
        prometheus = PrometheusConnect(
            url=request.url,
            session=session,
            auth=_Headers(request.headers),
            retry=urllib3.Retry(total=0),
        )
        session.mount(prometheus.url, _Adapter(attempt, request.tls))
        remaining = attempt.remaining()
        # No `time`: the server takes its own now. Ours, on a host whose clock is off, would ask
        # for samples that it does not have yet, or for old ones. Its `timeout` is a little shorter
        # than ours, so that its own explanation still reaches us.
        form = {**request.form, "timeout": f"{max(1, round(remaining * 900))}ms"}
        with session.request(
            method,
            f"{prometheus.url}{request.path}",
            data=form if method == "POST" else None,
            params=form if method == "GET" else None,
            auth=prometheus.auth,
            # A third for connecting: the first of two addresses may be dead (IPv6), the other not.
            timeout=(remaining / 3, remaining),
            allow_redirects=False,
            stream=True,
        ) as response:
            received = clock()
            attempt.phase = READING
            if response.status_code in _NO_SUCH_METHOD and not last:
                return None
            body = _read(response, attempt)
    return Answer(body, _clocks(response.headers, received))


def _read(response: requests.Response, attempt: Attempt) -> bytes:
    """The body of a success; QueryFailedError for every other status."""
    status = response.status_code
    if status // 100 == _REDIRECT:
        raise QueryFailedError(explain_redirect(status, response.headers.get("Location", "")))
    succeeded = status // 100 == _SUCCESS
    limit = MAX_BODY if succeeded else _ERROR_BODY
    chunks: list[bytes] = []
    size = 0
    for chunk in response.iter_content(_CHUNK):
        chunks.append(chunk)
        size += len(chunk)
        if size > limit:
            break
    attempt.remaining()  # an aborted connection looks like the end of the body
    body = b"".join(chunks)
    if not succeeded:
        detail = server_error(body) or excerpt(body)
        known = "Authorization" in response.request.headers
        raise QueryFailedError(explain_status(status, detail, authenticated=known))
    if size > limit:
        raise QueryFailedError(
            f"the answer is larger than {limit >> 20} MiB; aggregate it by instance or node"
        )
    return body


def _clocks(headers: Mapping[str, str], received: float) -> Clocks:
    date = None
    with contextlib.suppress(ValueError, TypeError, OverflowError, KeyError):
        sent = email.utils.parsedate_to_datetime(headers["Date"])
        date = (sent if sent.tzinfo else sent.replace(tzinfo=UTC)).timestamp()
    age = headers.get("Age", "")
    return Clocks(received, date, float(age) if _AGE.fullmatch(age) else 0.0)
