"""manifests/components/descheduler with the real descheduler: what it evicts, and what it leaves.

It uses a real API server and its own service account's permissions. Nothing recreates pods here.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
import scenes
from cluster import EnvtestCluster
from descheduler_support import (
    BY_LOAD,
    Descheduler,
    Verdicts,
    install,
    need_descheduler,
)
from envtest import Envtest
from manifest_support import Doc, Kubectl
from operator_support import until
from prometheus_support import Exporter, RealPrometheus
from scenes import NOON
from scheduling_support import PODS, clear, make_pod, replicas

from dynsched.core.nodes import Node
from dynsched.web.node_series import node_series
from dynsched_sim.apiserver.objects import merge_patch
from dynsched_sim.examples import make_node

pytestmark = pytest.mark.thorough

TAINT = {"key": "dynsched.io/pressure", "value": "true", "effect": "PreferNoSchedule"}
MARK = {"metadata": {"labels": {"status": "presure"}}, "spec": {"taints": [TAINT]}}
READY = {"type": "Ready", "status": "True"}
LONG_AGO = {"status": {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}}
LONG_AGO["status"] |= {"conditions": [READY]}
RESERVED = {"key": "example.com/team", "value": "red", "effect": "NoSchedule"}
HOT, UNSURE, COOL = 1.0, 0.5, 0.0


@pytest.fixture(scope="module")
def token(envtest: Envtest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    need_descheduler()
    folder = tmp_path_factory.mktemp("descheduler")
    with Kubectl(envtest.kubeconfig(folder / "kubeconfig")) as kubectl:
        yield install(kubectl)


@dataclass
class Scene:
    """Nodes n0, n1, ... with these verdicts, the hot ones marked, and two pods on each."""

    cluster: EnvtestCluster
    prometheus: Verdicts
    descheduler: Descheduler

    async def set(self, *verdicts: float, pods: int = 2, **details: Any) -> None:
        self.prometheus.show({f"n{number}": value for number, value in enumerate(verdicts)})
        for number, value in enumerate(verdicts):
            body = make_node(f"n{number}", number)
            await self.cluster.create_node(merge_patch(body, MARK) if value == HOT else body)
        names = await replicas(self.cluster, pods * len(verdicts), **details) if pods else []
        for number, name in enumerate(names):
            await self.run_on(name, f"n{number % len(verdicts)}")

    async def run_on(self, pod: str, node: str, path: str = PODS) -> None:
        """Bind the pod and set its status, as if scheduler and kubelet had done it long ago."""
        binding = {"metadata": {"name": pod}, "target": {"kind": "Node", "name": node}}
        _ = (await self.cluster.post(f"{path}/{pod}/binding", binding)).ok
        _ = (await self.cluster.patch(f"{path}/{pod}/status", LONG_AGO)).ok

    async def pods(self) -> dict[str, str]:
        """The node of each pod that is not being deleted."""
        return {
            pod["metadata"]["name"]: pod["spec"]["nodeName"]
            for pod in (await self.cluster.get(PODS)).ok["items"]
            if "deletionTimestamp" not in pod["metadata"]
        }

    async def cycle(self, **how: Any) -> Counter[str]:
        """Run one cycle; return the number of evicted pods per node."""
        before = await self.pods()
        run = await asyncio.to_thread(self.descheduler.cycle, self.prometheus.url, **how)
        gone = before.keys() - (await self.pods()).keys()
        assert sorted(gone) == sorted(run.evicted)
        self.log = run.log
        return Counter(before[name] for name in gone)


@pytest.fixture
async def scene(token: str, envtest: Envtest, tmp_path: Path) -> AsyncIterator[Scene]:
    async with EnvtestCluster(envtest, tmp_path) as cluster, Verdicts() as prometheus:
        yield Scene(cluster, prometheus, Descheduler(need_descheduler(), envtest, token, tmp_path))
        await clear(cluster)


@pytest.mark.parametrize(
    ("verdicts", "moved"),
    [
        # One pod per marked node, none of other nodes.
        ([HOT] * 2 + [COOL] * 4, {"n0": 1, "n1": 1}),
        # An undecided node neither loses pods nor stops evictions elsewhere.
        ([HOT, UNSURE, UNSURE, COOL, COOL], {"n0": 1}),
        ([COOL] * 6, {}),
        ([HOT] * 6, {}),
        ([HOT] * 3 + [UNSURE] * 3, {}),  # all are hot, but only half may be marked
        ([HOT] * 5 + [COOL], {}),
    ],
)
async def test_one_cycle_moves_at_most_one_pod_off_each_marked_node(scene, verdicts, moved) -> None:
    await scene.set(*verdicts)
    assert await scene.cycle() == moved


@pytest.mark.parametrize("fault", ["away", "lacks one"])
async def test_without_a_complete_query_result_nothing_moves(scene: Scene, fault: str) -> None:
    verdicts = [HOT, HOT, COOL, COOL, COOL, COOL]
    await scene.set(*verdicts)
    if fault == "away":
        await scene.prometheus.down()
    else:
        scene.prometheus.show({f"n{n}": value for n, value in enumerate(verdicts[:-1])})
    assert await scene.cycle() == {}
    assert ("unable to find metric entry for n5" in scene.log) is (fault == "lacks one")


def owned(kind: str = "ReplicaSet", uid: str = "u") -> Doc:
    reference = {"apiVersion": "apps/v1", "kind": kind, "name": uid, "uid": uid, "controller": True}
    return {"metadata": {"ownerReferences": [reference]}}


CLAIM = {"name": "c", "persistentVolumeClaim": {"claimName": "c"}}
YOUNG = {"status": {"startTime": "2999-01-01T00:00:00Z"}}
STAY: dict[str, Doc] = {
    "bare": {},
    "alone": owned(uid="alone"),
    "volume": merge_patch(owned(uid="pair"), {"spec": {"volumes": [CLAIM]}}),
    "urgent": merge_patch(owned(uid="pair"), {"spec": {"priorityClassName": "urgent"}}),
    "young": owned(uid="pair"),
    "daemon": owned("DaemonSet", "daemon"),
}


@pytest.mark.parametrize("name", STAY)
async def test_pods_that_must_stay_are_not_evicted(scene: Scene, name: str) -> None:
    await scene.set(HOT, COOL, COOL, pods=0)
    bodies = {name: STAY[name], "second": owned(uid="pair"), "third": owned(uid="daemon")}
    for each, change in bodies.items():
        body = merge_patch(make_pod(each), change)
        if each == "urgent":
            known = {"metadata": {"name": each}, "value": 1_000_000}
            await scene.cluster.post("/apis/scheduling.k8s.io/v1/priorityclasses", known)

        async def created(body: Doc = body) -> bool:
            return (await scene.cluster.post(PODS, body)).status != HTTPStatus.FORBIDDEN

        # It learns of it through a watch.
        await until(created, "the API server knows the PriorityClass")
        await scene.run_on(each, "n0" if each == name else "n1")
    if name == "young":
        _ = (await scene.cluster.patch(f"{PODS}/{name}/status", YOUNG)).ok
    assert await scene.cycle() == {}
    assert "removablePods=0" in scene.log


@pytest.mark.parametrize("taken", ["by requests", "by a soft taint of others"])
async def test_without_room_elsewhere_nothing_moves(scene: Scene, taken: str) -> None:
    """docs/descheduler.md warns of soft taints of others."""
    await scene.set(HOT, COOL, COOL, cpu="1500m" if taken == "by requests" else "100m")
    mild = {"spec": {"taints": [{"key": "example.com/mild", "effect": "PreferNoSchedule"}]}}
    for node in ("n1", "n2"):
        if taken == "by requests":
            full = {"status": {"allocatable": {"cpu": "3"}}}
            _ = (await scene.cluster.patch(f"/api/v1/nodes/{node}/status", full)).ok
        else:
            await scene.cluster.patch_node(node, mild)
    assert await scene.cycle() == {}


async def test_by_load_pods_leave_nodes_above_the_mean_of_the_nodes_that_they_can_use(
    scene: Scene, tmp_path: Path
) -> None:
    """No node is marked. Idle nodes that no pod tolerates, or of unknown load, do not count."""
    await scene.set(*[COOL] * 6)
    places = await scene.pods()
    known = {f"n{number}": load for number, load in enumerate((85.0, 72.0, 40.0, 40.0, 40.0))}
    reserved = {f"r{number}": 2.0 for number in range(6)}
    for number, name in enumerate(reserved):
        body = make_node(name, 6 + number)
        await scene.cluster.create_node(merge_patch(body, {"spec": {"taints": [RESERVED]}}))
    seen = [*map(Node, (*known, "n5")), *(Node(name, taints=(RESERVED,)) for name in reserved)]
    rules = [{"name": "node-cpu", "expr": "x", "resource": "cpu", "threshold": 95}]
    tick = scenes.Scene({"rules": rules}, seen).tick(NOON, node_cpu=known | reserved)
    with Exporter(node_series(tick)) as dynsched:
        job = {"job_name": "dynsched", "static_configs": [{"targets": [dynsched.target]}]}
        with RealPrometheus(tmp_path / "prometheus", [job]) as prometheus:
            await asyncio.to_thread(prometheus.wait_for, "dynsched_node_verdict", 12)
            run = await asyncio.to_thread(scene.descheduler.cycle, prometheus.url, args=BY_LOAD)
    assert sorted(places[name] for name in run.evicted) == ["n0", "n1"]
