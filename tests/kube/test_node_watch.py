"""The node watch is complete and in order, and leaves no trace on nodes, whatever fails."""

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from api_support import api_of
from cluster import Cluster, SimCluster

from dynsched.core.marks import Action, NodePatch
from dynsched.core.nodes import Node
from dynsched.kube.client import KubeClient
from dynsched.kube.cluster import NodeCluster
from dynsched.kube.failures import SetupError
from dynsched.kube.node_watch import NodeWatch
from dynsched.util.errors import ForbiddenError
from dynsched_sim.examples import make_node

STOPS_WITHIN = 30.0
"""Half of the time limit of a list request."""


class Watching:
    """A running watch, with helpers of the tests."""

    def __init__(self, client: KubeClient, *, relist: float) -> None:
        self.watch = NodeWatch(client, relist=relist)
        self.cluster = NodeCluster(client, self.watch.store)
        self.stop = asyncio.Event()
        self.task = asyncio.create_task(self.watch.run(self.stop))

    async def until(self, reached: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not reached():
                if self.task.done():
                    self.task.result()
                    raise AssertionError("the watch has ended")
                await asyncio.sleep(0.02)

    async def synced(self) -> None:
        await self.until(lambda: self.cluster.synced)

    async def follows(self, sim: SimCluster) -> None:
        """Wait until the list is complete and the watch after it is open."""
        await self.synced()
        await self.until(lambda: sim.server.open_watches == 1)

    async def end(self) -> None:
        """Set the stop event, and wait until the watch has stopped."""
        self.stop.set()
        async with asyncio.timeout(STOPS_WITHIN):
            await self.task

    async def knows(self, cluster: Cluster) -> None:
        """Wait until every node is known as the API server has it, and there is no error."""
        async with asyncio.timeout(60):
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
    async with api_of(kubeconfig, KubeClient) as client:
        running = Watching(client, relist=relist)
        try:
            yield running
        finally:
            running.stop.set()
            await asyncio.wait({running.task}, timeout=STOPS_WITHIN)
            running.task.cancel()
            await asyncio.gather(running.task, return_exceptions=True)


async def _stored(cluster: Cluster) -> dict[str, tuple[str, str]]:
    metadata = [node["metadata"] for node in await cluster.list_nodes()]
    return {each["name"]: (each["uid"], each["resourceVersion"]) for each in metadata}


FOREIGN_FINALIZER = "kopf.zalando.org/KopfFinalizerMarker"


def mark(node: Node, value: str | None) -> NodePatch:
    body = {"metadata": {"resourceVersion": node.resource_version, "labels": {"status": value}}}
    return NodePatch(node.name, Action.MARK, body, "because")


def described(raw: dict[str, Any]) -> dict[str, Any]:
    """A node without the fields that change by themselves."""
    volatile = ("resourceVersion", "managedFields", "generation")
    meta = {key: value for key, value in raw["metadata"].items() if key not in volatile}
    return raw | {"metadata": meta}


async def test_created_changed_and_deleted_nodes_are_seen(cluster: Cluster) -> None:
    async with watching(cluster.kubeconfig) as running:
        await running.synced()  # an empty cluster too
        made = [await cluster.create_node(make_node(f"worker-{n}", n)) for n in range(3)]
        await running.until(lambda: running.names() == {"worker-0", "worker-1", "worker-2"})
        before = running.cluster.nodes()

        await cluster.create_node(make_node("worker-3", 3))
        await cluster.patch_node("worker-1", {"metadata": {"labels": {"pool": "blue"}}})
        for name in ("worker-0", "worker-2"):
            await cluster.delete_node(name)
        again = await cluster.create_node(make_node("worker-0"))  # a new node of the same name

        await running.until(lambda: running.uid("worker-0") == again["metadata"]["uid"])
        await running.knows(cluster)
        assert running.names() == {"worker-0", "worker-1", "worker-3"}
        assert running.label("worker-1", "pool") == "blue"
        assert {name: node.uid for name, node in before.items()} == {
            body["metadata"]["name"]: body["metadata"]["uid"] for body in made
        }


async def test_only_our_own_patch_is_written_and_it_is_known_at_once(cluster) -> None:
    raw = make_node("worker-0")
    raw["metadata"]["finalizers"] = [FOREIGN_FINALIZER]  # of another kopf operator
    raw["metadata"]["annotations"] = {"kopf.zalando.org/last-handled-configuration": "{}"}
    raw["spec"]["taints"] = [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]
    created = [await cluster.create_node(raw), await cluster.create_node(make_node("worker-1", 1))]
    async with watching(cluster.kubeconfig) as running:
        await running.synced()
        for value in ("presure", None):
            stored = await running.cluster.patch(mark(running.cluster.nodes()["worker-0"], value))
            assert running.cluster.nodes()["worker-0"] == stored
            assert running.label("worker-0", "status") == value
        await cluster.create_node(make_node("worker-2", 2))  # its event follows both patches'
        await running.until(lambda: "worker-2" in running.names())
        assert running.label("worker-0", "status") is None
    ours = [w for w in await cluster.writes() if "dynsched" in w.user_agent + w.manager]
    assert [(write.verb, write.name) for write in ours] == [("patch", "worker-0")] * 2
    for before in created:
        after = await cluster.get_node(before["metadata"]["name"])
        assert described(after) == described(before)
        managers = {entry["manager"] for entry in after["metadata"]["managedFields"]}
        assert not any("kopf" in manager for manager in managers)
    await cluster.patch_node("worker-0", {"metadata": {"finalizers": None}})


async def test_it_stops_and_does_not_affect_signals_and_other_tasks(cluster: Cluster) -> None:
    await cluster.create_node(make_node("worker-0"))
    loop = asyncio.get_running_loop()
    signals: list[str] = []
    loop.add_signal_handler(signal.SIGTERM, signals.append, "TERM")
    try:
        async with watching(cluster.kubeconfig) as running:
            await running.synced()
            later = loop.create_future()
            waiting = asyncio.create_task(asyncio.wait({later}))
            signal.raise_signal(signal.SIGTERM)
            await running.until(lambda: signals == ["TERM"])
            assert not running.task.done()
            await running.end()
            assert not waiting.done()
            later.set_result(None)
            await waiting
    finally:
        loop.remove_signal_handler(signal.SIGTERM)


@pytest.fixture
async def nodes(sim: SimCluster) -> list[str]:
    names = [f"worker-{n}" for n in range(4)]
    await sim.create_nodes(*names)
    return names


async def test_changes_that_a_silent_watch_misses_are_seen_in_the_next_list(sim, nodes) -> None:
    """For example after a restore of etcd: no event arrives, and versions continue from an earlier
    one.
    """
    async with watching(sim.kubeconfig, relist=0.5) as running:
        await running.follows(sim)
        silent = sim.server.faults.delay(3600, verb="watch")
        assert sim.server.drop_watches("cut") == 1
        await running.until(lambda: silent.hits == 1)
        await sim.delete_node("worker-1")
        await sim.patch_node("worker-2", {"metadata": {"labels": {"pool": "blue"}}})
        await running.knows(sim)
        silent.remove()


@pytest.mark.parametrize("created", ["worker-9", "worker-1"])
async def test_a_node_that_was_deleted_in_a_gap_of_the_watch_is_forgotten(
    sim, nodes, created
) -> None:
    """The server has no history of the gap."""
    async with watching(sim.kubeconfig, relist=0.5) as running:
        await running.follows(sim)
        assert sim.server.drop_watches("cut") == 1
        sim.server.objects.delete("nodes", "worker-1")
        sim.server.objects.create("nodes", make_node(created, 9))
        sim.server.store.compact()
        await running.knows(sim)
        assert running.names() == {*nodes, created} - {"worker-1"} | {created}
        assert running.cluster.synced


@pytest.mark.parametrize("how", ["end", "gone", "cut"])
async def test_a_watch_that_ends_is_restarted(sim, nodes, how) -> None:
    async with watching(sim.kubeconfig) as running:
        await running.follows(sim)
        sim.server.requests.clear()
        assert sim.server.drop_watches(how) == 1
        await sim.patch_node("worker-1", {"metadata": {"labels": {"pool": how}}})
        await running.until(lambda: running.label("worker-1", "pool") == how)
        # After `gone`, the list shows the change before the watch is open.
        await running.until(lambda: [r.verb for r in sim.server.requests].count("watch") == 1)


async def test_nodes_are_listed_once_the_server_is_up(sim, nodes, caplog) -> None:
    await sim.server.down()
    async with watching(sim.kubeconfig) as running:
        await running.until(lambda: running.cluster.error is not None)
        assert not running.cluster.synced
        await sim.server.up()
        await running.knows(sim)
        assert running.names() == set(nodes)
    assert len([r for r in caplog.records if r.levelno > logging.INFO]) == 1


async def test_nodes_stay_known_during_an_outage_and_are_corrected_after_it(
    sim, nodes, caplog
) -> None:
    async with watching(sim.kubeconfig, relist=0.5) as running:
        await running.synced()
        await sim.server.down()
        await running.until(lambda: running.cluster.error is not None)
        assert running.cluster.synced
        assert running.names() == set(nodes)
        sim.server.objects.delete("nodes", "worker-2")
        sim.server.store.compact()
        await sim.server.up()
        await running.knows(sim)
        assert running.names() == {"worker-0", "worker-1", "worker-3"}
    assert all(r.name.startswith("dynsched") for r in caplog.records if r.levelno > logging.INFO)


async def test_kopf_is_restarted_if_it_gives_up_unless_the_watch_is_forbidden(sim, nodes) -> None:
    async with watching(sim.kubeconfig, relist=0.5) as running:
        await running.follows(sim)
        fault = sim.server.faults.answer(500, verb="watch", message="etcd is on fire")
        assert sim.server.drop_watches("cut") == 1
        await running.until(lambda: "answered 500" in (running.cluster.error or ""))
        fault.remove()
        await sim.delete_node("worker-1")
        await running.knows(sim)
        assert "worker-1" not in running.names()

        sim.server.forbidden = {("watch", "nodes")}
        sim.server.drop_watches("cut")
        with pytest.raises(ForbiddenError, match=r"may not watch nodes: .*can-i watch nodes --as="):
            await running.task


async def test_wrong_credentials_at_the_start_end_the_watch(tmp_path: Path) -> None:
    async with SimCluster(tmp_path, token="right") as sim:
        sim.server.token = "other"
        async with watching(sim.kubeconfig) as running:
            with pytest.raises(SetupError, match=r"401: the credentials were not accepted"):
                await running.task


async def test_a_rotated_token_is_used(tmp_path: Path) -> None:
    async with SimCluster(tmp_path, token="first-secret") as sim:
        await sim.create_node(make_node("worker-0"))
        async with watching(sim.kubeconfig) as running:
            await running.follows(sim)
            sim.server.token = sim.token = "second-secret"
            sim.server.kubeconfig(sim.kubeconfig)
            assert sim.server.drop_watches("cut") == 1
            await sim.delete_node("worker-0")
            await running.until(lambda: running.names() == set())
            assert running.cluster.error is None
