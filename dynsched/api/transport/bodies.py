"""Request bodies, all of them in bounded memory, each in bounded time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Final

from aiohttp import hdrs, web

from dynsched.util.defaults import EXTENDER_MEMORY

MIB: Final = 1 << 20
MEMORY: Final = EXTENDER_MEMORY * MIB
"""Bytes for all requests that are processed at the same time, by default."""
READ_SECONDS: Final = 10.0
"""For a body to arrive; a scheduler gives up after 2 to 5 s itself."""
WAIT_SECONDS: Final = 5.0
"""For others to be answered."""
PATIENCE: Final = 1.0
"""Seconds for which the process waits for a caller while others wait for the bytes it holds."""


class ByteBudget:
    """``size`` bytes to reserve. Who waits is served as soon as enough bytes are free: a body of a
    megabyte that does not fit must not delay one of a kilobyte.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._free = size
        self._waiting: dict[asyncio.Future[None], int] = {}
        self._waited_for: dict[asyncio.Timeout, float] = {}

    async def take(self, size: int) -> None:
        """Wait until ``size`` bytes (not more than the whole) are free, and reserve them."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting[turn] = size
        self.give(0)
        self._hurry()
        try:
            await turn
        except BaseException:
            if self._waiting.pop(turn, None) is None:
                self.give(size)  # it had been let in at the same moment
            raise

    def give(self, size: int) -> None:
        """A negative number takes bytes without waiting, even beyond the limit."""
        self._free += size
        for turn, wanted in list(self._waiting.items()):
            if wanted <= self._free and not turn.done():
                self._free -= wanted
                del self._waiting[turn]
                turn.set_result(None)

    @contextlib.asynccontextmanager
    async def waiting_for_caller(self, seconds: float) -> AsyncIterator[None]:
        """TimeoutError after ``seconds``, or after `PATIENCE` while others wait for bytes."""
        async with asyncio.timeout(seconds) as limit:
            self._waited_for[limit] = asyncio.get_running_loop().time() + PATIENCE
            self._hurry()
            try:
                yield
            finally:
                del self._waited_for[limit]

    def _hurry(self) -> None:
        if not self._waiting:
            return
        for limit, latest in self._waited_for.items():
            when = limit.when()
            if not limit.expired() and when is not None and when > latest:
                limit.reschedule(latest)


class BodyError(Exception):
    """A body that is not read to its end; ``status`` is what is answered."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass
class Body:
    """The bytes of a body, and how many of the budget are reserved for it."""

    budget: ByteBudget
    reserved: int
    data: bytearray = field(default_factory=bytearray)

    def becomes(self, answer: int) -> None:
        """Drop the body, and reserve the ``answer`` bytes of its answer instead."""
        self.data = bytearray()
        self.budget.give(self.reserved - answer)
        self.reserved = answer


@contextlib.asynccontextmanager
async def read_body(request: web.Request, budget: ByteBudget, most: int) -> AsyncIterator[Body]:
    """The body, of ``most`` bytes; its bytes are reserved until the block is left. One without a
    length is given all that it may have. BodyError, with the status to answer.
    """
    encoding = request.headers.get(hdrs.CONTENT_ENCODING, "identity")
    if encoding.lower() != "identity":
        raise BodyError(415, f"Content-Encoding {encoding[:40]} is not read: send it plain")
    size = most if request.content_length is None else request.content_length
    if size > most:
        raise _too_large(most)
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            await budget.take(size)
    except TimeoutError:
        raise BodyError(503, "too much is asked at a time; try again") from None
    body = Body(budget, size)
    try:
        await _fill(body, request)
        yield body
    finally:
        budget.give(body.reserved)


async def _fill(body: Body, request: web.Request) -> None:
    try:
        async with body.budget.waiting_for_caller(READ_SECONDS):
            while chunk := await request.content.readany():
                if len(body.data) + len(chunk) > body.reserved:
                    raise _too_large(body.reserved)
                body.data += chunk
    except TimeoutError:
        raise BodyError(408, f"the body did not arrive within {READ_SECONDS:g} s") from None
    except web.RequestPayloadError:
        raise BodyError(400, "the body is not what its header fields say") from None


def _too_large(most: int) -> BodyError:
    size = f"{most >> 10} KiB" if most < MIB else f"{most >> 20} MiB; see --extender-memory"
    return BodyError(413, f"the body is larger than {size}")
