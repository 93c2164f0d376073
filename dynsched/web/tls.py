"""TLS for what we serve: certificate, key and clients' CA, read again when their files change."""

from __future__ import annotations

import logging
import ssl
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Final

from aiohttp import web

from dynsched.web.server import ListenError

_LOG: Final = logging.getLogger(__name__)
LOOK_AGAIN: Final = 1.0
"""Seconds between two looks at the files, however many connections there are."""
WITHOUT_CERTIFICATE: Final = frozenset({"/healthz", "/readyz"})
"""What the kubelet's probes ask: they have no client certificate."""

_Fingerprint = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """PEM files. With ``client_ca`` callers need a certificate that it signed, but for probes."""

    cert: Path
    key: Path
    client_ca: Path | None = None


class ServerTls:
    """The context to listen with. New connections get the files as they are at that time; files
    that cannot be used leave the last good ones at work, and are told once in the log.

    Raises ListenError when the files cannot be used at the start.
    """

    def __init__(self, config: TlsConfig) -> None:
        self._config = config
        self._looked_at = time.monotonic()
        try:
            self._seen = _fingerprint(config)
            self._current = _load(config)
        except (OSError, ValueError) as error:
            raise ListenError(f"TLS: {_explain(config, error)}") from None
        # A context of its own, which lives as long as the listener: each connection is moved to
        # the current one when its first message is in.
        self.context = _load(config)
        self.context.sni_callback = self._move

    def _move(
        self,
        connection: ssl.SSLObject | ssl.SSLSocket,
        _name: str | None,
        _context: ssl.SSLSocket | ssl.SSLContext,
    ) -> None:
        self._look_again()
        connection.context = self._current

    def _look_again(self) -> None:
        now = time.monotonic()
        if now - self._looked_at < LOOK_AGAIN:
            return
        self._looked_at = now
        try:
            seen = _fingerprint(self._config)
            if seen == self._seen:
                return
            self._seen = seen
            self._current = _load(self._config)
        except (OSError, ValueError) as error:
            _LOG.warning(
                "TLS: the new files cannot be used, the old ones stay: %s",
                _explain(self._config, error),
            )
        else:
            _LOG.info("TLS: the certificate was read again")


@web.middleware
async def require_certificate(
    request: web.Request,
    handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
) -> web.StreamResponse:
    """Refuse callers without a client certificate. One that is there was verified already."""
    has_one = request.transport is not None and request.transport.get_extra_info("peercert")
    if not has_one and request.path not in WITHOUT_CERTIFICATE:
        return web.json_response(
            {"error": "a client certificate is needed"}, status=HTTPStatus.FORBIDDEN
        )
    return await handler(request)


def _load(config: TlsConfig) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    # Without a password callback openssl would ask at the terminal.
    context.load_cert_chain(config.cert, config.key, password=_no_password)
    if config.client_ca is not None:
        context.load_verify_locations(config.client_ca)
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def _no_password() -> str:
    raise ValueError("the key is encrypted; give one without a password")


def _fingerprint(config: TlsConfig) -> _Fingerprint:
    files = [file for file in (config.cert, config.key, config.client_ca) if file is not None]
    stats = [file.stat() for file in files]
    return tuple((s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns) for s in stats)


def _explain(config: TlsConfig, error: Exception) -> str:
    files = f"certificate {config.cert}, key {config.key}"
    if config.client_ca is not None:
        files += f", client CA {config.client_ca}"
    if isinstance(error, FileNotFoundError | PermissionError | IsADirectoryError):
        return f"{error.filename or files}: {error.strerror}"
    if isinstance(error, ssl.SSLError):
        return f"{files}: {error.reason or 'not PEM'}; do certificate and key belong together?"
    return f"{files}: {error}"
