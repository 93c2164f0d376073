"""A running watch of nodes, and what the tests ask of it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from cluster import Cluster, SimCluster

from dynsched.kube.client import KubeClient
from dynsched.kube.cluster import NodeCluster
from dynsched.kube.credentials import load_credentials
from dynsched.kube.node_watch import NodeWatch

STOPS_WITHIN = 30.0
"""Half of what it waits for an answer to a list."""


class Watching:
    """A running watch, and what the tests ask of it."""

    def __init__(self, client: KubeClient, *, relist: float) -> None:
        self.client = client
        self.watch = NodeWatch(client, relist=relist)
        self.cluster = NodeCluster(client, self.watch.store)
        self.stop = asyncio.Event()
        self.task = asyncio.create_task(self.watch.run(self.stop))

    async def until(self, reached: Callable[[], bool], seconds: float = 60.0) -> None:
        async with asyncio.timeout(seconds):
            while not reached():
                if self.task.done():
                    self.task.result()
                    raise AssertionError("the watch has ended")
                await asyncio.sleep(0.02)

    async def synced(self) -> None:
        await self.until(lambda: self.cluster.synced)

    async def follows(self, sim: SimCluster) -> None:
        """The list is complete, and the watch after it is open."""
        await self.synced()
        await self.until(lambda: sim.server.open_watches == 1)

    async def end(self) -> None:
        """It is told to stop, and does."""
        self.stop.set()
        async with asyncio.timeout(STOPS_WITHIN):
            await self.task

    async def knows(self, cluster: Cluster, seconds: float = 60.0) -> None:
        """Wait until every node is known as the API server has it, and nothing is amiss."""
        async with asyncio.timeout(seconds):
            while self.cluster.error is not None or self._versions() != await _stored(cluster):
                await asyncio.sleep(0.05)

    def _versions(self) -> dict[str, tuple[str, str]]:
        nodes = self.cluster.nodes().items()
        return {name: (node.uid, node.resource_version) for name, node in nodes}

    def names(self) -> set[str]:
        return set(self.cluster.nodes())

    def uid(self, name: str) -> str | None:
        node = self.cluster.nodes().get(name)
        return node.uid if node else None

    def label(self, name: str, key: str) -> str | None:
        node = self.cluster.nodes().get(name)
        return node.labels.get(key) if node else None


@asynccontextmanager
async def watching(kubeconfig: Path, *, relist: float = 60.0) -> AsyncIterator[Watching]:
    client = KubeClient(await load_credentials(str(kubeconfig)))
    running = Watching(client, relist=relist)
    try:
        yield running
    finally:
        running.stop.set()
        await asyncio.wait({running.task}, timeout=STOPS_WITHIN)
        await client.close()
        running.task.cancel()
        await asyncio.gather(running.task, return_exceptions=True)


async def _stored(cluster: Cluster) -> dict[str, tuple[str, str]]:
    metadata = [node["metadata"] for node in await cluster.list_nodes()]
    return {each["name"]: (each["uid"], each["resourceVersion"]) for each in metadata}
