"""The connections of callers: aiohttp's own. Where there are too many, one ends of an address that
has the most: a new one, which may be a probe, is taken in, and a flood closes its own.
"""

from __future__ import annotations

import asyncio
import asyncio.sslproto
import resource
import ssl
import time
from collections import Counter, deque
from collections.abc import Mapping
from operator import attrgetter
from typing import Any, Final, cast

from aiohttp import web, web_protocol
from aiohttp.http import HttpProcessingError

from dynsched.api.transport.answering import Handler, add_headers, refused
from dynsched.util.logs import quiet_logger

MAX_CONNECTIONS: Final = 48
"""A few schedulers, Prometheus, probes and people, with room. Each holds up to 2 MB for the heads
of two requests, and with TLS 0.5 MB for buffers of asyncio and of OpenSSL."""
OF_OPEN_FILES: Final = 4
"""Connections may take at most one in this many of the open files that the process may have; the
rest is for the API server, Prometheus and files."""
HANDSHAKE_SECONDS: Final = 10.0
GOODBYE_SECONDS: Final = 1.0  # for the end of TLS
MAX_HEADERS: Final = 64
"""Header fields of a request, of 8,190 bytes each at most: half a megabyte, which is held twice."""
web_protocol.MAX_MSG_QUEUE_SIZE = 1
"""Requests of a connection that are parsed while one is answered; aiohttp's own figure is 32, and
it has no option for it."""
asyncio.sslproto.SSLProtocol.max_size = 64 << 10
"""Bytes that are read at a time over TLS, for which a buffer is kept; asyncio's own figure is
256 KiB. Large answers of the API server take a tenth more CPU time by it: 0.3 ms a megabyte."""
WRITE_AHEAD: Final = 64 << 10
"""Bytes that are kept for a caller that does not read; asyncio's own figure for TLS is 512 KiB."""

_logger = quiet_logger(__name__)
_NO_HTTP: Final = (
    "this is no HTTP/1.1, or its head has a line of more than 8,190 bytes or more than "
    f"{MAX_HEADERS} header fields"
)
_OPTIONS: Final[Mapping[str, Any]] = {
    "logger": _logger,
    "access_log": None,  # probes and scrapes would fill the log
    # Between two requests, and for the head of one: longer than callers keep a connection
    # themselves (Go: 90 s).
    "keepalive_timeout": 120.0,
    # Seconds for which the rest of a refused body is read, so that the caller gets its answer.
    "lingering_time": 1.0,
    # Bytes of a body that are kept before somebody reads them; twice this, and what comes at once.
    "read_bufsize": 64 << 10,
    "max_headers": MAX_HEADERS,
    "auto_decompress": False,  # a kilobyte would become a megabyte before anybody reads it
}


