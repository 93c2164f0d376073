"""Sending answers: one computation at a time, in slices, each answer within a time limit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Final

from aiohttp import hdrs, web

from dynsched.api.transport.connections import connection_of

WRITE_SECONDS: Final = 30.0
"""Seconds that a caller may take to read an answer: until then the answer stays in memory, and for
the extender also the request's body."""
SLICE: Final = 64 << 10
"""Bytes that are written to the connection at a time; the next ones once it has sent them."""
PROBES: Final = frozenset({"/healthz", "/readyz"})
"""Paths that are answered without waiting for a turn."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Pieces = Sequence[bytes]
"""A body in several parts: putting a long one together would need as much memory again, and some
time in which nothing else is answered."""


class PiecewiseResponse(web.StreamResponse):
    """An answer whose body is sent piece by piece."""

    def __init__(
        self,
        pieces: Pieces,
        *,
        headers: Mapping[str, str],
        status: int = HTTPStatus.OK,
        reason: str | None = None,
    ) -> None:
        super().__init__(status=status, reason=reason, headers=headers)
        self.pieces = pieces
        self.content_length = sum(map(len, pieces))


def respond(pieces: Pieces, headers: Mapping[str, str]) -> web.StreamResponse:
    """An answer with this body; a short one is sent in one go."""
    if sum(map(len, pieces)) <= SLICE:
        return web.Response(body=b"".join(pieces), headers=headers)
    return PiecewiseResponse(pieces, headers=headers)


class Turns:
    """A turn at computing an answer. One in each round of the event loop, first come, first
    served, so that between any two of them a probe is answered, however many wait.
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def next(self) -> None:
        """Wait for a turn; it lasts until the caller awaits something else."""
        async with self._lock:
            await asyncio.sleep(0)


TURNS: Final = web.AppKey("turns", Turns)


@web.middleware
async def one_at_a_time(request: web.Request, handler: Handler) -> web.StreamResponse:
    """The outermost middleware: when it returns, the answer has been sent or the connection
    is closed.
    """
    try:
        if request.path not in PROBES and request.method in (hdrs.METH_GET, hdrs.METH_HEAD):
            await request.app[TURNS].next()
        response = await handler(request)
        if not response.prepared:
            response = await send(request, response)
    except ConnectionError as error:
        # The caller went away. The error must not get to the server, which would log it; and it
        # must let go of the frames that it went through: they hold the stream that was received,
        # the stream holds the error, and such a ring stays until the next garbage collection.
        error.with_traceback(None)
        break_off(request)
        return web.Response(status=HTTPStatus.BAD_REQUEST)
    connection = connection_of(request)
    if connection is not None:
        connection.answered()
    return response


async def send(
    request: web.Request, response: web.StreamResponse, at_once: int = SLICE
) -> web.StreamResponse:
    """Send the whole answer. ConnectionResetError when it was not fetched in time. ``at_once``:
    bytes that the connection may keep besides the answer itself.
    """
    try:
        async with asyncio.timeout(WRITE_SECONDS):
            return await write(request, response, at_once)
    except TimeoutError:
        raise not_fetched(request) from None


def not_fetched(request: web.Request) -> ConnectionResetError:
    """Break the connection off; the error to raise where an answer was not fetched in time."""
    break_off(request)
    return ConnectionResetError("the answer was not fetched in time")


def break_off(request: web.Request) -> None:
    """End the connection, and what it was not ready to take."""
    if request.transport is not None:
        request.transport.abort()


async def write(
    request: web.Request, response: web.StreamResponse, at_once: int
) -> web.StreamResponse:
    """As `send`, for a caller that limits the time itself."""
    pieces: Pieces = ()
    if isinstance(response, PiecewiseResponse):
        pieces = response.pieces
    elif (body := _long_body(response, at_once)) and request.method != hdrs.METH_HEAD:
        pieces = [body]
        response = _in_pieces(response, pieces)
    await response.prepare(request)
    if request.method != hdrs.METH_HEAD:
        for part in _slices(pieces):
            await response.write(part)
            # A caller who reads at once keeps no write waiting: others still have their turn.
            await asyncio.sleep(0)
    await response.write_eof()
    return response


def _long_body(response: web.StreamResponse, at_once: int) -> bytes | None:
    body = response.body if isinstance(response, web.Response) else None
    return body if isinstance(body, bytes) and len(body) > at_once else None


def _in_pieces(response: web.StreamResponse, pieces: Pieces) -> PiecewiseResponse:
    """The same answer, with its body to be sent piece by piece."""
    sliced = PiecewiseResponse(
        pieces, status=response.status, reason=response.reason, headers=response.headers
    )
    if response.keep_alive is False:
        sliced.force_close()
    return sliced


def _slices(pieces: Pieces) -> Iterator[memoryview]:
    for piece in pieces:
        whole = memoryview(piece)
        for start in range(0, len(whole), SLICE):
            yield whole[start : start + SLICE]
