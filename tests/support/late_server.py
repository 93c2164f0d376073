"""An API server that is some seconds behind: reads and watches of nodes are of an older state, and
writes go through. Real ones do not list like this (a read without a resourceVersion is of the
present); caches in front of them, and an etcd that was restored under one of several, do."""

import asyncio
import ssl
import time
from collections import deque
from contextlib import suppress
from typing import Self

import aiohttp
from aiohttp import web
from cluster import NODES, Cluster

_HEADERS = ("Authorization", "Content-Type", "Accept", "User-Agent")


class LateServer:
    """On ``url``, in front of ``cluster``; ``behind`` seconds late."""

    def __init__(self, cluster: Cluster, behind: float = 0.0) -> None:
        self.behind = behind
        self._stands_at: str | None = None
        self._moves = asyncio.Event()
        self._moves.set()
        self._cluster = cluster
        self._versions: deque[tuple[float, str]] = deque()
        self._runner = web.ServerRunner(
            web.Server(self._answer, access_log=None, handler_cancellation=True),
            shutdown_timeout=0.1,
        )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    def stand_still(self) -> None:
        """Show the present state, and nothing else until ``move``."""
        self._stands_at = self._version()
        self._moves.clear()

    def move(self) -> None:
        self._stands_at = None
        self._moves.set()

    async def __aenter__(self) -> Self:
        context: ssl.SSLContext | bool = self._cluster.ssl() or True
        connector = aiohttp.TCPConnector(ssl=context, limit=0)
        self._session = aiohttp.ClientSession(
            connector=connector, timeout=aiohttp.ClientTimeout(total=None)
        )
        await self._note()
        self._noting = asyncio.create_task(self._keep_noting())
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._noting.cancel()
        await asyncio.gather(self._noting, return_exceptions=True)
        await self._runner.cleanup()
        await self._session.close()

    async def _note(self) -> None:
        listed = (await self._cluster.get(NODES, limit=1)).ok
        self._versions.append((time.monotonic(), listed["metadata"]["resourceVersion"]))

    async def _keep_noting(self) -> None:
        while True:
            await asyncio.sleep(0.1)
            await self._note()

    def _version(self) -> str:
        """What it was ``behind`` seconds ago, or when this began."""
        if self._stands_at is not None:
            return self._stands_at
        then = time.monotonic() - self.behind
        while len(self._versions) > 1 and self._versions[1][0] <= then:
            self._versions.popleft()
        return self._versions[0][1]

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        query, path = dict(request.query), request.path
        is_read = request.method == "GET" and path.startswith(NODES)
        name = path.removeprefix(NODES).strip("/") if is_read else ""
        if is_read and not query.get("watch") and not query.get("continue"):
            query |= {"resourceVersion": self._version(), "resourceVersionMatch": "Exact"}
            if name:
                query["fieldSelector"] = f"metadata.name={name}"
                path = NODES
        headers = {key: request.headers[key] for key in _HEADERS if key in request.headers}
        async with self._session.request(
            request.method,
            f"{self._cluster.url}{path}",
            params=query,
            headers=headers,
            data=await request.read() or None,
        ) as answer:
            if query.get("watch"):
                return await self._late(request, answer)
            if name and answer.status == 200:
                items = (await answer.json())["items"]
                if not items:
                    return web.json_response({"kind": "Status", "code": 404}, status=404)
                return web.json_response(items[0])
            return web.Response(
                status=answer.status, body=await answer.read(), content_type=answer.content_type
            )

    async def _late(
        self, request: web.BaseRequest, answer: aiohttp.ClientResponse
    ) -> web.StreamResponse:
        """Each part of the answer, so many seconds later."""
        response = web.StreamResponse(status=answer.status)
        response.content_type = answer.content_type
        under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def fetch() -> None:
            async for part in answer.content.iter_any():
                under_way.put_nowait((time.monotonic() + self.behind, part))
            under_way.put_nowait((time.monotonic() + self.behind, b""))

        fetching = asyncio.create_task(fetch())
        try:
            await response.prepare(request)
            while True:
                at, part = await under_way.get()
                await asyncio.sleep(max(0.0, at - time.monotonic()))
                await self._moves.wait()
                if not part:
                    return response
                await response.write(part)
        finally:
            fetching.cancel()
            with suppress(asyncio.CancelledError, aiohttp.ClientError):
                await fetching
