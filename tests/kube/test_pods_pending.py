"""Which pods wait for a node, on the simulator and on a real API server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from api_support import api_of
from cluster import Cluster
from pods_support import PODS, create, pod, reached

from dynsched.kube.pod_watch import PendingPods
from dynsched_sim.examples import make_node


@asynccontextmanager
async def following(cluster: Cluster) -> AsyncIterator[PendingPods]:
    stop = asyncio.Event()
    async with api_of(cluster.kubeconfig) as api:
        found = PendingPods(api)
        task = asyncio.create_task(found.run(stop))
        try:
            yield found
        finally:
            stop.set()
            async with asyncio.timeout(60):
                await task


async def made(cluster: Cluster, name: str, node: str | None = None) -> str:
    return str((await create(cluster, pod(name, node)))["metadata"]["uid"])


async def known(found: PendingPods, uid: str, *, as_waiting: bool = True) -> None:
    await reached(lambda: uid in found, as_waiting)


async def test_a_pod_waits_until_it_is_bound_or_gone(cluster: Cluster) -> None:
    await cluster.create_node(make_node("a", 0))
    before = [await made(cluster, f"before-{number}") for number in range(5)]
    placed = await made(cluster, "placed", "a")
    async with following(cluster) as found:
        for uid in before:
            await known(found, uid)
        later = await made(cluster, "later")
        await known(found, later)
        assert placed not in found
        assert "made-up" not in found
        await cluster.delete(f"{PODS}/later", {"gracePeriodSeconds": 0})
        await known(found, later, as_waiting=False)
        assert found.error is None


@pytest.mark.parametrize("how", ["end", "gone", "cut"])
async def test_a_watch_that_ends_is_begun_anew_with_a_list(sim, how) -> None:
    async with following(sim) as found:
        first = await made(sim, "first")
        await known(found, first)
        assert sim.server.drop_watches(how) == 1
        await sim.delete(f"{PODS}/first", {"gracePeriodSeconds": 0})
        second = await made(sim, "second")
        await known(found, second)
        assert first not in found
