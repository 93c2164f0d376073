"""How much of an answer is read, so that no answer can take the process's memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

import aiohttp

MAX_OF_AN_OBJECT: Final = 4 * 2**20
"""Bytes. etcd stores no more than 1.5 MiB of one object, and the API server takes no more than
3 MiB of JSON in a request."""

MAX_OF_A_LIST: Final = 32 * 2**20
"""Bytes of one page: 500 objects of 64 KiB. Those of 500 nodes are 2 to 10 MB; metrics-server,
which knows no pages, sends 23 MB for 65,000 nodes."""

_MAX_OF_AN_ERROR: Final = 2**20


class TooLargeError(aiohttp.ClientError):
    """An answer, or a line of a watch, went on after ``most`` bytes; its connection was closed.

    Not a ClientConnectionError: of those kopf tells nothing, and lists again every second.
    """

    def __init__(self, most: int) -> None:
        super().__init__(f"more than {most / 2**20:g} MiB")


async def read_body(response: aiohttp.ClientResponse, most: int) -> bytes:
    """The whole body. Raises TooLargeError, and what aiohttp raises when a connection breaks."""
    body, is_whole = await _read(response, most)
    if not is_whole:
        raise TooLargeError(most)
    return body


async def read_error(response: aiohttp.ClientResponse) -> bytes:
    """The body of an answer with an error status, cut at 1 MiB."""
    return (await _read(response, _MAX_OF_AN_ERROR))[0]


async def _read(response: aiohttp.ClientResponse, most: int) -> tuple[bytes, bool]:
    body = bytearray()
    try:
        async for chunk in response.content.iter_any():
            body += chunk
            if len(body) > most:
                response.close()  # or the rest would be read before the connection is used again
                return bytes(body[:most]), False
    except BaseException:
        response.close()
        raise
    return bytes(body), True


class BoundedResponse(aiohttp.ClientResponse):
    """An answer to kopf, which asks for lists and watches only, and reads them whatever their size.

    Its reads raise TooLargeError.
    """

    async def read(self) -> bytes:
        """The whole body, which must not be larger than a list."""
        if self._body is None:
            self._body = await read_body(self, MAX_OF_A_LIST)
        return self._body

    async def start(self, connection: Any) -> aiohttp.ClientResponse:
        """Called by aiohttp when the request was sent; ``content`` is there afterwards."""
        await super().start(connection)
        self.content = _Lines(self.content)  # type: ignore[assignment]
        return self


class _Lines:
    """A StreamReader whose `iter_chunked`, by which kopf reads the lines of a watch, ends when a
    line is larger than an object can be.
    """

    def __init__(self, content: aiohttp.StreamReader) -> None:
        self._content = content

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        begun = 0
        async for chunk in self._content.iter_chunked(size):
            end = chunk.rfind(b"\n")
            begun = begun + len(chunk) if end < 0 else len(chunk) - end - 1
            if begun > MAX_OF_AN_OBJECT:
                raise TooLargeError(MAX_OF_AN_OBJECT)
            yield chunk
