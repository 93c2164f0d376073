"""A running watch of nodes, and what the tests ask of it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from cluster import Cluster, SimCluster
from kopf._cogs.aiokits import aiotasks

from dynsched.kube import kopf_operator, node_watch
from dynsched.kube.client import KubeClient
from dynsched.kube.cluster import NodeCluster
from dynsched.kube.kubeconfig import load_config
from dynsched.kube.node_watch import NodeWatch
from dynsched.util.stopping import Backoff

HASTE = 20
STOPS_WITHIN = 30.0
"""Half of what it waits for an answer to a list."""


def hasten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every pause of the watch, and of kopf in it, takes a twentieth of its time."""

    kopfs = kopf_operator.settings

    def settings() -> kopf_operator.kopf.OperatorSettings:
        result = kopfs()
        result.watching.reconnect_backoff /= HASTE
        return result

    wait_for_tasks = aiotasks.wait

    async def wait(tasks: Any, *, timeout: float | None = None, **more: Any) -> Any:  # noqa: ASYNC109
        return await wait_for_tasks(tasks, timeout=timeout and timeout / HASTE, **more)

    # An operator that ends by an error waits 5 s for a task of its own.
    monkeypatch.setattr(aiotasks, "wait", wait)
    backoffs = tuple(seconds / HASTE for seconds in kopf_operator.BACKOFFS)
    monkeypatch.setattr(kopf_operator, "BACKOFFS", backoffs)
    monkeypatch.setattr(kopf_operator, "settings", settings)
    monkeypatch.setattr(kopf_operator, "jittered", lambda seconds: seconds / HASTE)
    for module in (node_watch, kopf_operator):
        monkeypatch.setattr(
            module, "Backoff", lambda *ends: Backoff(*(end / HASTE for end in ends))
        )
    monkeypatch.setattr(node_watch, "SETTLED", 0.3)


class Watching:
    """A running watch, and what the tests ask of it."""

    def __init__(self, client: KubeClient, *, resync: float) -> None:
        self.client = client
        self.watch = NodeWatch(client, resync=resync)
        self.cluster = NodeCluster(client, self.watch.store, lambda: self.watch.error)
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
            while self.watch.error is not None or self._versions() != await _stored(cluster):
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
async def watching(kubeconfig: Path, *, resync: float = 60.0) -> AsyncIterator[Watching]:
    client = KubeClient(await load_config(str(kubeconfig)))
    running = Watching(client, resync=resync)
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
