"""Listens on an address and takes callers in, no more than there is room for."""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
import socket
import ssl
import struct
import sys
from collections.abc import Callable
from typing import Final

from dynsched.api.transport.connections import Connection, Connections

logger = logging.getLogger(__name__)

MAX_CONNECTIONS: Final = 128
"""Connections at a time: a few schedulers, Prometheus, probes and people, with room."""
MAX_TLS_CONNECTIONS: Final = 64
"""With TLS each holds up to 0.9 MB: buffers of asyncio and of OpenSSL."""
OF_OPEN_FILES: Final = 4
"""Connections may take at most one in this many of the open files that the process may have; the
rest is for the API server, Prometheus and files."""

HANDSHAKE_SECONDS: Final = 10.0
GOODBYE_SECONDS: Final = 1.0
"""How long a caller has for the end of TLS."""

_BACKLOG: Final = 4096
_SOCKET_BUFFER: Final = 256 << 10
"""Bytes that the kernel keeps for each direction of a connection (it doubles them). They count as
the container's memory; left alone, they would grow to megabytes with a caller that does not read.
"""
_ROUNDS: Final = 8
"""Rounds of the event loop in which as many callers are taken in as there is room for: one of them
is heard and its probe answered, after some six, before those who come after it make it give way."""
_WAIT_FOR_FILES: Final = 0.1
_LAST_ACK: Final = struct.Struct("=56xI")
"""The field tcpi_last_ack_recv of the kernel's struct tcp_info (linux/tcp.h): milliseconds."""


class Listener:
    """``server`` makes the HTTP server's protocol for a caller; ``context`` is that for TLS. This
    is one of ``of`` listeners, each of which takes an equal part of the process's connections.
    """

    def __init__(
        self, server: Callable[[], asyncio.Protocol], context: ssl.SSLContext | None, of: int = 1
    ) -> None:
        self._server = server
        self._context = context
        most = MAX_TLS_CONNECTIONS if context else MAX_CONNECTIONS
        self._most = max(1, min(most, _open_files() // OF_OPEN_FILES) // of)
        self._at_once = max(1, self._most // _ROUNDS)
        self._connections = Connections(self._most)
        self._sockets: list[socket.socket] = []
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return int(self._sockets[0].getsockname()[1])

    async def start(self, host: str | None, port: int) -> None:
        """Listen; ``host`` None is every interface. OSError when that is not possible."""
        try:
            await self._bind(host, port)
        except BaseException:
            self._close()
            raise
        self._tasks = [asyncio.create_task(self._accept(each)) for each in self._sockets]
        self._tasks.append(asyncio.create_task(self._connections.sweep()))

    async def stop(self) -> None:
        """Take no more callers in. Those that are here stay."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._close()

    async def end(self) -> None:
        """End what is left of the connections."""
        self._connections.end_all()
        await asyncio.sleep(0)

    async def _bind(self, host: str | None, port: int) -> None:
        infos = await asyncio.get_running_loop().getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        refused: OSError | None = None
        for family, address in dict.fromkeys((info[0], info[4]) for info in infos):
            try:
                made = socket.create_server(address, family=family, backlog=_BACKLOG)
            except OSError as error:
                if not _no_such_family(error) or len(infos) == 1:
                    raise
                refused = error  # no IPv6 here, say; one that works is enough
                continue
            made.setblocking(False)  # noqa: FBT003 (the library's own signature)
            for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):  # what is taken in inherits it
                made.setsockopt(socket.SOL_SOCKET, option, _SOCKET_BUFFER)
            self._sockets.append(made)
        if not self._sockets and refused is not None:
            raise refused

    def _close(self) -> None:
        for each in self._sockets:
            each.close()

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        taken = 0
        while True:
            try:
                found, address = await loop.sock_accept(listening)
            except ConnectionError:
                continue  # the caller is gone already
            except OSError as error:
                # Out of open files, or of memory for sockets. The next connection that ends
                # makes a place; idle ones are ended by their time limit.
                why = {"message": "no caller can be taken in", "exception": error}
                loop.call_exception_handler(why)
                await asyncio.sleep(_WAIT_FOR_FILES)
                continue
            await self._connections.room()
            self._admit(found, str(address[0]))
            taken += 1
            if taken % self._at_once == 0:
                await asyncio.sleep(0)

    def _admit(self, found: socket.socket, address: str) -> None:
        waited = 0.0 if self._context else _connected_for(found)  # a handshake is still to come
        connection = Connection(self._server, self._connections, address, waited)
        self._connections.add(connection)
        task = asyncio.create_task(self._establish(found, connection))
        connection.task = task
        task.add_done_callback(lambda task: self._established(task, found, connection))

    async def _establish(self, found: socket.socket, connection: Connection) -> None:
        over_tls = self._context is not None
        await asyncio.get_running_loop().connect_accepted_socket(
            lambda: connection,
            found,
            ssl=self._context,
            ssl_handshake_timeout=HANDSHAKE_SECONDS if over_tls else None,
            ssl_shutdown_timeout=GOODBYE_SECONDS if over_tls else None,
        )

    def _established(
        self, task: asyncio.Task[None], found: socket.socket, connection: Connection
    ) -> None:
        connection.task = None  # it holds the frames that it went through, and they the connection
        if connection.transport is None:  # no handshake, or no time for one
            self._connections.remove(connection)
            found.close()
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, OSError):
            logger.error("a connection could not be taken in: %s", error)


def _open_files() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 20 if soft == resource.RLIM_INFINITY else soft


def _connected_for(found: socket.socket) -> float:
    """Seconds since the kernel last heard of a caller that it has just handed over: since its
    connection, or since what it sent. 0 where that is not known.
    """
    if sys.platform != "linux":
        return 0.0
    try:
        info = found.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _LAST_ACK.size)
    except OSError:
        return 0.0  # it is gone already
    milliseconds: int = _LAST_ACK.unpack(info)[0] if len(info) == _LAST_ACK.size else 0
    return min(milliseconds / 1000, HANDSHAKE_SECONDS)


def _no_such_family(error: OSError) -> bool:
    return error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
