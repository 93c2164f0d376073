"""A TCP proxy on loopback that is late, silent or gone, as networks and load balancers are."""

import asyncio
import contextlib
from typing import Self
from urllib.parse import urlsplit


class Relay:
    """Passes bytes on to one of ``behind`` (URLs or host:port), each new connection to the next.

    ``late``: seconds that bytes from behind are under way, in order. While it is ``silent`` bytes
    go nowhere, in either direction, and connections stay open; they arrive when it is not any more.
    """

    def __init__(self, *behind: str, late: float = 0.0) -> None:
        self.behind = [_address(url) for url in behind]
        self.late = late
        self.accepted = 0
        self.port = 0
        self._passing = asyncio.Event()
        self._passing.set()
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """Of a server that speaks TLS; its certificate is for the host, whatever the port."""
        return f"https://127.0.0.1:{self.port}"

    @property
    def silent(self) -> bool:
        return not self._passing.is_set()

    @silent.setter
    def silent(self, silent: bool) -> None:
        if silent:
            self._passing.clear()
        else:
            self._passing.set()

    async def __aenter__(self) -> Self:
        await self.up()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.down()

    async def up(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def down(self) -> None:
        """Refuse connections and cut those that there are, until ``up``."""
        if self._server is not None:
            self._server.close()
        await self.cut()

    async def cut(self) -> None:
        """Cut every connection; new ones are taken."""
        for task in list(self._open):
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await self._relay(reader, writer)
        finally:
            self._open.discard(task)
            writer.transport.abort()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, port = self.behind[self.accepted % len(self.behind)]
        self.accepted += 1
        far_reader, far_writer = await asyncio.open_connection(host, port)
        ways = [
            asyncio.create_task(self._pass(reader, far_writer, late=False)),
            asyncio.create_task(self._pass(far_reader, writer, late=True)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            far_writer.transport.abort()

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, late: bool
    ) -> None:
        under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        clock = asyncio.get_running_loop().time

        async def deliver() -> None:
            while True:
                at, data = await under_way.get()
                await asyncio.sleep(max(0.0, at - clock()))
                await self._passing.wait()
                if not data:
                    return
                writer.write(data)
                await writer.drain()

        delivering = asyncio.create_task(deliver())
        try:
            while data := await reader.read(1 << 16):
                under_way.put_nowait((clock() + (self.late if late else 0.0), data))
            under_way.put_nowait((0.0, b""))
            await delivering
        finally:
            delivering.cancel()


def _address(url: str) -> tuple[str, int]:
    parts = urlsplit(url if "//" in url else f"//{url}")
    assert parts.hostname is not None
    assert parts.port is not None
    return parts.hostname, parts.port
