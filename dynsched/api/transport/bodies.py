"""Request bodies, all of them in bounded memory, each in bounded time."""

from __future__ import annotations

import asyncio
from typing import Final, Self

from aiohttp import hdrs, web

from dynsched.api.transport.connections import ends_with_caller
from dynsched.api.transport.room import Room
from dynsched.util.defaults import EXTENDER_MEMORY

MIB: Final = 1 << 20
MEMORY: Final = EXTENDER_MEMORY * MIB
"""Bytes for all requests that are processed at the same time, by default."""
READ_SECONDS: Final = 10.0
"""How long a body may take to arrive; a scheduler gives up after 2 to 5 s itself."""
WAIT_SECONDS: Final = 5.0
"""How long a body may wait for others to be answered."""

_UNKNOWN: Final = 256 << 10
"""Bytes that a body without a length is given at a time."""


class BodyError(Exception):
    """A body that is not read to its end; ``status`` is what is answered."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class BodyReader:
    """Reads bodies: ``most`` bytes together, so also one alone."""

    def __init__(self, *, most: int = MEMORY, seconds: float = READ_SECONDS) -> None:
        self.room = Room(most)
        self._seconds = seconds

    async def read(self, request: web.Request, most: int | None = None) -> Body:
        """The body, of ``most`` bytes; to be used with ``with``, which gives its memory back.

        BodyError, with the status to answer.
        """
        most = self.room.size if most is None else min(most, self.room.size)
        encoding = request.headers.get(hdrs.CONTENT_ENCODING, "identity")
        if encoding.lower() != "identity":
            raise BodyError(415, f"Content-Encoding {encoding[:40]} is not read: send it plain")
        declared = request.content_length
        if declared is not None and declared > most:
            raise _too_large(most)
        body = Body(self.room, most)
        try:
            with ends_with_caller(request):
                await body.grow(_UNKNOWN if declared is None else declared)
                async with self.room.waiting_for_caller(self._seconds):
                    while chunk := await request.content.readany():
                        await body.add(chunk)
        except TimeoutError:
            body.release()
            raise BodyError(408, f"the body did not arrive within {self._seconds:g} s") from None
        except web.RequestPayloadError:
            body.release()
            raise BodyError(400, "the body is not what its header fields say") from None
        except BaseException:
            body.release()
            raise
        return body


class Body:
    """The bytes of a body, and what it holds of the room, until it is released."""

    def __init__(self, room: Room, most: int) -> None:
        self.data = bytearray()
        self._room = room
        self._most = most
        self._held = 0

    async def grow(self, size: int) -> None:
        """Reserve ``size`` more bytes of the room; waits until other bodies have released them."""
        size = min(size, self._most - self._held)
        if not self._room.take_if_free(size):
            try:
                async with asyncio.timeout(WAIT_SECONDS):
                    await self._room.take(size)
            except TimeoutError:
                raise BodyError(503, "too much is asked at a time; try again") from None
        self._held += size

    async def add(self, chunk: bytes) -> None:
        """The next bytes."""
        size = len(self.data) + len(chunk)
        if size > self._most:
            raise _too_large(self._most)
        if size > self._held:
            await self.grow(max(_UNKNOWN, size - self._held))
        self.data += chunk

    def becomes(self, answer: int) -> None:
        """Drop the body, and reserve the ``answer`` bytes of its answer instead."""
        self.data = bytearray()
        self._room.take_at_once(answer - self._held)
        self._held = answer
        self._room.give(0)

    def release(self) -> None:
        """Release everything that is reserved."""
        held, self._held = self._held, 0
        self._room.give(held)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def _too_large(most: int) -> BodyError:
    size = f"{most >> 10} KiB" if most < MIB else f"{most >> 20} MiB; see --extender-memory"
    return BodyError(413, f"the body is larger than {size}")
