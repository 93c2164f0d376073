"""A real kube-scheduler and the real process: every mechanism keeps pods off hot nodes.

The scheduler's configurations are the shipped ones.
"""

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from api_support import api_of
from cluster import NODES, EnvtestCluster
from fake_prometheus import FakePrometheus
from operator_support import Operator, until
from pods_support import create, pod
from scheduling_support import (
    AVOID,
    PODS,
    REPLICA_SETS,
    TAINT,
    dynsched,
    extended,
    make_pod,
    marked,
    placed,
    refusal,
    replicas,
    rules,
    scheduler,
    set_loads,
)

from dynsched.core.load.recent import RecentPods
from dynsched.features.order.ranks import is_full
from dynsched.kube.decode_node import node_of
from dynsched.kube.pod_watch import PodWatch
from dynsched_sim.examples import make_node

pytestmark = pytest.mark.slow

HOT = ("hot-0", "hot-1", "hot-2")
LOADS = dict.fromkeys(HOT, 95.0) | {f"cool-{number}": 23.0 + number for number in range(7)}
COUNT = 20
BURST = 30


@pytest.fixture
async def cluster(envtest, tmp_path) -> AsyncIterator[EnvtestCluster]:
    async with EnvtestCluster(envtest, tmp_path) as empty:
        yield empty
        await empty.delete(REPLICA_SETS)


@pytest.fixture
async def prometheus(cluster) -> AsyncIterator[FakePrometheus]:
    """A Prometheus that has measured three hot nodes and seven cool ones."""
    async with FakePrometheus() as running:
        await set_loads(cluster, running, LOADS)
        yield running


@pytest.fixture
def with_extender(cluster, prometheus, envtest, tmp_path):
    """Run a dynsched that writes nothing, and a scheduler that calls it as in the overlay."""

    @asynccontextmanager
    async def run(content: dict[str, Any], overlay: str = "extender") -> AsyncIterator[Operator]:
        async with dynsched(cluster, prometheus, tmp_path, content, "--dry-run") as operator:
            with scheduler(envtest, extended(overlay, operator.address)):
                yield operator

    return run


def on_hot(counts: Counter[str]) -> int:
    return sum(counts[node] for node in HOT)


async def test_a_mark_keeps_pods_off(cluster, prometheus, envtest, tmp_path) -> None:
    """It keeps off the pods that avoid the label; with a taint, all pods."""
    async with dynsched(cluster, prometheus, tmp_path, rules()) as operator:
        await marked(cluster, len(HOT))
        with scheduler(envtest):
            avoiding = await placed(cluster, await replicas(cluster, COUNT, affinity=AVOID))
        assert on_hot(avoiding) == 0
        assert await operator.stop() == 0
    async with dynsched(cluster, prometheus, tmp_path, rules(mark={"taint": TAINT})):
        await until(lambda: _tainted(cluster), "the taints")
        with scheduler(envtest):
            assert on_hot(await placed(cluster, await replicas(cluster, COUNT))) == 0


async def _tainted(cluster: EnvtestCluster) -> bool:
    nodes = await cluster.list_nodes("status=presure")
    return [len(node["spec"].get("taints", ())) for node in nodes] == [1] * len(HOT)


@pytest.mark.parametrize("method", ["linear", "relative"])
async def test_the_extender_keeps_pods_off_without_a_herd(with_extender, cluster, method) -> None:
    profiles = {"default": {"score": {"load": 1}, "method": method}}
    async with with_extender(rules(extender={"profiles": profiles})):
        counts = await placed(cluster, await replicas(cluster, BURST))
    assert on_hot(counts) == 0
    assert max(counts.values()) <= 2 * BURST / (len(LOADS) - len(HOT))


async def test_the_pods_event_has_the_reason_of_a_reject_and_a_release_retries_the_pod(
    cluster, prometheus, envtest, tmp_path
) -> None:
    """The pod once waited five minutes: the scheduler asked before the release was in effect."""
    prometheus.set(load=dict.fromkeys(LOADS, 91.0))
    content = rules(extender={"reject": ["load"]})
    async with dynsched(cluster, prometheus, tmp_path, content) as operator:
        with scheduler(envtest, extended("extender", operator.address)):
            await marked(cluster, len(LOADS))
            names = await replicas(cluster, 1)
            assert "10 node load high: load > 80" in await refusal(cluster, names[0])
            await asyncio.sleep(2)  # the scheduler's back-off after one attempt is 1 s
            prometheus.set(load=LOADS)
            assert on_hot(await placed(cluster, names)) == 0


async def test_no_pod_is_preempted_on_a_node_that_is_rejected_for_its_load(
    with_extender, cluster, prometheus
) -> None:
    """Every node is full, and preemption helps on the only cool node alone."""
    prometheus.set(load=dict.fromkeys(LOADS, 91.0) | {"cool-3": 25.0})
    for node in LOADS:
        pod = make_pod(f"full-{node}", cpu="6", nodeName=node)
        _ = (await cluster.post(PODS, pod)).ok
    urgent = {"metadata": {"name": "urgent"}, "value": 1000}
    made = await cluster.post("/apis/scheduling.k8s.io/v1/priorityclasses", urgent)
    assert made.status in {201, 409}
    content = rules(extender={"reject": ["load"]})
    async with with_extender(content):
        pod = make_pod("needy", cpu="6", priorityClassName="urgent")
        _ = (await cluster.post(PODS, pod)).ok

        async def victims() -> list[str]:
            pods = (await cluster.get(PODS)).ok["items"]
            leaving = [p for p in pods if "deletionTimestamp" in p["metadata"]]
            return [p["metadata"]["name"] for p in leaving]

        assert await until(victims, "a pod makes room") == ["full-cool-3"]


