"""Deletion costs of pods on hot nodes: what is written, how often, what is left alone."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from api_support import api_of, stranger
from builders import NOON, rule
from cluster import Cluster, SimCluster
from pods_support import PODS, create, pod, reached
from prometheus_client import CollectorRegistry
from snapshots import Scene

from dynsched.controller import scaling_down
from dynsched.controller.pod_tracking import PodTracking
from dynsched.controller.scaling_down import LINGER, MOST_FAILURES, RETRY, ScalingDown
from dynsched.controller.single_pass import prune
from dynsched.engine.model import Node
from dynsched.engine.snapshot import Snapshot
from dynsched.rules.keys import COST_ANNOTATION, DELETION_COST
from dynsched.rules.rule_set import RuleSet
from dynsched.sources.pod_use import PodUseSource

RULES: dict[str, Any] = {
    "guard": {"max_marked": "100%"},
    "scale_down": True,
    "rules": [rule(expr="rate(x[1m])", resource="cpu"), rule("mem", resource="memory")],
}
USES = {"web-1": 1.0, "web-2": 3.2, "web-3": 2.0, "own-1": 4.0}


def owned(name: str, node: str, kind: str = "ReplicaSet", **annotations: str) -> dict[str, Any]:
    found = pod(name, node)
    owner = {"apiVersion": "apps/v1", "kind": kind, "name": "o", "uid": "u", "controller": True}
    found["metadata"] |= {"ownerReferences": [owner]}
    found["metadata"]["annotations"] = {"team": "pay"} | {
        {"cost": DELETION_COST, "ours": COST_ANNOTATION}[key]: value
        for key, value in annotations.items()
    }
    return found


class Bench:
    """A ScalingDown in ``cluster`` whose ticks and time are the test's."""

    def __init__(self, cluster: Cluster, api: Any, **rules: Any) -> None:
        self.cluster = cluster
        nodes = [Node(name, allocatable={"cpu": 4.0, "memory": 2.0**30}) for name in "ab"]
        self.scene = Scene(RULES | rules, nodes)
        self.now, self.leads = 1000.0, True
        uses: Any = PodUseSource(SimpleNamespace(), self.rules)  # type: ignore[arg-type]
        uses.run = lambda stop, *_: stop.wait()  # nothing is asked
        uses.of_pods = {"cpu": {f"default/{name}": use for name, use in USES.items()}}
        self.tracking = PodTracking(
            *(api, self.rules, SimpleNamespace(synced=True, nodes=lambda: self.scene.nodes)),
            binder=None,
            pod_use=uses,
        )
        self.snapshot: Snapshot | None = None
        self.part = ScalingDown(
            api,
            snapshot=lambda: self.snapshot,
            costed=lambda: self.tracking.costed,
            leads=lambda: self.leads,
            registry=CollectorRegistry(),
            clock=lambda: self.now,
        )

    def rules(self) -> RuleSet:
        return self.scene.rule_set

    async def pods(self) -> list[dict[str, Any]]:
        return [each["metadata"] for each in (await self.cluster.get(PODS)).ok["items"]]

    async def costs(self) -> dict[str, tuple[str | None, str | None]]:
        """By pod: its cost, and what dynsched says that it wrote. Nothing else has changed."""
        found = {each["name"]: each["annotations"] for each in await self.pods()}
        assert all(each.pop("team") == "pay" for each in found.values())
        told = {
            name: (each.pop(DELETION_COST, None), each.pop(COST_ANNOTATION, None))
            for name, each in found.items()
        }
        assert not any(found.values())
        return {name: costs for name, costs in told.items() if any(costs)}

    async def tick(self, seconds: float = 10.0, /, mem: float = 1.0, **cpu: float) -> int:
        """One tick by these loads, and the pass after it, once the watch has told of all before;
        how many pods were written.
        """
        pods = await self.pods()
        ours = {
            (e["name"], e["resourceVersion"]) for e in pods if COST_ANNOTATION in e["annotations"]
        }
        await reached(lambda: {(e.name, e.version) for e in self.tracking.costed.values()}, ours)
        await reached(lambda: self.tracking.known().running, len(pods))
        self.now += seconds
        loads = {"cpu": {"a": 20.0, "b": 20.0} | cpu, "mem": {"a": mem, "b": 1.0}}
        known = self.tracking.known()
        self.snapshot = self.scene.tick(NOON + self.now, pods=known, **loads)
        before = len(await self.cluster.writes("pods"))
        await self.part.follow(self.snapshot)
        return len(await self.cluster.writes("pods")) - before

    def status(self) -> dict[str, Any]:
        return dict(self.part.status())


