"""The HTTP servers of `dynsched run`: for people and programs, and for kube-scheduler.

What only TLS or `--web-auth` needs is imported where its flag is read.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from aiohttp import web
from aiohttp.typedefs import Middleware

from dynsched.api.app import make_app, make_extender_app
from dynsched.api.extender.answers import Extender
from dynsched.api.extender.endpoints import EXTENDER_ENDPOINTS
from dynsched.api.server import WebServer, parse_address
from dynsched.api.snapshots import SnapshotStore
from dynsched.api.transport.answering import PROBES
from dynsched.api.transport.bodies import MIB
from dynsched.controller.settings import Settings
from dynsched.util.tls import TlsConfig

if TYPE_CHECKING:
    from dynsched.api.auth import Reviews

logger = logging.getLogger(__name__)


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
        from dynsched.api.auth import require_token

        # The kubelet and kube-scheduler have no token to send.
        guards.append(require_token(reviews, PROBES | EXTENDER_ENDPOINTS.keys()))
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
            alone = make_extender_app(
                app, snapshots, extender, memory=memory, guards=_certificate(tls)
            )
            of_extender = _server(alone, own, tls, "--extender-addr", 2)
            await stack.enter_async_context(of_extender)
            logger.info("serving the scheduler extender on %s", of_extender.url)
        of = 1 if own is None else 2
        yield await stack.enter_async_context(
            _server(app, settings.webaddr, settings.tls, "--webaddr", of)
        )


def _certificate(tls: TlsConfig | None) -> list[Middleware]:
    if tls is None or tls.client_ca is None:
        return []
    from dynsched.api.certificates import require_certificate

    return [require_certificate]


def _server(
    app: web.Application, address: str, tls: TlsConfig | None, flag: str, of: int
) -> WebServer:
    context = None
    if tls is not None:
        from dynsched.api.certificates import ServerTls

        context = ServerTls(tls).context
    return WebServer(app, parse_address(address), context, flag=flag, of=of)


def _warn_of_tokens_in_the_clear(settings: Settings) -> None:
    if settings.tls is None and not parse_address(settings.webaddr).loopback:
        logger.warning(
            "--web-auth without --tls-cert: tokens come over plain HTTP, and whoever reads one on "
            "the way can use it until it expires; give --tls-cert and --tls-key, or let only a "
            "proxy with TLS reach %s",
            settings.webaddr,
        )
