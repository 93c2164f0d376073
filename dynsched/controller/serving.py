"""The HTTP servers of `dynsched run`: for people and programs, and for kube-scheduler."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Middleware

from dynsched.api.app import make_app, make_extender_app
from dynsched.api.auth import Reviews, require_token
from dynsched.api.certificates import ServerTls, TlsConfig, require_certificate
from dynsched.api.extender.answers import Extender
from dynsched.api.extender.endpoints import EXTENDER_ENDPOINTS
from dynsched.api.server import WebServer, parse_address
from dynsched.api.snapshots import SnapshotStore
from dynsched.api.transport.answering import PROBES
from dynsched.api.transport.bodies import MIB
from dynsched.controller.settings import Settings

logger = logging.getLogger(__name__)

_WITHOUT_TOKEN: Final = PROBES | EXTENDER_ENDPOINTS.keys()
"""The kubelet and kube-scheduler have no token to send."""


@contextlib.asynccontextmanager
async def serving(
    settings: Settings, snapshots: SnapshotStore, extender: Extender, reviews: Reviews | None
) -> AsyncIterator[WebServer]:
    """The server of ``--webaddr``, while it and that of ``--extender-addr``, if any, listen. With
    ``reviews`` a bearer token is needed, but for probes and the scheduler. Raises ListenError.
    """
    memory = settings.extender_memory * MIB
    guards = _certificate(settings.tls)
    if reviews is not None:
        guards.append(require_token(reviews, _WITHOUT_TOKEN))
        _warn_of_tokens_in_the_clear(settings)
    own = settings.extender_addr
    app = make_app(
        snapshots,
        extender if own is None else None,
        memory=memory,
        guards=guards,
    )
    async with contextlib.AsyncExitStack() as stack:
        if own is not None:
            tls = settings.extender_tls
            beside = make_extender_app(
                app, snapshots, extender, memory=memory, guards=_certificate(tls)
            )
            of_extender = _server(beside, own, tls, "--extender-addr", 2)
            await stack.enter_async_context(of_extender)
            logger.info("serving the scheduler extender on %s", of_extender.url)
        of = 1 if own is None else 2
        yield await stack.enter_async_context(
            _server(app, settings.webaddr, settings.tls, "--webaddr", of)
        )


def _certificate(tls: TlsConfig | None) -> list[Middleware]:
    return [require_certificate] if tls is not None and tls.client_ca is not None else []


def _server(
    app: web.Application, address: str, tls: TlsConfig | None, flag: str, of: int
) -> WebServer:
    context = None if tls is None else ServerTls(tls).context
    return WebServer(app, parse_address(address), context, flag=flag, of=of)


def _warn_of_tokens_in_the_clear(settings: Settings) -> None:
    if settings.tls is None and not parse_address(settings.webaddr).loopback:
        logger.warning(
            "--web-auth without --tls-cert: tokens come over plain HTTP, and whoever reads one on "
            "the way can use it until it expires; give --tls-cert and --tls-key, or let only a "
            "proxy with TLS reach %s",
            settings.webaddr,
        )
