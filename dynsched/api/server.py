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
from types import TracebackType
from typing import Any, Final, Self

from aiohttp import web

from dynsched.api.transport.listener import Listener
from dynsched.api.transport.protocol import Protocol
from dynsched.api.transport.quiet import http_logger
from dynsched.util.errors import ExpectedError

SHUTDOWN_SECONDS: Final = 0.5
"""How long a request in progress may go on at the end; idle connections are closed at once.

aiohttp waits so long twice: for the request, and once more after it was cancelled.
"""
LINGER_SECONDS: Final = 1.0
"""Seconds for which the rest of a refused body is read, so that the caller receives its answer."""

READ_AHEAD: Final = 64 << 10
"""Bytes of a body that are kept before somebody reads them; twice this, and what comes at once."""

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
        """Whether only this machine (in a pod: this pod) reaches it."""
        if self.host is None:
            return False
        try:
            return ipaddress.ip_address(self.host.partition("%")[0]).is_loopback
        except ValueError:
            return self.host == "localhost"

    def overlaps(self, other: Address) -> bool:
        """Whether the two name the same port of one host; no host names all of them."""
        hosts = {self.host, other.host}
        return self.port == other.port != 0 and (len(hosts) == 1 or None in hosts)

    def __str__(self) -> str:
        host = self.host or ""
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"


def parse_address(text: str) -> Address:
    """``:9000``, ``9000``, ``0.0.0.0:9000``, ``localhost:9000``, ``[::1]:9000`` -> Address.

    ValueError with the reason.
    """
    match = _ADDRESS.fullmatch(text)
    if match is None:
        hint = "write it like :9000, 127.0.0.1:9000 or [::1]:9000"
        raise ValueError(f"{text!r} is not an address to listen on; {hint}")
    port = int(match["port"])
    if port > _LAST_PORT:
        raise ValueError(f"{text!r}: there is no port {port}; the last is {_LAST_PORT}")
    return Address(match["v6"] or match["host"] or None, port)


class WebServer:
    """An application, served between ``start`` and ``stop`` (or inside ``async with``); over TLS
    with a ``context``. ``flag`` is the one that the address came from. It is one of ``of`` servers,
    which share the connections that the process takes in.
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
        self._of = of
        self._address = address
        self._flag = flag
        self._context = context
        self._runner = web.AppRunner(
            app,
            handle_signals=False,  # the application's own, in `app`
            shutdown_timeout=SHUTDOWN_SECONDS,
        )
        self._listener: Listener | None = None

    async def start(self) -> None:
        """Listen. ListenError when that is not possible."""
        await self._runner.setup()
        server = self._runner.server
        assert server is not None  # noqa: S101 (it is there from `setup` to `cleanup`)
        options: dict[str, Any] = {
            "access_log": None,  # probes and scrapes would fill the log
            "logger": http_logger(),
            "lingering_time": LINGER_SECONDS,
            "read_bufsize": READ_AHEAD,
            "auto_decompress": False,  # a kilobyte would become a megabyte before anybody reads it
        }
        protocol = partial(Protocol, server, loop=asyncio.get_running_loop(), **options)
        self._listener = Listener(protocol, self._context, self._of)
        try:
            await self._listener.start(self._address.host, self._address.port)
        except OSError as error:
            await self._runner.cleanup()
            raise ListenError(_explain(self._address, self._flag, error)) from error

    async def stop(self) -> None:
        """Stop listening, end what is in progress; done in about a second."""
        listener, self._listener = self._listener, None
        if listener is not None:
            await listener.stop()
        await self._runner.cleanup()
        if listener is not None:
            await listener.end()

    @property
    def port(self) -> int:
        """The port that is listened on, also where any free one was asked for."""
        assert self._listener is not None, "not started"  # noqa: S101
        return self._listener.port

    @property
    def url(self) -> str:
        """A URL for a person on this machine."""
        host = self._address.host
        if host in (None, "0.0.0.0", "::"):  # noqa: S104 (compared, not listened on)
            host = "localhost"
        scheme = "https" if self._context else "http"
        return f"{scheme}://{Address(host, self.port)}"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
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
