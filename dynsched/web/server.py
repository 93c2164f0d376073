"""Serves an application on an address (``--webaddr``, ``--extender-addr``)."""

from __future__ import annotations

import ipaddress
import logging
import re
import ssl
from dataclasses import dataclass
from typing import Final, Self

from aiohttp import web

from dynsched.util.errors import ExpectedError
from dynsched.util.logs import quiet_logger

SHUTDOWN_SECONDS: Final = 0.5
"""Wait for requests in progress. aiohttp then cancels them, and waits for as long again."""
KEEP_ALIVE_SECONDS: Final = 120.0
"""Time until an idle connection is closed: longer than clients keep it themselves (Go: 90 s)."""

_ADDRESS: Final = re.compile(
    r"(?:(?:\[(?P<v6>[0-9A-Fa-f:.]+(?:%\w+)?)\]|(?P<host>[^\s:/\[\]]*)):)?(?P<port>\d{1,5})",
    re.ASCII,
)
_LAST_PORT: Final = 65535


class ListenError(ExpectedError):
    """Cannot listen on the address. The message is one line: which, why, what to do."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen. ``host`` None: all interfaces, IPv4 and IPv6; ``port`` 0: any free port."""

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
    """``:9000``, ``9000``, ``localhost:9000``, ``[::1]:9000`` -> Address. Raises ValueError."""
    match = _ADDRESS.fullmatch(text)
    if match is None:
        hint = "write it like :9000, 127.0.0.1:9000 or [::1]:9000"
        raise ValueError(f"{text!r} is not an address to listen on; {hint}")
    port = int(match["port"])
    if port > _LAST_PORT:
        raise ValueError(f"{text!r}: there is no port {port}; the last is {_LAST_PORT}")
    return Address(match["v6"] or match["host"] or None, port)


class WebServer:
    """Serves between ``start`` and ``stop``, over TLS if there is a ``context``. ``flag``: the
    option that set the address.
    """

    def __init__(
        self,
        app: web.Application,
        address: Address,
        context: ssl.SSLContext | None = None,
        *,
        flag: str = "--webaddr",
    ) -> None:
        self._address = address
        self._flag = flag
        self._context = context
        self._runner = web.AppRunner(
            app,
            access_log=None,  # probes and scrapes would fill the log
            handler_cancellation=True,
            keepalive_timeout=KEEP_ALIVE_SECONDS,
            shutdown_timeout=SHUTDOWN_SECONDS,
        )

    async def start(self) -> None:
        # It logs each request that is not HTTP, and quotes it, so a token could be logged.
        logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)
        quiet_logger("asyncio")  # it logs each connection for which no file descriptor is left
        await self._runner.setup()
        host, port = self._address.host, self._address.port
        try:
            await web.TCPSite(self._runner, host, port, ssl_context=self._context).start()
        except OSError as error:
            await self._runner.cleanup()
            why = error.strerror or error
            raise ListenError(
                f"cannot listen on {self._address}: {why}; give another {self._flag}"
            ) from error

    async def stop(self) -> None:
        """Stop listening, and end requests in progress. It takes about a second."""
        await self._runner.cleanup()

    @property
    def port(self) -> int:
        return int(self._runner.addresses[0][1])

    @property
    def url(self) -> str:
        """The URL to open on this machine."""
        anywhere = (None, "0.0.0.0", "::")  # noqa: S104 (compared, not listened on)
        host = "localhost" if self._address.host in anywhere else self._address.host
        scheme = "https" if self._context else "http"
        return f"{scheme}://{Address(host, self.port)}"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
