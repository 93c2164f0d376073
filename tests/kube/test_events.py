"""Events on nodes: visible in kubectl, aggregated, limited, and never blocking."""

import asyncio
import logging
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from api_support import api_of
from cluster import EVENTS, Cluster, SimCluster
from pods_support import reached
from store_support import Clock

from dynsched.core.nodes import Node
from dynsched.kube.client import KubeClient
from dynsched.kube.events import NodeEvents
from dynsched.kube.transport import HOST
from dynsched_sim.examples import make_node


@asynccontextmanager
async def posting(cluster: Cluster) -> AsyncIterator[tuple[NodeEvents, Clock]]:
    async with api_of(cluster.kubeconfig, KubeClient) as client:
        clock = Clock(1_800_000_000.0)
        sink = NodeEvents(client, clock=clock)
        try:
            yield sink, clock
        finally:
            await sink.close()


async def node(cluster: Cluster, name: str = "worker-1") -> Node:
    raw = await cluster.create_node(make_node(name))
    return Node(name=name, uid=raw["metadata"]["uid"])


async def listed(cluster: Cluster, count: int = 1, seen: int = 0) -> list[dict[str, Any]]:
    """The Events, once there are ``count`` of them and the first has been seen ``seen`` times."""
    async with asyncio.timeout(60):
        while True:
            found = await cluster.list_events()
            if len(found) >= count and found[0]["count"] >= seen:
                return sorted(found, key=lambda event: str(event["firstTimestamp"]))
            await asyncio.sleep(0.02)


async def test_an_event_names_the_node_and_the_reason(cluster: Cluster) -> None:
    worker = await node(cluster)
    async with posting(cluster) as (sink, _):
        sink.post(worker, reason="Pressured", message="node-cpu 91.0 > 80", warning=True)
        [event] = await listed(cluster)
    assert event["involvedObject"] == {
        "apiVersion": "v1",
        "kind": "Node",
        "name": "worker-1",
        "uid": worker.uid,
    }
    assert event["metadata"]["namespace"] == "default"
    assert (event["type"], event["reason"]) == ("Warning", "Pressured")
    assert event["message"] == "node-cpu 91.0 > 80"
    assert event["source"] == {"component": "dynsched"}
    assert (event["reportingComponent"], event["reportingInstance"]) == ("dynsched", HOST)
    assert event["firstTimestamp"] == event["lastTimestamp"] == "2027-01-15T08:00:00Z"
    assert event["count"] == 1
    [write] = await cluster.writes("events")
    assert (write.verb, write.manager) == ("create", "dynsched")


async def test_a_repeated_event_increases_the_count(cluster: Cluster) -> None:
    worker = await node(cluster)
    async with posting(cluster) as (sink, clock):
        sink.post(worker, reason="Pressured", message="91", warning=True)
        await listed(cluster)
        clock.now += 60
        sink.post(worker, reason="Pressured", message="92", warning=True)
        sink.post(worker, reason="Pressured", message="93", warning=True)  # merged while waiting
        [event] = await listed(cluster, seen=3)
        assert (event["count"], event["message"]) == (3, "93")
        assert event["lastTimestamp"] == "2027-01-15T08:01:00Z"
        assert event["firstTimestamp"] == "2027-01-15T08:00:00Z"
        assert [write.verb for write in await cluster.writes("events")] == ["create", "patch"]
        # After the Event expired on the server, a new one is created.
        _ = (await cluster.delete(f"{EVENTS}/{event['metadata']['name']}")).ok
        sink.post(worker, reason="Pressured", message="94")
        [again] = await listed(cluster)
        assert (again["message"], again["count"]) == ("94", 1)


async def test_an_old_event_is_forgotten(sim: SimCluster) -> None:
    class Message(str):
        """A str that can be weakly referenced."""

        __slots__ = ("__weakref__",)

    def post(name: str) -> weakref.ref[Message]:
        message = Message("91")
        sink.post(Node(name), reason="Pressured", message=message)
        return weakref.ref(message)

    async with posting(sim) as (sink, clock):
        first = post("worker-1")
        await listed(sim)
        clock.now += 600
        second = post("worker-2")
        await listed(sim, 2)
        assert first() is not None
        clock.now += 1
        post("worker-3")
        await reached(lambda: (first() is None, second() is None), (True, False))


async def test_a_message_that_is_too_long_is_shortened(cluster: Cluster) -> None:
    name = "w" * 199 + "." + "x" * 50  # the API server does not check that the node exists
    worker = Node(name=name, uid="u-1")
    async with posting(cluster) as (sink, _):
        sink.post(worker, reason="Pressured", message="é" * 2000)
        [event] = await listed(cluster)
    assert event["involvedObject"]["name"] == name
    assert len(event["message"].encode()) <= 1024
    assert event["message"].endswith("é…")


async def test_closing_sends_the_waiting_events(cluster: Cluster) -> None:
    workers = [await node(cluster, f"worker-{n}") for n in range(20)]
    async with posting(cluster) as (sink, _):
        for worker in workers:
            sink.post(worker, reason="Pressured", message="a")
    assert len(await cluster.list_events()) == 20


async def test_missing_permission_is_logged_once(sim, caplog) -> None:
    sim.server.forbidden = {("create", "events")}
    async with posting(sim) as (sink, _):
        for n in range(5):
            sink.post(Node(f"worker-{n}"), reason="Pressured", message="a")
    [record] = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert "may not create events" in record.message
    assert "kubectl auth can-i create events" in record.message


async def test_a_repeated_event_is_still_counted_after_a_server_error(
    sim: SimCluster, caplog
) -> None:
    worker = await node(sim)
    async with posting(sim) as (sink, _):
        sink.post(worker, reason="Pressured", message="91", warning=True)
        await listed(sim)
        with caplog.at_level(logging.WARNING):
            fault = sim.server.faults.answer(500, resource="events")
            sink.post(worker, reason="Pressured", message="92", warning=True)
            await reached(lambda: "some Events were not posted" in caplog.text, True)
        fault.remove()
        sink.post(worker, reason="Pressured", message="93", warning=True)
        [event] = await listed(sim, seen=2)
    assert event["message"] == "93"


async def test_a_server_that_is_down_or_slow_does_not_block(sim: SimCluster) -> None:
    async with posting(sim) as (sink, _):
        slow = sim.server.faults.delay(3600, resource="events")
        for n in range(50):
            sink.post(Node(f"worker-{n}"), reason="Pressured", message="a")
        await reached(lambda: slow.hits > 0, True)
        async with asyncio.timeout(30):
            await sim.server.down()
            await sink.close()
