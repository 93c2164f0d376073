"""Answers about all nodes: what they count, and that none of them takes all nodes in one go."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest
import pytest_asyncio
from aiohttp.test_utils import TestClient, TestServer
from snapshots import NOON, Scene

from dynsched.api.app import make_app
from dynsched.engine.model import Node
from dynsched.engine.snapshot import NodeView, NodeViews, Snapshot

MANY = 5000
AT_ONCE = 600
"""Nodes that all who work side by side may look at until others have their turn."""


class Turns(NodeViews):
    """Nodes that count how many of them are looked at in each turn of the event loop, as views or
    in the columns.
    """

    def __init__(self, views: NodeViews) -> None:
        self.__dict__.update(views.__dict__)
        self._turn = 0
        self.made: Counter[int] = Counter()

    def __getitem__(self, name: str) -> NodeView:
        self.made[self._turn] += 1
        return super().__getitem__(name)

    def indices_of(self, names: Sequence[str]) -> list[int]:
        self.made[self._turn] += len(names)
        return super().indices_of(names)

    async def turn(self) -> None:
        while True:
            self._turn += 1
            await asyncio.sleep(0)

    async def settled(self) -> None:
        """Wait until none is made any more, and forget those that were."""
        while self.made:
            self.made.clear()
            await asyncio.sleep(0)
            await asyncio.sleep(0)


@pytest.fixture(scope="module")
def many() -> Snapshot:
    names = [f"node-{number:04d}" for number in range(MANY)]
    scene = Scene({"rules": [{"name": "cpu", "expr": "x", "threshold": 80}]}, map(Node, names))
    return scene.tick(NOON, cpu={name: 90.0 if n % 5 else 10.0 for n, name in enumerate(names)})


@pytest_asyncio.fixture
async def turns(many: Snapshot) -> AsyncIterator[Turns]:
    nodes = Turns(many.nodes)
    turning = asyncio.create_task(nodes.turn())
    yield nodes
    turning.cancel()


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("/nodes", MANY),
        ("/nodes?marked=false", MANY // 5),
        ("/nodes?limit=500&continue=node-1000", 500),
        ("/nodes?limit=500&marked=true", 500),
        ("/metrics", MANY),
        ("/page/data", MANY),
    ],
)
async def test_others_have_turns_between_nodes(path, wanted, turns, many, snapshots) -> None:
    async with TestClient(TestServer(make_app(snapshots))) as client:
        snapshots.publish(replace(many, nodes=turns))
        await turns.settled()
        async with client.get(path, headers={"Accept": "application/json"}) as response:
            assert response.status == 200
            await response.read()
    assert turns.made.total() >= wanted
    assert max(turns.made.values()) <= AT_ONCE
