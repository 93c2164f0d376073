"""Headers of every answer that tell a browser what it must not do with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aiohttp import hdrs, web

_ALWAYS: Final[Mapping[str, str]] = {
    "X-Content-Type-Options": "nosniff",
    # For browsers that do not know frame-ancestors.
    "X-Frame-Options": "DENY",
    # Node names must not leave with a link to another site.
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    # No other site may load an answer as an image or a script, to learn from how that goes.
    "Cross-Origin-Resource-Policy": "same-origin",
    # Instead of the names and versions of the libraries.
    hdrs.SERVER: "dynsched",
}
_UNLESS_SET: Final[Mapping[str, str]] = {
    # An answer is out of date after one tick, also in a proxy.
    hdrs.CACHE_CONTROL: "no-store",
    # What is no page loads nothing and is shown in no frame.
    "Content-Security-Policy": "default-src 'none'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
}
"""The page and its files have others.

There is no Strict-Transport-Security: it would hold for every port of the host name, and so for
programs that are not ours.
"""


async def protect(_request: web.Request, response: web.StreamResponse) -> None:
    """To be called before each answer's headers are sent (`on_response_prepare`)."""
    add_headers(response)


def add_headers(response: web.StreamResponse) -> None:
    """Those that every answer has."""
    response.headers.update(_ALWAYS)
    for name, value in _UNLESS_SET.items():
        response.headers.setdefault(name, value)
