"""What all answers over HTTP have in common: header fields, JSON."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any, Final

import msgspec
from aiohttp import hdrs, web

PROBES: Final = frozenset({"/healthz", "/readyz"})
"""Paths of the kubelet, which sends neither a token nor a client certificate."""
JSON: Final = "application/json"

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_ALWAYS: Final[Mapping[str, str]] = {
    "X-Content-Type-Options": "nosniff",
    # Node names must not leave with a link to another site.
    "Referrer-Policy": "no-referrer",
    # No other site may load an answer as an image or a script, to learn from how that goes.
    "Cross-Origin-Resource-Policy": "same-origin",
    # Instead of the names and versions of the libraries.
    hdrs.SERVER: "dynsched",
}
_UNLESS_SET: Final[Mapping[str, str]] = {
    # An answer is out of date after one tick, also in a proxy.
    hdrs.CACHE_CONTROL: "no-store",
    # Only the page loads anything, and no answer is shown in a frame.
    "Content-Security-Policy": "default-src 'none'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
}
"""The page has others. Strict-Transport-Security would hold for every port of the host name, and so
for programs that are not ours."""


async def add_headers(_request: web.Request, response: web.StreamResponse) -> None:
    """Called before each answer's headers are sent (`on_response_prepare`)."""
    response.headers.update(_ALWAYS)
    for name, value in _UNLESS_SET.items():
        response.headers.setdefault(name, value)


def as_json(
    body: object, status: int = HTTPStatus.OK, hook: Callable[[Any], Any] = str
) -> web.Response:
    """``hook``: for each `Reason`; by default it is its sentence."""
    encoded = msgspec.json.encode(body, enc_hook=hook)
    return web.Response(body=encoded, status=status, content_type=JSON)


def refused(status: int, message: str) -> web.Response:
    return as_json({"error": message}, status)
