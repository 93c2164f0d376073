"""How much of an answer is read, so that no answer can take the process's memory."""

from __future__ import annotations

from typing import Final

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
    body = await _read(response, most)
    if len(body) > most:
        raise TooLargeError(most)
    return body


async def read_error(response: aiohttp.ClientResponse) -> bytes:
    """The body of an answer with an error status, cut at 1 MiB."""
    return (await _read(response, _MAX_OF_AN_ERROR))[:_MAX_OF_AN_ERROR]


async def _read(response: aiohttp.ClientResponse, most: int) -> bytes:
    """The body, or where it is longer, a little more than ``most`` of it."""
    body = bytearray()
    try:
        async for chunk in response.content.iter_any():
            body += chunk
            if len(body) > most:
                response.close()  # or the rest would be read before the connection is used again
                break
    except BaseException:
        response.close()
        raise
    return bytes(body)