@asynccontextmanager
async def running(cluster: Cluster, *pods: dict[str, Any], **rules: Any) -> AsyncIterator[Bench]:
    for each in pods:
        await create(cluster, each)
    async with api_of(cluster.kubeconfig) as api:
        bench, stop = Bench(cluster, api, **rules), asyncio.Event()
        task = asyncio.create_task(bench.tracking.run(stop))
        try:
            yield bench
        finally:
            stop.set()
            await task


WEB = [owned("web-1", "a"), owned("web-2", "a"), owned("web-3", "b")]
GIVEN = {"web-1": ("-26", "-26"), "web-2": ("-81", "-81")}


async def test_pods_on_a_hot_node_get_a_cost_by_what_they_use_until_it_is_cool(cluster) -> None:
    others = [
        *(owned("own-1", "a", cost="7"), owned("own-2", "a", cost="-9", ours="-3")),
        *(owned("job-1", "a", kind="Job"), owned("set-1", "a", kind="StatefulSet")),
    ]
    theirs = {"own-1": ("7", None), "own-2": ("-9", "-3")}
    async with running(cluster, *WEB, *others) as bench:
        assert await bench.tick() == 1  # what dynsched said it wrote, and somebody else changed
        assert await bench.costs() == {"own-1": ("7", None), "own-2": ("-9", None)}
        assert await bench.tick(a=95) == 2
        theirs["own-2"] = ("-9", None)
        assert await bench.costs() == GIVEN | theirs
        for _ in range(3):  # nothing is written in steady state
            assert await bench.tick(a=95) == 0
        assert bench.status() == {"pods": 2, "nodes": 1, "error": None}
        await create(cluster, owned("web-4", "a"))  # a pod that is new there, of unknown use
        assert await bench.tick(a=95) == 1
        assert (await bench.costs())["web-4"] == ("-1", "-1")
        _ = (await cluster.delete(f"{PODS}/web-4", gracePeriodSeconds=0)).ok
        assert await bench.tick(a=95) == 0
        # For a minute a node that is hot now and then is not written.
        assert [await bench.tick(LINGER / 3, a=load) for load in (20, 20, 95, 20)] == [0] * 4
        assert await bench.tick(LINGER, a=20) == 2
        assert await bench.costs() == theirs
        assert await bench.tick() == 0


async def test_a_cost_that_somebody_else_changes_meanwhile_stays(cluster) -> None:
    async with running(cluster, *WEB) as bench:
        await bench.tick(a=95)
        for name, cost in (("web-1", "-500"), ("web-2", None)):
            body = {"metadata": {"annotations": {DELETION_COST: cost}}}
            _ = (await cluster.patch(f"{PODS}/{name}", body)).ok
        assert await bench.tick(a=95) == 0
        assert await bench.tick(LINGER) == 2
        assert await bench.costs() == {"web-1": ("-500", None)}


async def test_by_the_resource_that_makes_the_node_hot(cluster) -> None:
    async with running(cluster, *WEB) as bench:
        await bench.tick(mem=95)  # nothing is known of the pods' memory
        assert await bench.costs() == {"web-1": ("-1", "-1"), "web-2": ("-1", "-1")}


async def test_a_pod_that_changed_since_it_was_listed_is_left_to_the_next_pass(
    cluster, monkeypatch
) -> None:
    async with running(cluster, *WEB) as bench:
        listed = bench.part._list

        async def late(*args: Any) -> Any:
            found = await listed(*args)
            body = {"metadata": {"annotations": {DELETION_COST: "5"}}}
            _ = (await cluster.patch(f"{PODS}/web-1", body)).ok
            _ = (await cluster.delete(f"{PODS}/web-2", gracePeriodSeconds=0)).ok
            return found

        monkeypatch.setattr(bench.part, "_list", late)
        await bench.tick(a=95)
        assert await bench.costs() == {"web-1": ("5", None)}
        monkeypatch.setattr(bench.part, "_list", listed)
        assert (await bench.tick(a=95), bench.status()["error"]) == (0, None)


async def test_a_restart_knows_its_own_and_switched_off_all_go(cluster) -> None:
    async with running(cluster, *WEB) as bench:
        await bench.tick(a=95)
    async with running(cluster) as bench:
        assert await bench.tick(a=95) == 0
        assert await bench.costs() == GIVEN
    order = {"score": {"cpu": 1}}  # pods are watched for another reason
    async with running(cluster, scale_down=False, order=order) as bench:
        assert await bench.tick(a=95) == 2
        assert await bench.costs() == {}


async def test_the_pace_is_that_of_marks(cluster) -> None:
    pods = [owned(f"x-{number}", "a") for number in range(9)]
    guard = {"max_marked": "100%", "max_writes_per_minute": 6}
    async with running(cluster, *pods, guard=guard) as bench:
        assert [await bench.tick(a=95) for _ in range(4)] == [6, 1, 1, 1]
        assert len(await bench.costs()) == 9
        assert [await bench.tick(LINGER), *[await bench.tick() for _ in range(2)]] == [1, 1, 1]