async def test_pods_are_scheduled_when_dynsched_is_killed(with_extender, cluster) -> None:
    content = rules(extender={"reject": ["load"]})
    async with with_extender(content) as operator:
        before = await placed(cluster, await replicas(cluster, COUNT // 2))
        names = await replicas(cluster, COUNT)  # the scheduler is asking about some of them now
        assert await operator.stop(signal.SIGKILL) == -signal.SIGKILL
        await placed(cluster, names)
        after = await placed(cluster, await replicas(cluster, COUNT))
    assert on_hot(before) == 0
    assert on_hot(after) > 0, "as without dynsched"


async def test_pods_are_scheduled_when_dynsched_hangs(with_extender, cluster) -> None:
    """A pod then waits for httpTimeout, 2 s, twice: for the filter and for the score."""
    async with with_extender(rules()) as operator:
        operator.process.send_signal(signal.SIGSTOP)
        await placed(cluster, await replicas(cluster, 1))


@pytest.mark.parametrize("ignorable", [False, True])
async def test_each_pod_is_bound_once_even_if_others_bind_too(
    cluster, prometheus, envtest, tmp_path, ignorable
) -> None:
    """If errors are ``ignorable``, the scheduler itself binds the pods that dynsched did not."""
    names, flags = [f"burst-{number}" for number in range(20)], ("--bind", "--no-leader-elect")

    async def make(number: int, name: str) -> None:
        _ = (await cluster.post(PODS, make_pod(name))).ok
        if number % 3 == 0:  # somebody else binds it at the same moment, so one of the two is late
            body = {"metadata": {"name": name}, "target": {"kind": "Node", "name": "cool-0"}}
            await cluster.post(f"{PODS}/{name}/binding", body)
        # A new pod of the same name: the scheduler may still be placing the first one.
        elif number % 3 == 1:
            await cluster.delete(f"{PODS}/{name}", {"gracePeriodSeconds": 0})
            _ = (await cluster.post(PODS, make_pod(name))).ok

    async with dynsched(cluster, prometheus, tmp_path, rules(extender={}), *flags) as operator:
        config = extended("extender", operator.address)
        for extender in config["extenders"]:
            extender |= {"bindVerb": "bind", "ignorable": ignorable}
        with scheduler(envtest, config):
            await asyncio.gather(*(make(*each) for each in enumerate(names)))
            await placed(cluster, names)
            _ = (await cluster.post(PODS, make_pod("last"))).ok
            await placed(cluster, ["last"])
    writes = await cluster.writes("pods")
    done = [each for each in writes if (each.subresource, each.status) == ("binding", 201)]
    times = Counter(each.body["metadata"].get("uid") or each.name for each in done)
    assert set(times.values()) == {1}
    assert any(each.user_agent.startswith("dynsched/") for each in done)


async def test_the_order_and_a_scheduler_agree_on_which_nodes_are_full(cluster, envtest) -> None:
    """A scheduler counts every pod that has a node, including a pod that named a node without room
    for it, which no kubelet starts. A pod without requests takes one of the node's pod slots only.
    """
    room = {"cpu": "8", "memory": "8Gi", "pods": "110"}
    of_node = {
        "few-places": (
            room | {"pods": "3"},
            [pod(f"place-{each}", "few-places") for each in "abc"],
        ),
        "too-fat": (room, [pod("fat", "too-fat", cpu="100")]),
        "no-requests": (room, [pod(f"none-{at}", "no-requests") for at in range(60)]),
        "large": (room, [pod("large", "large", cpu="7", memory="64Mi")]),
    }
    for name, (allocatable, pods) in of_node.items():
        node = make_node(name, 0)
        node["status"]["allocatable"] = node["status"]["capacity"] = allocatable
        await cluster.create_node(node)
        await asyncio.gather(*(create(cluster, each) for each in pods))
    with scheduler(envtest):
        for name in of_node:
            chosen = {"nodeSelector": {"kubernetes.io/hostname": name}}
            _ = (await cluster.post(PODS, make_pod(f"on-{name}", **chosen))).ok
        await placed(cluster, ["on-no-requests", "on-large"])
        for name in ("few-places", "too-fat"):
            await refusal(cluster, f"on-{name}")
        for name in ("no-requests", "large"):
            await cluster.delete(f"{PODS}/on-{name}", {"gracePeriodSeconds": 0})
    async with api_of(cluster.kubeconfig) as api:
        watch = PodWatch(api, RecentPods())
        await watch.begin()
    nodes = {name: node_of((await cluster.get(f"{NODES}/{name}")).ok) for name in of_node}
    full = {name for name, node in nodes.items() if is_full(node, watch.counts.requested[name])}
    assert full == {"few-places", "too-fat"}
