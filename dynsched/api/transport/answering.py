"""Sending answers: one computation at a time, in slices, within a time limit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Final

import msgspec
from aiohttp import hdrs, web

WRITE_SECONDS: Final = 30.0
"""Seconds that a caller may take to read an answer, which stays in memory until then."""
SLICE: Final = 64 << 10
"""Bytes that are written to the connection at a time; the next ones once it has sent them."""
PROBES: Final = frozenset({"/healthz", "/readyz"})
"""Paths that are answered without waiting for a turn."""
JSON: Final = "application/json"

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Buffer = bytes | bytearray | memoryview | msgspec.Raw
Pieces = Sequence[Buffer]
"""A body in several parts: putting a long one together would need as much memory again."""

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
"""The page has others. Strict-Transport-Security would hold for every port of the host name, and so
for programs that are not ours."""


def add_headers(response: web.StreamResponse) -> None:
    response.headers.update(_ALWAYS)
    for name, value in _UNLESS_SET.items():
        response.headers.setdefault(name, value)


async def protect(_request: web.Request, response: web.StreamResponse) -> None:
    """To be called before each answer's headers are sent (`on_response_prepare`)."""
    add_headers(response)


def as_json(body: object, status: int = HTTPStatus.OK) -> web.Response:
    return web.Response(body=msgspec.json.encode(body), status=status, content_type=JSON)


def refused(status: int, message: str) -> web.Response:
    return as_json({"error": message}, status)


def unchanged(request: web.Request, headers: Mapping[str, str]) -> web.Response | None:
    """304 where the caller has what the ETag in ``headers`` names; else None."""
    if headers[hdrs.ETAG] not in request.headers.get(hdrs.IF_NONE_MATCH, ""):
        return None
    return web.Response(status=HTTPStatus.NOT_MODIFIED, headers=headers)


def respond(pieces: Pieces, headers: Mapping[str, str], at_once: int = SLICE) -> web.Response:
    """A body of more than ``at_once`` bytes is sent in slices of so many: what is written and not
    fetched is kept besides the answer itself.
    """
    size = sum(len(memoryview(piece)) for piece in pieces)
    if size <= at_once:
        body = pieces[0] if len(pieces) == 1 else b"".join(map(memoryview, pieces))
        return web.Response(body=body, headers=headers)
    headers = {**headers, hdrs.CONTENT_LENGTH: str(size)}
    return web.Response(body=_slices(pieces, at_once), headers=headers)


TURNS: Final = web.AppKey("turns", asyncio.Lock)


async def turn(request: web.Request) -> None:
    """Wait for a turn, which lasts until the caller awaits something else. One answer is computed
    in each round of the event loop: between any two of them a probe is answered.
    """
    async with request.app[TURNS]:
        await asyncio.sleep(0)


@web.middleware
async def answer_and_send(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Around all that answer: take a turn, make the answer and send it within WRITE_SECONDS. When
    it returns, the answer has been sent, or the connection is closed.
    """
    try:
        if request.method in (hdrs.METH_GET, hdrs.METH_HEAD) and request.path not in PROBES:
            await turn(request)
        response = await handler(request)
        if not response.prepared:
            async with asyncio.timeout(WRITE_SECONDS):
                await send(request, response)
    except (ConnectionError, TimeoutError, asyncio.CancelledError) as error:
        if isinstance(error, asyncio.CancelledError) and request.transport is not None:
            raise  # the server stops
        # The caller went away, or does not fetch the answer. The frames of the error hold what was
        # received, and the error: a ring, which would stay until the next garbage collection.
        error.with_traceback(None)
        if request.transport is not None:
            request.transport.abort()
        return web.Response()
    return response


async def send(request: web.Request, response: web.StreamResponse, at_once: int = SLICE) -> None:
    """``at_once``: as of `respond`."""
    body = getattr(response, "body", None)
    if isinstance(response, web.Response) and isinstance(body, bytes) and len(body) > at_once:
        response.headers[hdrs.CONTENT_LENGTH] = str(len(body))
        response.body = _slices([body], at_once)
    await response.prepare(request)
    await response.write_eof()


async def _slices(pieces: Pieces, size: int) -> AsyncIterator[Buffer]:
    """Small pieces are put together, large ones cut."""
    gathered = bytearray()
    for piece in pieces:
        whole = memoryview(piece)
        while len(gathered) + len(whole) > size:
            if gathered:
                yield bytes(gathered)
                gathered.clear()
            else:
                yield whole[:size]
                whole = whole[size:]
            # A caller who reads at once keeps no write waiting: others still have their turn.
            await asyncio.sleep(0)
        gathered += whole
    yield bytes(gathered)
