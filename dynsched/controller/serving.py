"""The web servers of `dynsched run`. Modules that only a flag needs are imported if it is set."""

from __future__ import annotations

import contextlib
import logging
import ssl
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import TYPE_CHECKING

from aiohttp.typedefs import Middleware

from dynsched.controller.clients import Clients
from dynsched.controller.settings import Settings
from dynsched.kube.transport import KubeApi
from dynsched.util.tls import TlsConfig
from dynsched.web.app import make_app
from dynsched.web.extender import EXTENDER_ENDPOINTS, make_extender_app
from dynsched.web.responses import PROBES
from dynsched.web.server import WebServer, parse_address
from dynsched.web.ticks import TickStore

if TYPE_CHECKING:
    from dynsched.features.extender.answers import Extender
    from dynsched.kube.reviews import AccessReviews

logger = logging.getLogger(__name__)


def access_reviews(settings: Settings, clients: Clients) -> AccessReviews | None:
    """Reviews of readers' tokens and permissions by the API server; None without ``--web-auth``."""
    if not settings.web_auth:
        return None
    from dynsched.kube.reviews import IN_FLIGHT, AccessReviews

    api = clients.open(partial(KubeApi, in_flight=IN_FLIGHT))
    return AccessReviews(api, settings.web_auth_audience)


@contextlib.asynccontextmanager
async def serving(
    settings: Settings,
    ticks: TickStore,
    extender: Callable[[], Extender | None],
    reviews: AccessReviews | None,
) -> AsyncIterator[WebServer]:
    """Listen on ``--webaddr`` and, if used, ``--extender-addr`` and ``--webhook-addr``. Yields the
    server of ``--webaddr``.

    With ``reviews``, requests to ``--webaddr`` need a bearer token, except those of probes and the
    scheduler. Raises ListenError.
    """
    context, guards = _tls(settings.tls)
    if reviews is not None:
        from dynsched.web.auth import require_token

        # The kubelet and kube-scheduler have no token to send.
        open_paths = PROBES | EXTENDER_ENDPOINTS.keys()
        guards.append(require_token(reviews.user_of, reviews.may_get, open_paths))
        if settings.tls is None and not parse_address(settings.webaddr).loopback:
            logger.warning(
                "--web-auth without --tls-cert: tokens are sent over plain HTTP, and anyone who "
                "intercepts one can use it until it expires; give --tls-cert and --tls-key, or let "
                "only a proxy with TLS reach %s",
                settings.webaddr,
            )
    own = settings.extender_addr
    shared = extender if own is None else None
    app = make_app(ticks, shared, guards=guards)
    async with contextlib.AsyncExitStack() as stack:
        if own is not None:
            tls, known = _tls(settings.extender_tls)
            alone = make_extender_app(extender, ticks.metrics.extender_asked, guards=known)
            server = WebServer(alone, parse_address(own), tls, flag="--extender-addr")
            await stack.enter_async_context(server)
            logger.info("serving the scheduler extender on %s", server.url)
        if settings.webhook_cert_dir is not None:
            from dynsched.web.webhook import make_webhook_app

            files = (settings.webhook_cert_dir / name for name in ("tls.crt", "tls.key"))
            tls, _ = _tls(TlsConfig(*files))
            address = parse_address(settings.webhook_addr)
            server = WebServer(make_webhook_app(ticks), address, tls, flag="--webhook-addr")
            await stack.enter_async_context(server)
            logger.info("serving the order webhook on %s", server.url)
        server = WebServer(app, parse_address(settings.webaddr), context)
        yield await stack.enter_async_context(server)


def _tls(config: TlsConfig | None) -> tuple[ssl.SSLContext | None, list[Middleware]]:
    """A server's TLS context, and the middleware that rejects callers without a certificate."""
    if config is None:
        return None, []
    from dynsched.web.certificates import ServerTls, require_certificate

    return ServerTls(config).context, [require_certificate] if config.client_ca else []
