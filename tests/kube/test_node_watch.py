"""The watch: complete, in order, without a trace on the nodes, through whatever befalls it."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from cluster import Cluster, SimCluster
from watch_support import STOP_WITHIN, Watching, watching

from dynsched.core.errors import ClusterError, ConflictError, ForbiddenError, NotFoundError
from dynsched.core.model import Action, Node, NodePatch
from dynsched.kube import kopf_operator, watch
from dynsched.kube.client import KubeClient
from dynsched.kube.failures import SetupError
from dynsched.sim.nodes import make_node

FOREIGN_FINALIZER = "kopf.zalando.org/KopfFinalizerMarker"


def mark(node: Node, value: str | None) -> NodePatch:
    body = {"metadata": {"resourceVersion": node.resource_version, "labels": {"status": value}}}
    return NodePatch(node.name, Action.MARK, body, "because")


def described(raw: dict[str, Any]) -> dict[str, Any]:
    """A node without what changes by itself."""
    volatile = ("resourceVersion", "managedFields", "generation")
    meta = {key: value for key, value in raw["metadata"].items() if key not in volatile}
    return raw | {"metadata": meta}


# --- on both forms of cluster ---


async def test_nodes_come_change_and_go(cluster: Cluster) -> None:
    for n in range(3):
        await cluster.create_node(make_node(f"worker-{n}", n))
    async with watching(cluster.kubeconfig) as running:
        await running.synced()
        assert running.names() == {"worker-0", "worker-1", "worker-2"}
        before = running.cluster.nodes()

        await cluster.create_node(make_node("worker-3", 3))
        await cluster.patch_node("worker-1", {"metadata": {"labels": {"pool": "blue"}}})
        await cluster.delete_node("worker-2")

        await running.until(lambda: running.names() == {"worker-0", "worker-1", "worker-3"})
        await running.until(lambda: running.label("worker-1", "pool") == "blue")
        assert set(before) == {"worker-0", "worker-1", "worker-2"}
        assert running.watch.error is None


async def test_an_empty_cluster_is_synced_too(cluster: Cluster) -> None:
    async with watching(cluster.kubeconfig) as running:
        await running.synced()
        assert running.names() == set()
        await cluster.create_node(make_node("worker-0"))
        await running.until(lambda: running.names() == {"worker-0"})


async def test_a_node_that_is_made_again_is_another_one(cluster: Cluster) -> None:
    await cluster.create_node(make_node("worker-0"))
    async with watching(cluster.kubeconfig) as running:
        await running.synced()
        old = running.cluster.nodes()["worker-0"].uid
        await cluster.delete_node("worker-0")
        again = await cluster.create_node(make_node("worker-0"))
        new = again["metadata"]["uid"]
        await running.until(lambda: running.uid("worker-0") == new)
        assert new != old


async def test_nothing_is_ever_written_by_watching(cluster: Cluster) -> None:
    raw = make_node("worker-0")
    raw["metadata"]["finalizers"] = [FOREIGN_FINALIZER]  # another kopf operator's
    raw["metadata"]["annotations"] = {"kopf.zalando.org/last-handled-configuration": "{}"}
    created = [
        await cluster.create_node(raw),
        await cluster.create_node(make_node("worker-1", 1)),
    ]
    async with watching(cluster.kubeconfig) as running:
        await running.synced()
        await cluster.patch_node("worker-0", {"metadata": {"labels": {"pool": "blue"}}})
        await cluster.patch_node("worker-0", {"metadata": {"labels": {"pool": None}}})
        await running.until(lambda: running.label("worker-0", "pool") is None)
        await asyncio.sleep(0.3)
    ours = [w for w in await cluster.writes() if "dynsched" in w.user_agent + w.manager]
    assert ours == []
    for before in created:
        after = await cluster.get_node(before["metadata"]["name"])
        assert described(after) == described(before)
    await cluster.patch_node("worker-0", {"metadata": {"finalizers": None}})


async def test_our_own_write_is_known_at_once_and_leaves_the_rest_alone(cluster: Cluster) -> None:
    raw = make_node("worker-0")
    raw["metadata"]["annotations"] = {"owner.io/team": "blue"}
    raw["spec"]["taints"] = [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]
    created = await cluster.create_node(raw)
    async with watching(cluster.kubeconfig) as running:
        await running.synced()
        for value in ("presure", None):
            stored = await running.cluster.patch(mark(running.cluster.nodes()["worker-0"], value))
            assert running.cluster.nodes()["worker-0"] == stored
            assert running.label("worker-0", "status") == value
        await asyncio.sleep(0.3)  # the watch's echoes of both
        assert running.label("worker-0", "status") is None
    after = await cluster.get_node("worker-0")
    assert described(after) == described(created)
    managers = {entry["manager"] for entry in after["metadata"]["managedFields"]}
    assert not any("kopf" in manager for manager in managers)


async def test_a_conflict_is_cured_by_reading_again(cluster: Cluster) -> None:
    await cluster.create_node(make_node("worker-0"))
    async with watching(cluster.kubeconfig) as running:
        await running.synced()
        stale = running.cluster.nodes()["worker-0"]
        await cluster.patch_node("worker-0", {"metadata": {"labels": {"pool": "blue"}}})
        with pytest.raises(ConflictError):
            await running.cluster.patch(mark(stale, "presure"))
        fresh = await running.cluster.read("worker-0")
        assert fresh is not None
        assert fresh.labels["pool"] == "blue"
        assert (await running.cluster.patch(mark(fresh, "presure"))).labels["status"] == "presure"


async def test_a_node_that_is_gone_when_it_is_patched_is_forgotten(cluster: Cluster) -> None:
    await cluster.create_node(make_node("worker-0"))
    async with watching(cluster.kubeconfig) as running:
        await running.synced()
        known = running.cluster.nodes()["worker-0"]
        await cluster.delete_node("worker-0")
        with pytest.raises(NotFoundError):
            await running.cluster.patch(mark(known, "presure"))
        assert running.names() == set()
        assert await running.cluster.read("worker-0") is None


async def test_it_stops_within_seconds_and_leaves_signals_and_tasks_alone(cluster: Cluster) -> None:
    await cluster.create_node(make_node("worker-0"))
    loop = asyncio.get_running_loop()
    asked: list[str] = []
    loop.add_signal_handler(signal.SIGTERM, asked.append, "TERM")
    try:
        async with watching(cluster.kubeconfig) as running:
            await running.synced()
            later = asyncio.create_task(asyncio.sleep(60))
            signal.raise_signal(signal.SIGTERM)
            await running.until(lambda: asked == ["TERM"])
            assert not running.task.done()
            began = time.monotonic()
            running.stop.set()
            await running.task
            assert time.monotonic() - began < STOP_WITHIN
            assert not later.done()
            later.cancel()
    finally:
        loop.remove_signal_handler(signal.SIGTERM)


# --- faults, on the simulated cluster ---


@pytest.fixture
async def nodes(sim: SimCluster, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(watch, "SETTLED", 0.5)
    names = [f"worker-{n}" for n in range(4)]
    for n, name in enumerate(names):
        await sim.create_node(make_node(name, n))
    return names


async def gap(running: Watching, sim: SimCluster, *, gone: str, come: str) -> None:
    """Changes that the watch misses, and of which the server keeps no history."""
    await running.until(lambda: sim.server.drop_watches("cut") == 1)
    sim.server.objects.delete("nodes", gone)
    sim.server.objects.create("nodes", make_node(come, 9))
    sim.server.compact()


async def test_a_node_that_went_in_a_gap_of_the_watch(sim: SimCluster, nodes: list[str]) -> None:
    async with watching(sim.kubeconfig) as running:
        await running.synced()
        await gap(running, sim, gone="worker-1", come="worker-9")
        await running.until(lambda: running.names() == {*nodes, "worker-9"} - {"worker-1"})
        assert running.cluster.synced


async def test_a_node_that_went_and_came_back_in_a_gap(sim: SimCluster, nodes: list[str]) -> None:
    async with watching(sim.kubeconfig) as running:
        await running.synced()
        await gap(running, sim, gone="worker-1", come="worker-1")
        new = (await sim.get_node("worker-1"))["metadata"]["uid"]
        await running.until(lambda: running.uid("worker-1") == new)
        await asyncio.sleep(watch.SETTLED + 1.5)
        assert running.names() == set(nodes)


async def test_the_count_alone_finds_a_vanished_node(
    sim: SimCluster, nodes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with watching(sim.kubeconfig, resync=0.5) as running:
        await running.synced()
        ghost = Node("ghost", uid="u-0", resource_version="1")
        running.watch.store.offer(ghost)
        await running.until(lambda: "ghost" not in running.names())


@pytest.mark.parametrize("how", ["end", "gone", "cut"])
async def test_watches_that_end_are_begun_again(
    sim: SimCluster, nodes: list[str], how: str
) -> None:
    async with watching(sim.kubeconfig) as running:
        await running.synced()
        await running.until(lambda: sim.server.drop_watches(how) == 1)
        sim.server.requests.clear()
        await sim.patch_node("worker-1", {"metadata": {"labels": {"pool": how}}})
        await running.until(lambda: running.label("worker-1", "pool") == how)
        assert len([r for r in sim.server.requests if r.verb == "watch"]) == 1


async def test_a_server_that_ends_every_watch_is_not_stormed(
    sim: SimCluster, nodes: list[str]
) -> None:
    async with watching(sim.kubeconfig) as running:
        await running.synced()
        sim.server.requests.clear()
        for _ in range(30):
            sim.server.drop_watches("end")
            await asyncio.sleep(0.1)
        assert len([r for r in sim.server.requests if r.verb == "watch"]) <= 8


async def test_an_api_server_that_knows_no_node_for_a_moment_at_the_start_is_asked_again(
    sim: SimCluster, nodes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    count, wrong = KubeClient.count, [0, 0]

    async def counted(self: KubeClient) -> int:
        return wrong.pop() if wrong else await count(self)

    monkeypatch.setattr(KubeClient, "count", counted)
    sim.server.faults.delay(0.5, verb="list", resource="nodes")
    async with watching(sim.kubeconfig) as running:
        await running.synced()
        assert running.names() == set(nodes)


async def test_the_server_is_down_at_the_start(
    sim: SimCluster, nodes: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="dynsched")
    await sim.server.down()
    async with watching(sim.kubeconfig) as running:
        await asyncio.sleep(2.0)
        assert not running.cluster.synced
        assert "connection refused" in (running.watch.error or "")
        await sim.server.up()
        await running.synced()
        assert running.names() == set(nodes)
        assert running.watch.error is None
    assert len([r for r in caplog.records if "connection refused" in r.message]) == 1


async def test_the_server_is_down_for_a_while(
    sim: SimCluster, nodes: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    async with watching(sim.kubeconfig, resync=0.5) as running:
        await running.synced()
        await sim.server.down()
        await running.until(lambda: running.watch.error is not None)
        await asyncio.sleep(2.0)
        assert running.cluster.synced
        assert running.names() == set(nodes)
        sim.server.objects.delete("nodes", "worker-2")
        sim.server.compact()
        await sim.server.up()
        await running.until(lambda: running.names() == {"worker-0", "worker-1", "worker-3"}, 30)
        await running.until(lambda: running.watch.error is None, 30)
    assert all(r.name.startswith("dynsched") for r in caplog.records if r.levelno > logging.INFO)


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_watch_that_is_refused_for_a_while(
    sim: SimCluster, nodes: list[str], status: int
) -> None:
    async with watching(sim.kubeconfig) as running:
        await running.synced()
        fault = sim.server.faults.answer(status, verb="watch", times=2)
        await running.until(lambda: sim.server.drop_watches("cut") == 1 or fault.hits > 0)
        await sim.patch_node("worker-1", {"metadata": {"labels": {"pool": "blue"}}})
        await running.until(lambda: running.label("worker-1", "pool") == "blue")
        assert fault.hits == 2


async def test_kopf_is_started_again_when_it_gives_up(
    sim: SimCluster, nodes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dynsched.kube.kopf_settings.BACKOFFS", (0.05, 0.05))
    monkeypatch.setattr(watch, "STEADY", 1.0)
    async with watching(sim.kubeconfig) as running:
        await running.synced()
        fault = sim.server.faults.answer(500, verb="watch", message="etcd is on fire")
        sim.server.drop_watches("cut")
        await running.until(lambda: "answered 500" in (running.watch.error or ""))
        fault.remove()
        await sim.delete_node("worker-1")
        await running.until(lambda: "worker-1" not in running.names())
        await running.until(lambda: running.watch.error is None)


async def test_a_watch_that_is_forbidden_ends_the_process(
    sim: SimCluster, nodes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dynsched.kube.kopf_settings.BACKOFFS", (0.05,))
    sim.server.forbidden = {("watch", "nodes")}
    async with watching(sim.kubeconfig) as running:
        with pytest.raises(ForbiddenError, match=r"may not watch nodes: .*can-i watch nodes --as="):
            await running.task


async def test_listing_is_forbidden(sim: SimCluster) -> None:
    sim.server.forbidden = {("list", "nodes")}
    async with watching(sim.kubeconfig) as running:
        with pytest.raises(ForbiddenError, match=r"may not list nodes"):
            await running.task


async def test_wrong_credentials_at_the_start(tmp_path: Path) -> None:
    async with SimCluster(tmp_path, token="right") as sim:
        sim.server.token = "other"
        async with watching(sim.kubeconfig) as running:
            with pytest.raises(SetupError, match=r"401: the credentials were not accepted"):
                await running.task


async def test_a_rotated_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dynsched.kube.transport.RELOGIN_GAP", 0.0)
    async with SimCluster(tmp_path, token="first-secret") as sim:
        await sim.create_node(make_node("worker-0"))
        async with watching(sim.kubeconfig) as running:
            await running.synced()
            sim.server.token = sim.token = "second-secret"
            sim.server.kubeconfig(sim.kubeconfig)
            sim.server.drop_watches("cut")
            await sim.delete_node("worker-0")
            await running.until(lambda: running.names() == set())
            assert running.watch.error is None


async def test_a_token_file_is_read_again_before_it_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kopf_operator, "TOKEN_MAX_AGE", 0.5)
    token = tmp_path / "token"
    async with SimCluster(tmp_path, token="first-secret") as sim:
        await sim.create_node(make_node("worker-0"))
        config = yaml.safe_load(sim.kubeconfig.read_text())
        config["users"][0]["user"] = {"tokenFile": str(token)}
        sim.kubeconfig.write_text(yaml.safe_dump(config))
        token.write_text("first-secret")
        async with watching(sim.kubeconfig) as running:
            await running.synced()
            await asyncio.sleep(0.6)
            sim.server.token = sim.token = "second-secret"
            token.write_text("second-secret")
            sim.server.drop_watches("cut")
            await sim.delete_node("worker-0")
            await running.until(lambda: running.names() == set())
        assert not [r for r in sim.server.requests if r.status == 401]


async def test_a_watch_that_ends_again_and_again_for_no_known_cause(
    sim: SimCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "UNEXPLAINED", 1)

    async def broken(**_: object) -> None:
        raise RuntimeError("kopf has a bad day")

    monkeypatch.setattr(kopf_operator.kopf, "operator", broken)
    async with watching(sim.kubeconfig) as running:
        with pytest.raises(ClusterError, match="ended: RuntimeError: kopf has a bad day"):
            await running.task


async def test_it_stops_at_once_while_it_waits_for_the_server(sim: SimCluster) -> None:
    await sim.server.down()
    async with watching(sim.kubeconfig) as running:
        await asyncio.sleep(0.5)
        began = time.monotonic()
        running.stop.set()
        await running.task
        assert time.monotonic() - began < 1


async def test_a_server_that_does_not_answer_does_not_hold_the_stop_up(
    sim: SimCluster, nodes: list[str]
) -> None:
    async with watching(sim.kubeconfig, resync=0.2) as running:
        await running.synced()
        sim.server.faults.delay(60)
        sim.server.drop_watches("cut")
        await asyncio.sleep(1.5)
        began = time.monotonic()
        running.stop.set()
        await running.task
        assert time.monotonic() - began < STOP_WITHIN
