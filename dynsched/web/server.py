"""Serves an application on the address of ``--webaddr``."""

from __future__ import annotations

import errno
import re
import socket
import ssl
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from aiohttp import web

SHUTDOWN_SECONDS: Final = 0.5
"""How long a request in progress may go on at the end; idle connections are closed at once.

aiohttp waits so long twice: for the request, and once more after it was cancelled.
"""

_ADDRESS: Final = re.compile(
    r"(?:(?:\[(?P<v6>[0-9A-Fa-f:.]+(?:%\w+)?)\]|(?P<host>[^\s:/\[\]]*)):)?(?P<port>\d{1,5})",
    re.ASCII,
)
_LAST_PORT: Final = 65535


class ListenError(Exception):
    """The address cannot be listened on. One line: which, why, what to do."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen; ``host`` None is every interface, IPv4 and IPv6; ``port`` 0 any free."""

    host: str | None
    port: int

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
    with a ``context``.
    """

    def __init__(
        self, app: web.Application, address: Address, context: ssl.SSLContext | None = None
    ) -> None:
        self._address = address
        self._context = context
        self._runner = web.AppRunner(
            app,
            handle_signals=False,  # the application's own, in `app`
            access_log=None,  # probes and scrapes would fill the log
            shutdown_timeout=SHUTDOWN_SECONDS,
        )

    async def start(self) -> None:
        """Listen. ListenError when that is not possible."""
        await self._runner.setup()
        address = self._address
        try:
            site = web.TCPSite(self._runner, address.host, address.port, ssl_context=self._context)
            await site.start()
        except OSError as error:
            await self._runner.cleanup()
            raise ListenError(_explain(address, error)) from error

    async def stop(self) -> None:
        """Stop listening, end what is in progress; done in about a second."""
        await self._runner.cleanup()

    @property
    def port(self) -> int:
        """The port that is listened on, also where any free one was asked for."""
        return int(self._runner.addresses[0][1])

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


def _explain(address: Address, error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return f"cannot listen on {address}: the host name {address.host!r} is not known here"
    reasons = {
        errno.EADDRINUSE: "the port is in use; stop what listens there, or give another --webaddr",
        errno.EACCES: "not allowed; a port above 1023 needs no privileges",
        errno.EADDRNOTAVAIL: f"this machine has no address {address.host}; :{address.port} "
        "listens on every one that it has",
    }
    reason = reasons.get(error.errno or 0, error.strerror or str(error))
    return f"cannot listen on {address}: {reason}"
