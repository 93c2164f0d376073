"""Shared by all applications: header fields, JSON, errors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

import msgspec
from aiohttp import hdrs, web
from aiohttp.typedefs import Middleware

from dynsched.util.logs import quiet_logger

_logger = quiet_logger(__name__)

PROBES: Final = frozenset({"/healthz", "/readyz"})
"""Paths that the kubelet requests. It sends neither a token nor a client certificate."""
JSON: Final = "application/json"
_PATHS: Final[web.AppKey[Collection[str]]] = web.AppKey("paths")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_ALWAYS: Final[Mapping[str, str]] = {
    "X-Content-Type-Options": "nosniff",
    # Node names must not leave with a link to another site.
    "Referrer-Policy": "no-referrer",
    # Other sites must not learn anything by loading a response as an image or a script.
    "Cross-Origin-Resource-Policy": "same-origin",
    # Hides the names and versions of the libraries.
    hdrs.SERVER: "dynsched",
}
_UNLESS_SET: Final[Mapping[str, str]] = {
    # A response is outdated after one tick, also in a proxy.
    hdrs.CACHE_CONTROL: "no-store",
    # Only the page loads anything, and no response is shown in a frame.
    "Content-Security-Policy": "default-src 'none'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
}
"""Defaults; the page sets its own. There is no Strict-Transport-Security: it would hold for every
port of the host name, and so for other programs."""


def new_application(
    paths: Collection[str], max_body: int, guards: Sequence[Middleware] = ()
) -> web.Application:
    """``paths`` are listed in a 404. ``max_body`` is in bytes. ``guards`` can refuse requests."""
    app = web.Application(middlewares=[_errors_as_json, *guards], client_max_size=max_body)
    app[_PATHS] = paths
    app.on_response_prepare.append(_add_headers)
    return app


async def _add_headers(_request: web.Request, response: web.StreamResponse) -> None:
    """Called before the headers of a response are sent (`on_response_prepare`)."""
    response.headers.update(_ALWAYS)
    for name, value in _UNLESS_SET.items():
        response.headers.setdefault(name, value)


def as_json(
    body: object, status: int = HTTPStatus.OK, hook: Callable[[Any], Any] = str
) -> web.Response:
    """``hook`` encodes each `Reason`, by default as its sentence."""
    encoded = msgspec.json.encode(body, enc_hook=hook)
    return web.Response(body=encoded, status=status, content_type=JSON)


def refused(status: int, message: str) -> web.Response:
    return as_json({"error": message}, status)


@web.middleware
async def _errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Return errors as JSON. An unexpected exception is logged, and the server continues."""
    try:
        return await handler(request)
    except web.HTTPException as refusal:
        return _refused(request, refusal)
    except ConnectionError:
        raise  # the client disconnected
    except Exception:
        _logger.exception("%s %s failed", request.method, request.path)
        return refused(HTTPStatus.INTERNAL_SERVER_ERROR, "internal error; the log has the details")


def _refused(request: web.Request, refusal: web.HTTPException) -> web.Response:
    if isinstance(refusal, web.HTTPNotFound):
        body = {"error": f"there is no {request.path}", "endpoints": [*request.app[_PATHS]]}
        return as_json(body, refusal.status)
    if isinstance(refusal, web.HTTPMethodNotAllowed):
        allowed = ", ".join(sorted(refusal.allowed_methods))
        response = refused(
            refusal.status, f"{request.method} is not for {request.path}; use {allowed}"
        )
        response.headers[hdrs.ALLOW] = allowed
        return response
    return refused(refusal.status, refusal.text or refusal.reason)
