"""The connections of callers: how many there are, how long each may take, which one goes first.

Each stands in front of the HTTP server's own protocol (aiohttp's), which it hands one request at a
time. Every wait for a caller has a time limit. Where there are too many connections, one is closed
of the address that has the most, so that a new one, which may be a probe, is accepted.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Final, cast

import msgspec
from aiohttp import web

from dynsched.api.transport.framing import Framing, TooMuchError
from dynsched.api.transport.headers import AS_SENT

HEAD_SECONDS: Final = 10.0
"""From the connection, or the first byte of a request, to the end of its header fields."""
IDLE_SECONDS: Final = 120.0
"""Between two requests: longer than callers keep a connection themselves (Go: 90 s)."""
REQUEST_SECONDS: Final = 60.0
"""From the header fields to the end of the answer. Whatever takes longer is broken off."""

GRACE_SECONDS: Final = 0.05
"""What a caller has after its connection to send a request, however many others come. The time in
the kernel's queue counts: with a thousand in front of it, each with a grace of its own, a probe
would wait for 0.4 s although nothing is computed.
"""

_READ_AT_ONCE: Final = 64 << 10
_WRITE_AHEAD: Final = 64 << 10
_SWEEP_SECONDS: Final = 1.0
_LOOK_AGAIN: Final = 0.005


class Connection(asyncio.BufferedProtocol):
    """One caller. ``server`` makes the HTTP server's protocol, once there is something for it;
    ``address`` is where the caller is; ``waited`` for how many seconds it has been connected.
    """

    def __init__(
        self,
        server: Callable[[], asyncio.Protocol],
        all_of_them: Connections,
        address: str,
        waited: float = 0.0,
    ) -> None:
        self.address = address
        self._make_server = server
        self._server: asyncio.Protocol | None = None
        self.all_of_them = all_of_them
        self._framing = Framing()
        self._closing = False
        self._paused = False
        self.transport: asyncio.Transport | None = None
        self.task: asyncio.Task[None] | None = None
        now = time.monotonic()
        self.since = now - waited
        self.deadline = now + HEAD_SECONDS
        self.kept = 0
        self.waiting: asyncio.Task[object] | None = None

    # --- what the event loop calls ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection stands, TLS included."""
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=_WRITE_AHEAD)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 (the loop's own signature)
        """Where the next bytes go: at once taken from there, so all connections share it."""
        return self.all_of_them.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Called by asyncio when ``nbytes`` bytes have arrived in the buffer."""
        if self._closing or self.transport is None:
            return
        data = bytes(self.all_of_them.buffer[:nbytes])
        if not self._framing.begun:
            self.deadline = min(self.deadline, time.monotonic() + HEAD_SECONDS)
        waiting = self._framing.in_head
        try:
            data = self._framing.take(data)
        except TooMuchError as error:
            self._refuse(error)
            return
        if waiting and not self._framing.in_head:
            self.deadline = time.monotonic() + REQUEST_SECONDS
        if self._framing.ahead:
            self._paused = True
            self.transport.pause_reading()
        if data:
            if self._server is None:
                self._server = self._make_server()
                self._server.connection_made(self.transport)
            self._server.data_received(data)

    def eof_received(self) -> bool | None:
        """The caller sends no more."""
        return None if self._server is None else self._server.eof_received()

    def pause_writing(self) -> None:
        """What was written is not fetched as fast."""
        if self._server is not None:
            self._server.pause_writing()

    def resume_writing(self) -> None:
        """It is fetched again."""
        if self._server is not None:
            self._server.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over."""
        self._closing = True
        self.all_of_them.remove(self)
        if self.waiting is not None:
            self.waiting.cancel()
        if self._server is not None:
            self._server.connection_lost(exc)

    # --- called by the code that answers ---

    def answered(self) -> None:
        """The answer to the present request has gone out; the next one may come."""
        if self._closing or self.transport is None or self._server is None:
            return
        now = time.monotonic()
        self.deadline = now + IDLE_SECONDS
        self.all_of_them.answered(self)
        if self._paused:
            self._paused = False
            self.transport.resume_reading()
        try:
            data = self._framing.answered()
        except TooMuchError as error:
            self._refuse(error)
            return
        if self._framing.begun:
            head = self._framing.in_head
            self.deadline = now + (HEAD_SECONDS if head else REQUEST_SECONDS)
        if data:
            self._server.data_received(data)

    def end(self) -> None:
        """Break it off, at whatever it is."""
        self._closing = True
        self.all_of_them.remove(self)
        if self.transport is not None:
            self.transport.abort()
        elif self.task is not None:
            self.task.cancel()

    def _refuse(self, error: TooMuchError) -> None:
        """Tell why, where no answer is under way, and hang up."""
        self._closing = True
        if self.transport is not None:
            if error.status == 431:  # noqa: PLR2004 (its name is in the line below)
                body = msgspec.json.encode({"error": str(error)})
                self.transport.write(
                    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
                    b"Content-Type: application/json\r\nConnection: close\r\n%b"
                    b"Content-Length: %d\r\n\r\n%b" % (AS_SENT, len(body), body)
                )
            self.transport.close()


class Callers:
    """The connections of one address: ``new`` as they came, ``known`` as they were answered."""

    def __init__(self) -> None:
        self.new: dict[Connection, None] = {}
        self.known: dict[Connection, None] = {}

    def __len__(self) -> int:
        return len(self.new) + len(self.known)

    def remove(self, connection: Connection) -> None:
        """It is over, or moves from the new ones to the known."""
        self.new.pop(connection, None)
        self.known.pop(connection, None)

    def spare(self) -> Connection | None:
        """The one that can best be spared. Its search does not look at all of them: it comes once
        for each caller of a flood.
        """
        return next((each for each in chain(self.new, self.known) if not each.kept), None)


class Connections:
    """All connections, ``most`` at a time."""

    def __init__(self, most: int) -> None:
        self.buffer = memoryview(bytearray(_READ_AT_ONCE))
        self._most = most
        self._open: dict[Connection, None] = {}
        self._of: dict[str, Callers] = {}

    def __len__(self) -> int:
        return len(self._open)

    async def room(self) -> None:
        """Wait until there is room for one more; another one may be ended for it."""
        while len(self._open) >= self._most and not self._end_one():  # noqa: ASYNC110 (it is time that passes)
            await asyncio.sleep(_LOOK_AGAIN)  # until a grace is over

    def add(self, connection: Connection) -> None:
        """One more."""
        self._open[connection] = None
        self._of.setdefault(connection.address, Callers()).new[connection] = None

    def answered(self, connection: Connection) -> None:
        """It has had an answer."""
        theirs = self._of[connection.address]
        theirs.remove(connection)
        theirs.known[connection] = None

    def remove(self, connection: Connection) -> None:
        """It is over."""
        if connection not in self._open:
            return
        del self._open[connection]
        theirs = self._of[connection.address]
        theirs.remove(connection)
        if not len(theirs):
            del self._of[connection.address]

    def may_keep(self) -> bool:
        """Whether one more may be kept: half of them never are, so that others find room."""
        return 2 * sum(each.kept > 0 for each in self._open) < self._most

    def end_all(self) -> None:
        """End every connection."""
        for each in list(self._open):
            each.end()

    def _end_one(self) -> bool:
        """End the connection that can best be spared; False when there is none.

        It is one of the address that has the most, so that a flood closes its own connections. Of
        these, those without any answer so far come first (a scheduler or a Prometheus has had
        one), then the one that has been silent for the longest time. None is closed within its
        first GRACE_SECONDS.
        """
        latest = time.monotonic() - GRACE_SECONDS
        for theirs in sorted(self._of.values(), key=len, reverse=True):
            spare = theirs.spare()
            if spare is not None:
                if spare.since < latest:
                    spare.end()
                return spare.since < latest
        return False

    async def sweep(self) -> None:
        """End what takes too long, for ever."""
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            now = time.monotonic()
            for each in list(self._open):
                if each.deadline < now:
                    each.end()


def connection_of(request: web.Request) -> Connection | None:
    """The connection that a request came over; None where another server than ours serves."""
    transport = request.transport
    protocol = None if transport is None else transport.get_protocol()
    return protocol if isinstance(protocol, Connection) else None


@contextlib.contextmanager
def kept(request: web.Request) -> Iterator[None]:
    """While inside, the connection is not ended to make room for another."""
    connection = connection_of(request)
    if connection is None or not connection.all_of_them.may_keep():
        yield
        return
    connection.kept += 1
    try:
        yield
    finally:
        connection.kept -= 1


@contextlib.contextmanager
def ends_with_caller(request: web.Request) -> Iterator[None]:
    """While inside, the present task is cancelled when the caller hangs up or is ended: it does
    not go on waiting, with what was received.
    """
    connection = connection_of(request)
    if connection is None:
        yield
        return
    connection.waiting = asyncio.current_task()
    try:
        yield
    finally:
        connection.waiting = None
