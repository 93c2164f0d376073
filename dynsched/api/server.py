"""Serves an application on an address (``--webaddr``, ``--extender-addr``)."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import re
import socket
import ssl
from dataclasses import dataclass
from functools import partial
from typing import Final, Self

from aiohttp import web

from dynsched.api.transport.connections import Connection, Connections
from dynsched.util.errors import ExpectedError
from dynsched.util.logs import quiet_logger

SHUTDOWN_SECONDS: Final = 0.5
"""For a request in progress; aiohttp waits once more so long after it was cancelled."""

_QUEUE: Final = 4096
"""Callers that wait in the kernel: beyond it a probe's first packet would be dropped."""
_ROUNDS: Final = 8
"""Rounds of the event loop in which all connections can be taken in: a probe is answered after some
six, before those who come after it make it give way."""
_SOCKET_BUFFER: Final = 256 << 10
"""Bytes that the kernel keeps for each direction of a connection (it doubles them). They count as
the container's memory, and would grow to megabytes with a caller that does not read."""

_ADDRESS: Final = re.compile(
    r"(?:(?:\[(?P<v6>[0-9A-Fa-f:.]+(?:%\w+)?)\]|(?P<host>[^\s:/\[\]]*)):)?(?P<port>\d{1,5})",
    re.ASCII,
)
_LAST_PORT: Final = 65535


class ListenError(ExpectedError):
    """The address cannot be listened on. One line: which, why, what to do."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen; ``host`` None is every interface, IPv4 and IPv6; ``port`` 0 any free."""

    host: str | None
    port: int

    @property
    def loopback(self) -> bool:
        if self.host is None:
            return False
        try:
            return ipaddress.ip_address(self.host.partition("%")[0]).is_loopback
        except ValueError:
            return self.host == "localhost"

    def __str__(self) -> str:
        host = self.host or ""
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"


def parse_address(text: str) -> Address:
    """``:9000``, ``9000``, ``localhost:9000``, ``[::1]:9000`` -> Address; ValueError."""
    match = _ADDRESS.fullmatch(text)
    if match is None:
        hint = "write it like :9000, 127.0.0.1:9000 or [::1]:9000"
        raise ValueError(f"{text!r} is not an address to listen on; {hint}")
    port = int(match["port"])
    if port > _LAST_PORT:
        raise ValueError(f"{text!r}: there is no port {port}; the last is {_LAST_PORT}")
    return Address(match["v6"] or match["host"] or None, port)


class WebServer:
    """Serves between ``start`` and ``stop``, over TLS with a ``context``. ``flag``: where the
    address came from. ``of`` servers share the connections that the process takes in.
    """

    def __init__(
        self,
        app: web.Application,
        address: Address,
        context: ssl.SSLContext | None = None,
        *,
        flag: str = "--webaddr",
        of: int = 1,
    ) -> None:
        self._address = address
        self._flag = flag
        self._context = context
        self._runner = web.AppRunner(app, shutdown_timeout=SHUTDOWN_SECONDS)
        self.connections = Connections(of)
        self._listening: asyncio.Server | None = None

    async def start(self) -> None:
        quiet_logger("asyncio")  # it warns of each slice that is written to who has ended TLS
        await self._runner.setup()
        assert self._runner.server is not None  # noqa: S101 (it is there from `setup` to `cleanup`)
        taken_in = partial(Connection, self._runner.server, self.connections, self._context)
        at_once = max(1, self.connections.most // _ROUNDS)
        try:
            self._listening = await asyncio.get_running_loop().create_server(
                taken_in, self._address.host, self._address.port, backlog=at_once
            )
        except OSError as error:
            await self._runner.cleanup()
            raise ListenError(_explain(self._address, self._flag, error)) from error
        for each in self._listening.sockets:
            for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):  # what is taken in inherits it
                each.setsockopt(socket.SOL_SOCKET, option, _SOCKET_BUFFER)
            # asyncio has one figure for both: the queue, and how many it takes in in a round.
            with each.dup() as same:
                same.listen(_QUEUE)

    async def stop(self) -> None:
        """Stop listening, end what is in progress; done in about a second."""
        if self._listening is not None:
            self._listening.close()
        await self._runner.cleanup()
        self.connections.end_all()
        await asyncio.sleep(0)

    @property
    def port(self) -> int:
        assert self._listening is not None, "not started"  # noqa: S101
        return int(self._listening.sockets[0].getsockname()[1])

    @property
    def url(self) -> str:
        """A URL for a person on this machine."""
        anywhere = (None, "0.0.0.0", "::")  # noqa: S104 (compared, not listened on)
        host = "localhost" if self._address.host in anywhere else self._address.host
        scheme = "https" if self._context else "http"
        return f"{scheme}://{Address(host, self.port)}"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()


def _explain(address: Address, flag: str, error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return f"cannot listen on {address}: the host name {address.host!r} cannot be resolved"
    reasons = {
        errno.EADDRINUSE: f"the port is in use; stop what listens there, or give another {flag}",
        errno.EACCES: "not allowed; a port above 1023 needs no privileges",
        errno.EADDRNOTAVAIL: f"this machine has no address {address.host}; :{address.port} "
        "listens on every one that it has",
    }
    reason = reasons.get(error.errno or 0, error.strerror or str(error))
    return f"cannot listen on {address}: {reason}"
