"""Between a scheduler and dynsched: passes each question on, and keeps what was asked and said."""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Self

import aiohttp
from aiohttp import web


@dataclass(frozen=True)
class Exchange:
    """One question and its answer. ``status`` 0: there was no answer."""

    path: str
    asked: Any
    status: int
    said: Any


class Recorder:
    """Listens on ``address``, asks ``behind`` (host:port).

    ``meddle``, where a test sets it, is called with the path and the question before it is passed
    on; what it returns (a status and a body) is answered instead, unless it is None.
    """

    def __init__(self, behind: str) -> None:
        self._behind = f"http://{behind}"
        self.exchanges: list[Exchange] = []
        self.meddle: Callable[[str, Any], Awaitable[web.Response | None]] | None = None
        self._runner = web.ServerRunner(
            web.Server(self._answer, access_log=None, handler_cancellation=True),
            shutdown_timeout=0.1,
        )

    @property
    def address(self) -> str:
        host, port = self._runner.addresses[0][:2]
        return f"{host}:{port}"

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession()
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()
        await self._session.close()

    def of(self, verb: str) -> list[Exchange]:
        return [exchange for exchange in self.exchanges if exchange.path == f"/{verb}"]

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        body = await request.read()
        asked = json.loads(body)
        status, said = 0, b""
        try:
            instead = await self.meddle(request.path, asked) if self.meddle else None
            if instead is not None:
                return instead
            url = f"{self._behind}{request.path}"
            async with self._session.post(url, data=body) as answer:
                status, said = answer.status, await answer.read()
            return web.Response(status=status, body=said, content_type="application/json")
        finally:
            self.exchanges.append(Exchange(request.path, asked, status, _decoded(said)))


def _decoded(said: bytes) -> Any:
    try:
        return json.loads(said)
    except ValueError:
        return said
