"""`/bind` under conflict: a pod is bound once, to the node of the latest request that
kube-scheduler still waits for, or kube-scheduler gets the reason why not.

On the simulator and on a real API server; `test_scheduling.py` has tests with a scheduler.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import aiohttp
import pytest
from api_support import api_of
from cluster import Cluster, SimCluster, Write
from extender_support import World
from pods_support import PODS, create, pod, reached
from store_support import Clock, make_store

from dynsched.kube.client import bind_pod
from dynsched.util.errors import ClusterError, ConflictError, NotFoundError
from dynsched.web.app import make_app
from dynsched.web.server import Address, WebServer

OTHER = "11111111-2222-3333-4444-555555555555"


@asynccontextmanager
async def binder(cluster: Cluster) -> AsyncIterator[Callable[..., Awaitable[None]]]:
    async with api_of(cluster.kubeconfig) as api:
        yield partial(bind_pod, api)


async def waiting(cluster: Cluster, name: str = "p") -> dict[str, Any]:
    """Create a pod without a node, and return its arguments for `bind_pod`."""
    made = await create(cluster, pod(name))
    uid = made["metadata"]["uid"]
    return {"namespace": "default", "pod": name, "uid": uid}


async def node_of(cluster: Cluster, name: str = "p") -> str | None:
    found: str | None = (await cluster.get(f"{PODS}/{name}")).ok["spec"].get("nodeName")
    return found


async def bindings(cluster: Cluster) -> list[Write]:
    return [write for write in await cluster.writes("pods") if write.subresource == "binding"]


async def test_a_pod_is_bound_once(cluster: Cluster) -> None:
    async with binder(cluster) as bind:
        pod_args = await waiting(cluster)
        await bind(**pod_args, node="a")
        with pytest.raises(ConflictError, match=r'already assigned to node "a"'):
            await bind(**pod_args, node="b")
        with pytest.raises(ConflictError, match=r'already assigned to node "a"'):
            await bind(**pod_args, node="a")
    assert await node_of(cluster) == "a"


async def test_one_of_two_simultaneous_bindings_succeeds(cluster: Cluster) -> None:
    pod_args = [await waiting(cluster, f"p{number}") for number in range(10)]
    async with binder(cluster) as one, binder(cluster) as other:
        tries = [bind(**pod, node=n) for pod in pod_args for bind, n in ((one, "a"), (other, "b"))]
        outcomes = await asyncio.gather(*tries, return_exceptions=True)
    assert [type(found) for found in outcomes].count(ConflictError) == len(pod_args)
    assert outcomes.count(None) == len(pod_args)
    for number, pair in enumerate(zip(outcomes[::2], outcomes[1::2], strict=True)):
        assert await node_of(cluster, f"p{number}") == "ab"[pair.index(None)]


async def test_another_pod_of_the_same_name_is_not_bound(cluster: Cluster) -> None:
    async with binder(cluster) as bind:
        pod_args = await waiting(cluster)
        with pytest.raises(ConflictError, match=OTHER):
            await bind(**{**pod_args, "uid": OTHER}, node="a")
    assert await node_of(cluster) is None


async def test_a_pod_that_is_gone_or_being_deleted_is_not_bound(cluster: Cluster) -> None:
    async with binder(cluster) as bind:
        pod_args = await waiting(cluster)
        _ = (await cluster.delete(f"{PODS}/p", {"gracePeriodSeconds": 0})).ok
        with pytest.raises(NotFoundError, match="default/p: it is gone"):
            await bind(**pod_args, node="a")
        body = pod("leaving")
        body["metadata"]["finalizers"] = ["dynsched.test/hold"]
        made = await create(cluster, body)
        _ = (await cluster.delete(f"{PODS}/leaving", {"gracePeriodSeconds": 0})).ok
        uid = made["metadata"]["uid"]
        with pytest.raises(ConflictError, match="is being deleted"):
            await bind(namespace="default", pod="leaving", uid=uid, node="a")
        await cluster.patch(f"{PODS}/leaving", {"metadata": {"finalizers": None}})


async def test_a_binding_for_which_the_scheduler_no_longer_waits_is_not_retried(
    sim: SimCluster,
) -> None:
    refused = sim.server.faults.answer(429, subresource="binding", retry_after=1, times=1)
    over = asyncio.Event()
    async with binder(sim) as bind:

        async def bound(**pod_args: str) -> None:
            try:
                await bind(**pod_args)
            finally:
                over.set()

        app = make_app(make_store(Clock()), World(bind=bound).asked)
        pod_args = await waiting(sim)
        args = {"PodName": "p", "PodNamespace": "default", "PodUID": pod_args["uid"], "Node": "a"}
        async with WebServer(app, Address("127.0.0.1", 0)) as server:
            async with aiohttp.ClientSession() as session:
                posting = asyncio.create_task(session.post(f"{server.url}/bind", json=args))
                await reached(lambda: refused.hits, 1)  # a retry is due in a second
                posting.cancel()
                await asyncio.gather(posting, return_exceptions=True)
            await over.wait()
        assert await node_of(sim) is None
        await bind(**pod_args, node="b")
    assert await node_of(sim) == "b"


async def test_a_lost_answer_does_not_cause_a_second_binding(sim: SimCluster) -> None:
    sim.server.faults.reset(subresource="binding", after=True, times=1)
    async with binder(sim) as bind:
        pod_args = await waiting(sim)
        with pytest.raises(ClusterError, match="connection broke"):
            await bind(**pod_args, node="a")
        assert await node_of(sim) == "a"
        with pytest.raises(ConflictError, match="already assigned"):
            await bind(**pod_args, node="b")
    assert await node_of(sim) == "a"
