"""Queries a scheduler extender as kube-scheduler does: over a keep-alive connection."""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import Final, Self

UID: Final = "11111111-2222-3333-4444-555555555555"
"""Placeholder for the pod's uid, replaced in each request."""


class Client:
    """One keep-alive connection, with just the HTTP that the server speaks."""

    def __init__(self, host: str, port: int, prefix: str) -> None:
        self._host, self._port, self._prefix = host, port, prefix

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection(
            self._host, self._port, limit=1 << 20
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()

    async def ask(self, path: str, body: bytes) -> bytes:
        """Send one request with a new pod uid; returns the body of the response."""
        body = body.replace(UID.encode(), str(uuid.uuid4()).encode(), 1)
        self._writer.write(
            f"POST {self._prefix}{path} HTTP/1.1\r\nHost: {self._host}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        )
        self._writer.write(body)
        head = await self._reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        length = next(
            int(line.split(b":")[1])
            for line in head.lower().splitlines()
            if line.startswith(b"content-length:")
        )
        return await self._reader.readexactly(length)


async def times(client: Client, path: str, body: bytes, seconds: float) -> list[float]:
    """The seconds of each request, sent one after the other."""
    for _ in range(20):
        await client.ask(path, body)
    found = []
    end = time.perf_counter() + seconds
    while (began := time.perf_counter()) < end:
        await client.ask(path, body)
        found.append(time.perf_counter() - began)
    return found
