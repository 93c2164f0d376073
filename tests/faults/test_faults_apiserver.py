"""The API server fails: what was decided is written once, or later, or said to be unwritten.

See docs/reliability.md; what befalls the watch alone is in test_node_watch.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from bench import COOL, HOT, OPEN, bench, rules
from cluster import Cluster, SimCluster
from operator_support import until

from dynsched.kube import resync, watch
from dynsched.kube.transport import ATTEMPTS
from dynsched.sim.nodes import make_node
from dynsched.writer import AT_ONCE, FAILURES_BEFORE_GIVING_UP


async def make_nodes(cluster: Cluster, *names: str) -> None:
    for index, name in enumerate(names):
        await cluster.create_node(make_node(name, index))


async def patches(cluster: Cluster) -> list[tuple[str, int]]:
    """The patches of nodes so far, with what was answered."""
    found = [write for write in await cluster.writes() if write.manager == "dynsched"]
    return [(write.name, write.status) for write in found if write.verb == "patch"]


def told_marks(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name == "dynsched.reporting"]


# --- somebody is faster, on both forms of cluster ---


async def test_a_taint_that_comes_between_plan_and_write_is_kept(
    cluster, prometheus, tmp_path
) -> None:
    await make_nodes(cluster, "a")
    mark = {"taint": "dynsched.io/pressure=true:PreferNoSchedule"}
    theirs = {"key": "example.com/drain", "value": "soon", "effect": "NoSchedule"}
    prometheus.set(load={"a": HOT})
    async with bench(cluster, prometheus, tmp_path, rules(mark=mark)) as it:
        patch = {"spec": {"taints": [theirs]}}
        it.storage.meddle["a"] = lambda: cluster.patch_node("a", patch)
        await it.tick()
        taints = (await cluster.get_node("a"))["spec"]["taints"]
        assert [(t["key"], t["effect"]) for t in taints] == [
            ("example.com/drain", "NoSchedule"),
            ("dynsched.io/pressure", "PreferNoSchedule"),
        ]
        assert await patches(cluster) == [("a", 409), ("a", 200)]
        assert it.status()["error"] is None

        patch = {"spec": {"taints": taints[1:]}}
        it.storage.meddle["a"] = lambda: cluster.patch_node("a", patch)
        prometheus.set(load={"a": COOL})
        await it.tick()
        assert "taints" not in (await cluster.get_node("a"))["spec"]  # theirs was not put back


async def test_a_node_that_is_deleted_between_plan_and_write(cluster, prometheus, tmp_path) -> None:
    await make_nodes(cluster, "a", "b", "c")
    prometheus.set(load={"a": HOT, "b": HOT, "c": HOT})

    async def replaced() -> None:
        await cluster.delete_node("c")
        await make_nodes(cluster, "c")

    async with bench(cluster, prometheus, tmp_path, rules()) as it:
        it.storage.meddle = {"a": lambda: cluster.delete_node("a"), "c": replaced}
        await it.tick()
        assert it.status()["error"] is None
        assert it.status()["patch_failures"]["count"] == 0
        assert "a" not in it.last.nodes
        assert "c" not in it.last.nodes  # what was decided was of another machine
        assert await it.marked() == "b"
        await it.tick()
        assert await it.marked() == "b c"


# --- what the API server answers ---


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_patch_that_is_refused_for_a_moment_is_sent_again(
    sim, prometheus, tmp_path, status
) -> None:
    await make_nodes(sim, "a")
    prometheus.set(load={"a": HOT})
    async with bench(sim, prometheus, tmp_path, rules()) as it:
        sim.server.faults.answer(status, verb="patch", resource="nodes", times=2, retry_after=1)
        await it.tick()
        assert await patches(sim) == [("a", status), ("a", status), ("a", 200)]
        assert it.status()["error"] is None
        assert await it.told("a") == {"Pressured": 1}


@pytest.mark.parametrize(
    ("arm", "said"),
    [
        (lambda faults: faults.answer(500, verb="patch", name="a"), "answered 500"),
        (lambda faults: faults.answer(429, verb="patch", name="a", retry_after=0), "answered 429"),
        (lambda faults: faults.delay(60, verb="patch", name="a"), "no answer"),
        (lambda faults: faults.reset(verb="patch", name="a"), "connection broke"),
    ],
    ids=["500", "429", "slow", "reset"],
)
async def test_a_node_that_cannot_be_written_is_said_and_tried_again(
    sim, prometheus, tmp_path, monkeypatch, *, arm, said
) -> None:
    monkeypatch.setattr("dynsched.writer.WRITE_TIMEOUT", 1.5)
    await make_nodes(sim, "a", "b", "c")
    prometheus.set(load=dict.fromkeys("abc", HOT))
    async with bench(sim, prometheus, tmp_path, rules()) as it:
        fault = arm(sim.server.faults)
        await it.tick()
        assert await it.marked() == "b c"
        assert it.status()["error"].startswith("1 of 3 nodes could not be written: a: ")
        assert said in it.status()["error"]
        assert it.status()["patch_failures"]["count"] == 1
        assert it.metric("dynsched_patch_failures_total") == 1
        assert not it.node("a").marked

        fault.remove()
        await it.tick()
        assert await it.marked() == "a b c"
        assert it.status()["error"] is None


@pytest.mark.parametrize("after", [False, True], ids=["before it was done", "after it was done"])
@pytest.mark.parametrize("how", ["reset", 500])
async def test_a_patch_whose_answer_is_lost_is_done_and_told_once(
    sim, prometheus, tmp_path, caplog, *, how, after
) -> None:
    caplog.set_level(logging.INFO)
    await make_nodes(sim, "a")
    async with bench(sim, prometheus, tmp_path, rules()) as it:
        for load in (HOT, COOL):
            prometheus.set(load={"a": load})
            if how == "reset":
                sim.server.faults.reset(verb="patch", resource="nodes", times=1, after=after)
            else:
                sim.server.faults.answer(how, verb="patch", resource="nodes", times=1, after=after)
            for _ in range(3):
                await it.tick()
        assert told_marks(caplog) == [
            "mark node a: load 91 > 80",
            "release node a: no rule fires any more",
        ]
        assert await it.told("a") == {"Pressured": 1, "Relieved": 1}
        assert it.metric('dynsched_patches_total{action="mark"}') == 1
        assert await it.marked() == ""


async def test_a_missing_verb_is_named_with_the_remedy(sim, prometheus, tmp_path) -> None:
    await make_nodes(sim, "a")
    prometheus.set(load={"a": HOT})
    async with bench(sim, prometheus, tmp_path, rules()) as it:
        sim.server.forbidden = {("patch", "nodes")}
        await it.tick()
        error = it.status()["error"]
        assert "may not patch nodes" in error
        assert "kubectl auth can-i patch nodes --as=system:serviceaccount:" in error
        assert "kubectl apply -k manifests/base" in error

        sim.server.forbidden = set()
        await it.tick()
        assert it.status()["error"] is None


async def test_a_mark_whose_change_is_refused_is_told_as_it_is_on_the_node(
    sim, prometheus, tmp_path
) -> None:
    await make_nodes(sim, "a", "b")
    prometheus.set(load={"a": HOT, "b": COOL})
    async with bench(sim, prometheus, tmp_path, rules()) as it:
        await it.tick()
        sim.server.forbidden = {("patch", "nodes")}
        it.write_rules(rules(mark={"label": "example.com/load=high"}))
        await it.tick()
        assert (await sim.get_node("a"))["metadata"]["labels"]["status"] == "presure"
        node = it.node("a")
        assert (node.marked, node.carries) == (True, ("label status=presure",))
        assert node.due is not None
        assert (node.due.action, node.due.changes[:2]) == (
            "repair",
            ["label status-", "label example.com/load=high"],
        )
        assert node.due.waits.startswith("the write failed: ")
        assert "may not patch nodes" in node.due.waits

        sim.server.forbidden = set()
        await it.tick()
        node = it.node("a")
        assert (node.carries, node.due) == (("label example.com/load=high",), None)


async def test_events_that_are_refused_cost_no_mark(sim, prometheus, tmp_path, caplog) -> None:
    await make_nodes(sim, "a", "b")
    prometheus.set(load={"a": HOT})
    sim.server.forbidden = {("create", "events")}
    async with bench(sim, prometheus, tmp_path, rules()) as it:
        await it.tick()
        prometheus.set(load={"a": HOT, "b": HOT})
        await it.tick()
        assert await it.marked() == "a b"
        assert it.status()["error"] is None
    lost = [
        r.getMessage() for r in caplog.records if "some Events were not posted" in r.getMessage()
    ]
    assert len(lost) == 1
    assert "may not create events" in lost[0]


async def test_a_rotated_token_is_taken_up(tmp_path, prometheus, monkeypatch) -> None:
    monkeypatch.setattr("dynsched.kube.transport.RELOGIN_GAP", 0.0)
    token = tmp_path / "token"
    token.write_text("first-secret")
    async with SimCluster(tmp_path, token="first-secret") as sim:
        config = yaml.safe_load(sim.kubeconfig.read_text())
        config["users"][0]["user"] = {"tokenFile": str(token)}
        sim.kubeconfig.write_text(yaml.safe_dump(config))
        await make_nodes(sim, "a", "b")
        prometheus.set(load={"a": HOT})
        async with bench(sim, prometheus, tmp_path, rules()) as it:
            await it.tick()
            token.write_text("second-secret")
            sim.server.token = sim.token = "second-secret"
            sim.server.drop_watches("cut")
            prometheus.set(load={"b": HOT, "a": COOL})
            await it.tick()
            assert await it.marked() == "b"
            await sim.patch_node("b", {"metadata": {"labels": {"pool": "blue"}}})
            await it.tick()  # the watch, too, is well again
            assert it.status()["error"] is None


# --- it goes back to an older state, on both forms of cluster ---


async def test_an_older_state_of_etcd_is_put_back(
    cluster, prometheus, tmp_path, monkeypatch
) -> None:
    """Nodes and marks are those of the backup, the load is that of today."""
    for name, seconds in (("GAP", 0.5), ("OLD", 1.0), ("LOOK_AGAIN", 0.3)):
        monkeypatch.setattr(resync, name, seconds)
    monkeypatch.setattr(watch, "SETTLED", 1.0)
    await make_nodes(cluster, "a", "b", "c")
    prometheus.set(load={"a": HOT, "b": COOL, "c": COOL})
    async with bench(cluster, prometheus, tmp_path, rules()) as it:
        await it.tick()
        assert await it.marked() == "a"
        backup = await cluster.back_up()
        prometheus.set(load={"a": COOL, "b": HOT, "d": HOT})
        await cluster.delete_node("c")
        await cluster.create_node(make_node("d", 3))
        await it.tick()
        assert await it.marked() == "b d"

        await cluster.restore(backup)
        assert await it.marked() == "a"
        await cluster.create_node(make_node("e", 4))

        async def is_told() -> bool:
            await it.loop.tick(it.clock())
            return "went back to an older state" in str(it.status()["error"])

        await until(is_told, "/status says why it may be blind")
        prometheus.set(load={"a": COOL, "b": HOT, "c": COOL, "d": HOT, "e": HOT})
        await it.tick()
        assert await it.marked() == "b e"
        assert set(it.last.nodes) == {"a", "b", "c", "e"}

        async def is_well() -> bool:
            await it.tick()
            return it.status()["error"] is None

        await until(is_well, "/status is ok again")


# --- many at once ---


class Meter:
    """Counts the patches of nodes that the server has under way."""

    def __init__(self, sim: SimCluster, monkeypatch: pytest.MonkeyPatch) -> None:
        self.under_way = self.most = 0
        answer: Callable[..., Awaitable[Any]] = sim.server._answer

        async def counted(request: Any, record: Any, *rest: Any) -> Any:
            if (record.verb, record.resource) != ("patch", "nodes"):
                return await answer(request, record, *rest)
            self.under_way += 1
            self.most = max(self.most, self.under_way)
            try:
                await asyncio.sleep(0.002)  # that others can come in between
                return await answer(request, record, *rest)
            finally:
                self.under_way -= 1

        monkeypatch.setattr(sim.server, "_answer", counted)


async def test_2000_nodes_join_at_once(sim, prometheus, tmp_path: Path, monkeypatch) -> None:
    await make_nodes(sim, "first")
    meter = Meter(sim, monkeypatch)
    names = [f"n{index:04}" for index in range(2000)]
    prometheus.set(load={name: HOT + index / 1000 for index, name in enumerate(names)})
    guard = {"max_marked": "50%"}
    async with bench(sim, prometheus, tmp_path, rules(guard=guard)) as it:
        await it.tick()
        for index, name in enumerate(names):
            sim.server.objects.create("nodes", make_node(name, index + 1))
        await it.tick()
        assert (await it.marked()).split() == names[1000:]
        assert 10 < meter.most <= 20
        await it.tick()
        assert len(await patches(sim)) == 1000  # each once, and none of them twice


async def test_no_storm_during_an_outage_nor_after_it(
    sim, prometheus, tmp_path, monkeypatch
) -> None:
    names = [f"n{index:03}" for index in range(100)]
    await make_nodes(sim, *names)
    meter = Meter(sim, monkeypatch)
    prometheus.set(load=dict.fromkeys(names, COOL))
    async with bench(sim, prometheus, tmp_path, rules(guard=OPEN)) as it:
        await it.tick()
        prometheus.set(load=dict.fromkeys(names, HOT))
        fault = sim.server.faults.answer(503, verb="patch", resource="nodes")
        for _ in range(2):
            await it.tick()
            failures = it.status()["patch_failures"]["count"]
            assert FAILURES_BEFORE_GIVING_UP <= failures < FAILURES_BEFORE_GIVING_UP + AT_ONCE
        assert fault.hits < 2 * ATTEMPTS * (FAILURES_BEFORE_GIVING_UP + AT_ONCE)
        fault.remove()

        sim.server.requests.clear()
        await it.tick()
        assert (await it.marked()).split() == names
        assert it.status()["error"] is None
        assert await patches(sim) == [(name, 200) for name in names]
        assert meter.most <= 20
