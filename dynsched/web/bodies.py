"""Request bodies of up to 128 MiB, in bounded memory and bounded time."""

from __future__ import annotations

import asyncio
from typing import Final

from aiohttp import web

MOST: Final = 128 << 20
"""Bytes; 5,000 whole Nodes are about 45 MiB."""

SMALL: Final = 1 << 20
"""Bytes up to which a body is read without waiting; 5,000 names are some 200 KiB."""

LARGE_AT_ONCE: Final = 2

READ_SECONDS: Final = 10.0
"""How long a body may take to arrive; a scheduler gives up after 2 to 5 s itself."""


class BodyError(Exception):
    """A body that is not read to its end; ``status`` is what is answered."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class BodyReader:
    """Reads bodies. Small ones at once; of large ones a few at a time, the others wait unread."""

    def __init__(self, *, most: int = MOST, seconds: float = READ_SECONDS) -> None:
        self._most = most
        self._seconds = seconds
        self._large = asyncio.Semaphore(LARGE_AT_ONCE)

    async def read(self, request: web.Request) -> Body:
        """The body; to be used with ``with``, which gives its memory back."""
        declared = request.content_length or 0
        if declared > self._most:
            raise self._too_large()
        body = Body(self._large)
        try:
            async with asyncio.timeout(self._seconds):
                await self._fill(request, body, declared)
        except TimeoutError:
            body.release()
            raise BodyError(408, f"the body did not arrive within {self._seconds:g} s") from None
        except web.RequestPayloadError:
            body.release()
            raise BodyError(400, "the body is not what its Content-Encoding says") from None
        except BaseException:
            body.release()
            raise
        return body

    async def _fill(self, request: web.Request, body: Body, declared: int) -> None:
        if declared > SMALL:
            await body.becomes_large()
        data = body.data
        while chunk := await request.content.readany():
            if len(data) + len(chunk) > self._most:
                raise self._too_large()
            if len(data) + len(chunk) > SMALL:
                await body.becomes_large()
            data += chunk

    def _too_large(self) -> BodyError:
        return BodyError(413, f"the body is larger than {self._most >> 20} MiB")


class Body:
    """The bytes of a body; large ones hold one of the few places until they are released."""

    def __init__(self, large: asyncio.Semaphore) -> None:
        self.data = bytearray()
        self._large = large
        self._holds = False

    async def becomes_large(self) -> None:
        """Wait for a place, once."""
        if not self._holds:
            await self._large.acquire()
            self._holds = True

    def release(self) -> None:
        """Give the place to another."""
        if self._holds:
            self._holds = False
            self._large.release()

    def __enter__(self) -> bytearray:
        return self.data

    def __exit__(self, *_: object) -> None:
        self.release()