async def test_without_the_right_it_is_told_once_and_tried_now_and_then(
    cluster, tmp_path, caplog
) -> None:
    pods = [owned(f"x-{number}", "a") for number in range(MOST_FAILURES + 2)]
    async with running(cluster, *pods) as bench:
        async with api_of(stranger(cluster, tmp_path, {("patch", "pods")})) as api:
            bench.part._write = scaling_down.partial(
                scaling_down.write_cost, api, may_write=lambda: True
            )
            caplog.set_level(logging.WARNING)
            assert await bench.tick(a=95) == MOST_FAILURES
            assert [await bench.tick(a=95) for _ in range(2)] == [0] * 2
            assert await bench.tick(RETRY, a=95) == MOST_FAILURES
        assert "may not patch pods" in bench.status()["error"]
        remedy = "components/scale-down/rbac.yaml" in bench.status()["error"]
        assert remedy is (cluster.form == "sim")  # the other one is no account of ours
        assert len([m for m in caplog.messages if "deletion cost" in m]) == 1
        assert await bench.costs() == {}


async def test_one_refused_pod_does_not_stop_the_others(cluster, monkeypatch) -> None:
    async with running(cluster, *WEB) as bench:
        write = bench.part._write

        async def refused(pod: Any, cost: int | None) -> None:
            if pod.name == "web-2":
                raise scaling_down.ClusterError("answered 422")
            await write(pod, cost)

        monkeypatch.setattr(bench.part, "_write", refused)
        await bench.tick(a=95)
        assert await bench.costs() == {"web-1": GIVEN["web-1"]}
        assert bench.status()["error"] == "answered 422"
        monkeypatch.setattr(bench.part, "_write", write)
        assert [await bench.tick(a=95), await bench.tick(RETRY, a=95)] == [0, 1]
        assert (await bench.costs(), bench.status()["error"]) == (GIVEN, None)


async def test_a_follower_writes_nothing_and_a_new_leader_looks_again(cluster) -> None:
    async with running(cluster, *WEB) as bench:
        bench.leads = False
        assert await bench.tick(a=95) == 0
        stop = asyncio.Event()
        task = asyncio.create_task(bench.part.run(stop))
        await asyncio.sleep(0)
        bench.leads = True
        bench.snapshot = bench.scene.tick(
            NOON + bench.now, pods=bench.tracking.known(), cpu={"a": 95.0, "b": 1.0}, mem={}
        )
        await reached(lambda: len(bench.tracking.costed), 2)
        stop.set()
        await task
        assert await bench.costs() == GIVEN


@pytest.mark.parametrize("on", [True, False])
async def test_it_follows_pods_only_where_it_is_on(on: bool) -> None:
    scene = Scene(RULES | {"scale_down": on}, [Node("a")])
    assert scene.rule_set.uses_expected_load is on


async def test_prune_removes_all_of_ours_and_no_other(cluster, caplog) -> None:
    caplog.set_level(logging.INFO)
    pods = [*WEB, owned("own-1", "a", cost="7"), owned("own-2", "a", cost="-9", ours="-3")]
    async with running(cluster, *pods) as bench:
        await bench.tick(a=95)
        before = await bench.costs()
        assert before == GIVEN | {"own-1": ("7", None), "own-2": ("-9", "-3")}
        after = {"own-1": ("7", None), "own-2": ("-9", None)}
        for dry_run, left in ((True, before), (False, after)):
            written = await prune(kubeconfig=cluster.kubeconfig, dry_run=dry_run)
            assert written.failures == []
            assert await bench.costs() == left
        told = [message for message in caplog.messages if "deletion costs" in message]
        of_three = "deletion costs of 3 pods: "
        assert told == [of_three + done for done in ("would be removed", "removed")]


async def test_prune_without_rights_says_what_it_left(tmp_path, caplog) -> None:
    caplog.set_level(logging.INFO)
    async with SimCluster(tmp_path) as cluster, running(cluster, *WEB) as bench:
        await bench.tick(a=95)
        stranger(cluster, tmp_path, {("patch", "pods")})
        failures = (await prune(kubeconfig=cluster.kubeconfig)).failures
        assert [failure.node for failure in failures] == ["default/web-1", "default/web-2"]
        assert "components/scale-down/rbac.yaml" in str(failures[0])
        stranger(cluster, tmp_path, {("list", "pods")})
        assert (await prune(kubeconfig=cluster.kubeconfig)).failures == []
        assert "pods' deletion costs are left alone: may not list pods" in caplog.text
        cluster.server.forbidden.clear()