class Connection(web.RequestHandler):
    """One caller, counted. ``context`` is for TLS, whose handshake takes place here, so that those
    who do not finish it count too.
    """

    __slots__ = ("_all", "_context", "_handshake", "_socket", "address", "answered_at", "answering")

    def __init__(
        self, server: web.Server, all_of_them: Connections, context: ssl.SSLContext | None
    ) -> None:
        super().__init__(server, loop=asyncio.get_running_loop(), **_OPTIONS)
        self._all = all_of_them
        self._context = context
        self._socket: asyncio.Transport | None = None
        self._handshake: asyncio.Task[None] | None = None
        self.address = ""
        self.answered_at = 0.0
        self.answering: asyncio.Task[object] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket = cast(asyncio.Transport, transport)
        self.address = str((transport.get_extra_info("peername") or [""])[0])
        self._all.add(self)
        if self._context is None:
            super().connection_made(transport)
        else:
            self._socket.pause_reading()  # until TLS reads
            self._all.handshake(self)

    def begin_tls(self) -> None:
        assert self._socket and self._context  # noqa: S101, PT018 (`connection_made` saw to it)
        self._handshake = asyncio.create_task(self._begin_tls(self._socket, self._context))

    async def _begin_tls(self, transport: asyncio.Transport, context: ssl.SSLContext) -> None:
        over_tls = None
        try:
            if not transport.is_closing():  # else asyncio keeps it until the time is over
                over_tls = await asyncio.get_running_loop().start_tls(
                    transport,
                    self,
                    context,
                    server_side=True,
                    ssl_handshake_timeout=HANDSHAKE_SECONDS,
                    ssl_shutdown_timeout=GOODBYE_SECONDS,
                )
        except OSError as error:  # those of TLS are too
            error.with_traceback(None)  # 256 KiB are in its frames: see `answer_and_send`
        self._handshake = None
        if over_tls is None or transport.is_closing():  # the caller has hung up, or was ended
            self._all.remove(self)
            return
        over_tls.set_write_buffer_limits(high=WRITE_AHEAD)
        super().connection_made(over_tls)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._all.remove(self)
        if self.answering is not None:
            self.answering.cancel()
        super().connection_lost(exc)
        # Of what was not answered any more: see `answer_and_send`.
        for message, _ in getattr(self, "_messages", ()):
            if (error := getattr(message, "exc", None)) is not None:
                error.with_traceback(None)

    def log_access(self, *_: object) -> None:
        """Called by aiohttp after each answer."""
        self.answered_at = time.monotonic()

    def end(self) -> None:
        self._all.remove(self)
        transport = self.transport or self._socket
        if transport is not None:
            transport.abort()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Where no application answers. aiohttp's own would lack our header fields, and quote what
        was sent, which can be a token.
        """
        if isinstance(exc, HttpProcessingError):
            exc.with_traceback(None)  # see `answer_and_send`
            _logger.info("a caller was refused, what it sent is not HTTP: %s", type(exc).__name__)
            response: web.StreamResponse = refused(status, _NO_HTTP)
            response.force_close()
        else:
            response = super().handle_error(request, status, exc, message)
        add_headers(response)
        return response


class Connections:
    """Those of one of ``of`` servers that share what the process takes in."""

    def __init__(self, of: int) -> None:
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        unlimited = files == resource.RLIM_INFINITY
        most = MAX_CONNECTIONS if unlimited else min(MAX_CONNECTIONS, files // OF_OPEN_FILES)
        self.most = max(1, most // of)
        self._open: dict[Connection, None] = {}
        self._waiting: deque[Connection] = deque()

    def add(self, connection: Connection) -> None:
        """Where there are too many, one ends of the addresses that have the most: without any
        answer so far (a scheduler or a Prometheus has had one), else silent for the longest time.
        """
        if len(self._open) >= self.most:
            number = Counter(each.address for each in self._open)
            most = max(number.values())
            theirs = [each for each in self._open if number[each.address] == most]
            min(theirs, key=attrgetter("answered_at")).end()
        self._open[connection] = None

    def handshake(self, connection: Connection) -> None:
        """Let its handshake begin: one in each round of the event loop. In a flood more come in,
        and those that have to give way before their turn have cost little.
        """
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._begin_next)
        self._waiting.append(connection)

    def _begin_next(self) -> None:
        while self._waiting:
            connection = self._waiting.popleft()
            if connection in self._open:
                connection.begin_tls()
                break
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._begin_next)

    def remove(self, connection: Connection) -> None:
        self._open.pop(connection, None)

    def end_all(self) -> None:
        for each in list(self._open):
            each.end()


@web.middleware
async def end_with_caller(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Outermost: cancels the answer when the caller hangs up or is made to give way. What it sent
    must not be held until its turn, and `/bind` must not go on: the scheduler decides anew. (Of
    what aiohttp cancels itself, `handler_cancellation`, its frames keep what was received.)
    """
    connection = request.protocol
    if not isinstance(connection, Connection):  # of another server than ours
        return await handler(request)
    connection.answering = asyncio.current_task()
    try:
        return await handler(request)
    finally:
        connection.answering = None
