"""Requests to dynsched's web application over a real socket."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import msgspec
from aiohttp import web
from aiohttp.test_utils import TestClient
from extender_support import World
from scenes import NOON, example
from store_support import Clock, make_store

from dynsched.core.tick import Tick
from dynsched.kube.reviews import User
from dynsched.web.app import ENDPOINTS, make_app
from dynsched.web.nodes import nodes_answer
from dynsched.web.ticks import TickStore

JSON = {"Accept": "application/json"}
PATHS = [path.replace("{name}", "worker-1") for path in ENDPOINTS]
"""All paths that a reader can get from `example`."""


async def ask(
    client: TestClient[Any, Any], path: str, status: int = 200, **headers: str
) -> tuple[Mapping[str, str], bytes]:
    """Headers and body of a response, after asserting its status."""
    async with client.get(path, headers=headers) as response:
        body = await response.read()
        assert response.status == status, body
        return response.headers, body


async def get(client: TestClient[Any, Any], path: str, status: int = 200, **headers: str) -> Any:
    """The response's body, decoded if it is JSON."""
    found, body = await ask(client, path, status, **headers)
    return json.loads(body) if "json" in found["Content-Type"] else body.decode()


def nodes_payload(tick: Tick) -> Any:
    """The decoded answer of `/nodes`."""
    return json.loads(msgspec.json.encode(nodes_answer(tick)))


def check(found: Mapping[str, Any], **expected: Any) -> None:
    """Assert that these keys of an answer have these values."""
    assert {key: found[key] for key in expected} == expected


def application(**more: Any) -> tuple[web.Application, TickStore]:
    """An application with an extender, after the tick of `example`."""
    ticks = make_store(Clock(NOON + 125))
    ticks.publish(example())
    return make_app(ticks, World().tick().asked, **more), ticks


class Kubernetes:
    """Answers from ``users`` (token -> name) and ``rights`` (name, path), and records requests."""

    def __init__(self) -> None:
        self.users = {"anns": "ann", "bobs": "bob"}
        self.rights = {("ann", path) for path in PATHS}
        self.rights.add(("bob", "/metrics"))
        self.asked: list[tuple[str, ...]] = []
        self.away: Exception | None = None
        self.answers = asyncio.Event()
        self.answers.set()

    async def user_of(self, token: str) -> User | None:
        await self._answer(token)
        return User(self.users[token], groups=("g",)) if token in self.users else None

    async def may_get(self, user: User, path: str) -> bool:
        await self._answer(user.name, path)
        return (user.name, path) in self.rights

    async def _answer(self, *asked: str) -> None:
        self.asked.append(asked)
        await self.answers.wait()
        if self.away is not None:
            raise self.away
