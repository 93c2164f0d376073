"""TLS for what we serve: certificate, key and clients' CA, read again when their files change."""

from __future__ import annotations

import logging
import ssl
import time
from functools import partial
from http import HTTPStatus
from typing import Final

from aiohttp import web

from dynsched.api.server import ListenError
from dynsched.api.transport.answering import PROBES, Handler, refused
from dynsched.util.threads import Aside, NotDoneError
from dynsched.util.tls import TlsConfig, TlsFilesError, fingerprints, make_context

_LOG: Final = logging.getLogger(__name__)
READ_AGAIN: Final = 1.0
"""Seconds between two checks of the files, however many connections there are."""
READ_SECONDS: Final = 2.0
"""How long the start waits for the files."""
CHECK_SECONDS: Final = 0.25
"""How long a check waits for them, in the event loop; where they take longer (a file system that
hangs), the next connection has them."""

_Fingerprint = tuple[tuple[int, ...], ...]
_Found = tuple[_Fingerprint, ssl.SSLContext]


class ServerTls:
    """New connections get the files as they are at that time; files that cannot be used leave the
    last valid ones in use, and are reported once in the log; ListenError at the start.
    """

    def __init__(self, config: TlsConfig) -> None:
        self._config = config
        self._checked_at = time.monotonic()
        self._problem = ""
        self._aside: Aside[_Found | None] = Aside("TLS files")
        # A context of its own, which lives as long as the listener: each connection is moved to
        # the current one when its first message is in.
        (self._seen, self._current), (_, self.context) = (self._first(), self._first())
        self.context.sni_callback = self._move

    def _first(self) -> _Found:
        try:
            found = self._aside.call(partial(_read, self._config, None), READ_SECONDS)
        except (OSError, TlsFilesError, NotDoneError) as error:
            raise ListenError(f"TLS: {_explain(self._config, error)}") from None
        assert found is not None  # noqa: S101 (nothing is known that it could be the same as)
        return found

    def _move(
        self,
        connection: ssl.SSLObject | ssl.SSLSocket,
        _name: str | None,
        _context: ssl.SSLSocket | ssl.SSLContext,
    ) -> None:
        self._check()
        connection.context = self._current

    def _check(self) -> None:
        now = time.monotonic()
        if now - self._checked_at < READ_AGAIN:
            return
        self._checked_at = now
        try:
            found = self._aside.call(partial(_read, self._config, self._seen), CHECK_SECONDS)
        except (OSError, TlsFilesError, NotDoneError) as error:
            problem = _explain(self._config, error)
            if problem != self._problem:
                _LOG.warning(
                    "TLS: the new files cannot be used, the old ones stay in use: %s", problem
                )
            self._problem = problem
            return
        self._problem = ""
        if found is not None:
            self._seen, self._current = found
            _LOG.info("TLS: the certificate was read again")


@web.middleware
async def require_certificate(request: web.Request, handler: Handler) -> web.StreamResponse:
    """One that is there was verified already; the kubelet's probes have none."""
    has_one = request.transport is not None and request.transport.get_extra_info("peercert")
    if not has_one and request.path not in PROBES:
        return refused(HTTPStatus.FORBIDDEN, "a client certificate is needed")
    return await handler(request)


def _read(config: TlsConfig, seen: _Fingerprint | None) -> _Found | None:
    """None when they are the ones that were seen."""
    cert, key, ca = config.cert, config.key, config.client_ca
    found = fingerprints(cert, key, ca)
    if found == seen:
        return None
    context = make_context(ssl.Purpose.CLIENT_AUTH, cert=cert, key=key, ca=ca)
    if ca is not None:
        context.verify_mode = ssl.CERT_OPTIONAL
    return found, context


def _explain(config: TlsConfig, error: Exception) -> str:
    files = f"certificate {config.cert}, key {config.key}"
    if config.client_ca is not None:
        files += f", client CA {config.client_ca}"
    if isinstance(error, NotDoneError):
        return f"{files}: they cannot be read; does the file system hang that they are on?"
    if isinstance(error, OSError):
        return f"{error.filename or files}: {error.strerror or error}"
    return str(error)
