"""TLS of the servers: certificate, key and client CA, which are read again when they change."""

from __future__ import annotations

import logging
import ssl
from http import HTTPStatus
from typing import Final

from aiohttp import web

from dynsched.util.tls import TlsConfig, TlsFilesError, fingerprints, make_context
from dynsched.web.responses import PROBES, Handler, refused
from dynsched.web.server import ListenError

_LOG: Final = logging.getLogger(__name__)


class ServerTls:
    """Gives each new connection the current files. If they cannot be used, the last valid ones stay
    in use, and the problem is logged once. At the start, they raise ListenError.
    """

    def __init__(self, config: TlsConfig) -> None:
        self._config = config
        self._problem = ""
        try:
            self._seen, self._current = _files(config), _load(config)
            self.context = _load(config)
        except (OSError, TlsFilesError) as error:
            raise ListenError(f"TLS: {_explain(config, error)}") from None
        # The listener keeps this context; each connection is moved to the current one.
        self.context.sni_callback = self._move

    def _move(
        self,
        connection: ssl.SSLObject | ssl.SSLSocket,
        _name: str | None,
        _context: ssl.SSLSocket | ssl.SSLContext,
    ) -> None:
        try:
            seen = _files(self._config)
            if seen != self._seen:
                self._current, self._seen = _load(self._config), seen
                _LOG.info("TLS: the certificate was read again")
            self._problem = ""
        except (OSError, TlsFilesError) as error:
            problem = _explain(self._config, error)
            if problem != self._problem:
                _LOG.warning(
                    "TLS: the new files cannot be used, the old ones stay in use: %s", problem
                )
            self._problem = problem
        connection.context = self._current


@web.middleware
async def require_certificate(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse requests without a client certificate, except the kubelet's probes. TLS has verified
    the certificate already.
    """
    has_one = request.transport is not None and request.transport.get_extra_info("peercert")
    if not has_one and request.path not in PROBES:
        return refused(HTTPStatus.FORBIDDEN, "a client certificate is needed")
    return await handler(request)


def _files(config: TlsConfig) -> tuple[tuple[int, ...], ...]:
    return fingerprints(config.cert, config.key, config.client_ca)


def _load(config: TlsConfig) -> ssl.SSLContext:
    context = make_context(
        ssl.Purpose.CLIENT_AUTH, cert=config.cert, key=config.key, ca=config.client_ca
    )
    if config.client_ca is not None:
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def _explain(config: TlsConfig, error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{error.filename or config.cert}: {error.strerror or error}"
    return str(error)
