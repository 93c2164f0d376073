"""Sending answers: one computation at a time, in slices, each answer within a time limit."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Final

from aiohttp import hdrs, web

from dynsched.api.transport.connections import answered, let_go

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


def respond(pieces: Pieces, headers: Mapping[str, str]) -> web.Response:
    """An answer with this body; a short one is sent in one go."""
    size = sum(map(len, pieces))
    if size <= SLICE:
        return web.Response(body=b"".join(pieces), headers=headers)
    return web.Response(body=_slices(pieces), headers={**headers, hdrs.CONTENT_LENGTH: str(size)})


class FairYield:
    """Computes one answer in each round of the event loop, first come, first served, so that
    between any two of them a probe is answered, however many wait.
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def turn(self) -> None:
        """Wait for a turn; it lasts until the caller awaits something else."""
        async with self._lock:
            await asyncio.sleep(0)


FAIR_YIELD: Final = web.AppKey("fair_yield", FairYield)


@web.middleware
async def one_at_a_time(request: web.Request, handler: Handler) -> web.StreamResponse:
    """The outermost middleware: when it returns, the answer has been sent or the connection
    is closed.
    """
    try:
        if request.method in (hdrs.METH_GET, hdrs.METH_HEAD):
            with _nothing_read(request):
                if request.path not in PROBES:
                    await request.app[FAIR_YIELD].turn()
                response = await _answer(request, handler)
        else:  # not for a binding: what is not read from is not seen to hang up
            response = await _answer(request, handler)
    except (ConnectionError, TimeoutError) as error:
        # The caller went away, or does not fetch the answer. The server would log the error.
        let_go(error)
        if request.transport is not None:
            request.transport.abort()
        return web.Response()
    answered(request)
    return response


async def _answer(request: web.Request, handler: Handler) -> web.StreamResponse:
    response = await handler(request)
    if not response.prepared:
        async with asyncio.timeout(WRITE_SECONDS):
            await send(request, response)
    return response


@contextlib.contextmanager
def _nothing_read(request: web.Request) -> Iterator[None]:
    """While inside, nothing is read from a caller whose request is here. aiohttp would parse what
    is sent ahead of the answer: 32 requests, with half a megabyte of header fields each.
    """
    transport = request.transport
    if transport is None or not transport.is_reading() or not request.content.is_eof():
        yield
        return
    transport.pause_reading()
    try:
        yield
    finally:
        transport.resume_reading()


async def send(request: web.Request, response: web.StreamResponse, at_once: int = SLICE) -> None:
    """Send the whole answer, in slices where it has more than ``at_once`` bytes: what is written
    and not fetched is kept besides the answer itself.
    """
    if isinstance(response, web.Response):
        body = response.body
        if isinstance(body, bytes) and len(body) > at_once:
            response.headers[hdrs.CONTENT_LENGTH] = str(len(body))
            response.body = _slices([body])
    with _nothing_read(request):
        await response.prepare(request)
        await response.write_eof()


async def _slices(pieces: Pieces) -> AsyncIterator[memoryview]:
    for piece in pieces:
        whole = memoryview(piece)
        for start in range(0, len(whole), SLICE):
            yield whole[start : start + SLICE]
            # A caller who reads at once keeps no write waiting: others still have their turn.
            await asyncio.sleep(0)
