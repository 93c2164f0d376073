"""The pod watch sees pods that are bound or end, on the simulator and on a real API server."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from api_support import api_of
from cluster import Cluster, EnvtestCluster, SimCluster
from pods_support import PODS, STARTED, create, pod, reached, start

from dynsched.core.load.pods import MIN_CPU, MIN_MEMORY, PodRequestTotals
from dynsched.core.load.recent import RecentPods
from dynsched.kube.pod_watch import PodWatch
from dynsched.rules.keys import ORDER_ANNOTATION
from dynsched_sim.examples import make_node

MIB = 2.0**20


AN_HOUR_AGO = {
    key: (datetime.now(UTC) - timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    for key in ("startedAt", "finishedAt")
}


def sums(recent: RecentPods, now: float) -> dict[str, PodRequestTotals]:
    """Totals per node over the pods that were bound to it and have not ended."""
    found: dict[str, PodRequestTotals] = {}
    for one, _, ended in recent.pods(now):
        if ended is None:
            pods, cpu, memory = found.get(one.node, PodRequestTotals())
            found[one.node] = PodRequestTotals(pods + 1, cpu + one.cpu, memory + one.memory)
    return found


def ends(recent: RecentPods, now: float = 0.0) -> list[str]:
    """The UIDs of the pods that ended."""
    return [one.uid for one, _, ended in recent.pods(now) if ended is not None]


@asynccontextmanager
async def watching(
    cluster: Cluster, clock: Callable[[], float] = time.monotonic
) -> AsyncIterator[tuple[RecentPods, PodWatch]]:
    bound, stop = RecentPods(), asyncio.Event()
    async with api_of(cluster.kubeconfig) as api:
        watch = PodWatch(api, bound, clock=clock)
        task = asyncio.create_task(watch.run(stop))
        try:
            yield bound, watch
        finally:
            stop.set()
            async with asyncio.timeout(60):
                await task


async def seen(bound: RecentPods, **expected: PodRequestTotals) -> None:
    await reached(lambda: sums(bound, time.monotonic()), expected)


async def started(cluster: Cluster, bound: RecentPods) -> None:
    """Wait until the watch works: create a probe pod again and again until it is seen."""
    for number in range(100):
        name = f"probe-{number}"
        await create(cluster, pod(name, "probe"))
        await asyncio.sleep(0.05)
        await cluster.delete(f"{PODS}/{name}", {"gracePeriodSeconds": 0})
        if "probe" in sums(bound, time.monotonic()):
            break
    await seen(bound)


async def test_a_pod_counts_only_after_its_binding(cluster: Cluster) -> None:
    await cluster.create_node(make_node("a", 0))
    await create(cluster, pod("old", "a"))
    async with watching(cluster) as (bound, watch):
        await started(cluster, bound)
        await create(cluster, pod("waiting", cpu="500m", memory="64Mi"))
        await create(cluster, pod("placed", "a", cpu="2"))
        await seen(bound, a=PodRequestTotals(1, 2.0, MIN_MEMORY))
        await cluster.delete(f"{PODS}/placed", {"gracePeriodSeconds": 0})
        await seen(bound)
        target = {"kind": "Node", "name": "a"}
        binding = {"metadata": {"name": "waiting"}, "target": target}
        _ = (await cluster.post(f"{PODS}/waiting/binding", binding)).ok
        await seen(bound, a=PodRequestTotals(1, 0.5, 64 * MIB))
        assert watch.error is None


async def test_a_pod_that_is_deleted_or_finishes_has_ended(cluster: Cluster) -> None:
    await cluster.create_node(make_node("a", 0))
    made = {name: await create(cluster, pod(name, "a")) for name in ("deleted", "finished")}
    for name in made:
        await start(cluster, name)
    async with watching(cluster) as (bound, _):
        await started(cluster, bound)
        begun = set(ends(bound, time.monotonic()))
        await cluster.delete(f"{PODS}/deleted", {"gracePeriodSeconds": 0})
        await cluster.patch(f"{PODS}/finished/status", {"status": {"phase": "Succeeded"}})
        expected = {body["metadata"]["uid"] for body in made.values()}
        await reached(lambda: set(ends(bound, time.monotonic())) - begun, expected)


async def test_the_counts_of_a_pod_follow_its_changes_and_its_end(cluster) -> None:
    """A pod that was resized and then deleted left its node with -3 CPUs requested. A pod that got
    the annotation after its creation left one pod with the order too few. Both errors lasted until
    the next list. A pod that ends is subtracted once, whatever time of its end it has, because
    clocks may be behind.
    """
    await cluster.create_node(make_node("a", 0))
    for name in ("stays", "grows", "failed"):
        await create(cluster, pod(name, "a", cpu="1", memory="64Mi"))
    await create(cluster, pod("waits", None))
    await cluster.patch(f"{PODS}/failed/status", {"status": {"phase": "Failed"}})
    ordered = {"metadata": {"annotations": {ORDER_ANNOTATION: "2026-11-20T12:00:00Z"}}}
    larger = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "4", "memory": "64Mi"}}}
    async with watching(cluster) as (bound, watch):
        await started(cluster, bound)

        async def counted(pods: int, cpu: float = 0.0, memory: float = 0.0, *, order: int) -> None:
            totals = {"a": PodRequestTotals(pods, cpu, memory * MIB)} if pods else {}
            await reached(
                lambda: (watch.running, watch.counts.requested, watch.counts.with_order),
                (pods, totals, order),
            )

        await counted(2, 2.0, 128, order=0)
        path = f"{PODS}/grows" + ("/resize" if isinstance(cluster, EnvtestCluster) else "")
        _ = (await cluster.patch(path, {"spec": {"containers": [larger]}})).ok
        _ = (await cluster.patch(f"{PODS}/stays", ordered)).ok
        await counted(2, 5.0, 128, order=1)
        await create(cluster, pod("without", "a"))
        await counted(3, 5.0, 128, order=1)
        for name in ("without", "grows", "failed"):
            await cluster.delete(f"{PODS}/{name}", {"gracePeriodSeconds": 0})
        await counted(1, 1.0, 64, order=1)
        ended = {**STARTED, "state": {"terminated": {"exitCode": 0, **AN_HOUR_AGO}}}
        status = {"phase": "Succeeded", "containerStatuses": [ended]}
        for _ in range(2):
            await cluster.patch(f"{PODS}/stays/status", {"status": status})
        await cluster.delete(f"{PODS}/stays", {"gracePeriodSeconds": 0})
        await counted(0, order=0)


@pytest.mark.parametrize("how", ["end", "gone", "cut"])
async def test_a_watch_that_ends_is_restarted(sim: SimCluster, how: str) -> None:
    async with watching(sim) as (bound, _):
        await started(sim, bound)
        await create(sim, pod("first", "a", cpu="1"))
        await seen(bound, a=PodRequestTotals(1, 1.0, MIN_MEMORY))
        sim.server.requests.clear()
        assert sim.server.drop_watches(how) == 1
        # After `gone`, a pod that is bound before the watch is open is not seen. It counts once
        # metrics show its load.
        await reached(lambda: [r.verb for r in sim.server.requests].count("watch"), 1)
        await reached(lambda: sim.server.open_watches, 1)
        await create(sim, pod("second", "a", cpu="1"))
        await seen(bound, a=PodRequestTotals(2, 2.0, 2 * MIN_MEMORY))


async def test_without_permission_the_watch_reports_it_and_keeps_running(sim: SimCluster) -> None:
    sim.server.forbidden = {("list", "pods"), ("watch", "pods")}
    async with watching(sim) as (bound, watch):
        await reached(lambda: watch.error is not None, True)
        assert "may not list pods" in (watch.error or "")
        assert "kubectl apply -f manifests/base/rbac.yaml" in (watch.error or "")
        assert sums(bound, 0.0) == {}


@pytest.mark.parametrize(("gap", "is_listed"), [(20.0, False), (3600.0, True)])
async def test_after_a_long_gap_the_watch_starts_with_a_new_list(sim, gap, is_listed) -> None:
    """By then the metrics show the pods that were bound or ended in the gap. They counted twice."""
    now = [1000.0]
    await create(sim, pod("before", "a"))
    async with watching(sim, lambda: now[0]) as (_, watch):
        await reached(lambda: (sim.server.open_watches, watch.running), (1, 1))
        await sim.server.down()
        await reached(lambda: watch.error is not None, True)
        now[0] += gap
        sim.server.requests.clear()
        await sim.server.up()
        # The watch has recovered although there was no event yet.
        await reached(lambda: (sim.server.open_watches, watch.running, watch.error), (1, 1, None))
        lists = [read for read in sim.server.requests.reads("pods") if read.verb == "list"]
        assert bool(lists) is is_listed


async def test_existing_pods_do_not_count_after_an_answer_that_is_no_list(sim, caplog) -> None:
    """A watch without a resourceVersion starts with events for all existing pods."""
    await create(sim, pod("before", "a", cpu="1"))
    body = json.dumps({"metadata": {}, "items": None})
    fault = sim.server.faults.answer(200, body=body, verb="list", resource="pods", times=1)
    async with watching(sim) as (bound, _):
        await reached(lambda: "answered no list" in caplog.text, True)
        assert fault.hits == 1
        await started(sim, bound)
        assert "a" not in sums(bound, time.monotonic())


def observed(*events: Any) -> tuple[RecentPods, PodWatch]:
    bound = RecentPods()
    watch = PodWatch(None, bound, clock=lambda: 0.0)  # type: ignore[arg-type]
    for each in events:
        watch.take(each if isinstance(each, bytes) else json.dumps(each).encode())
    return bound, watch


def event(kind: str, spec: Mapping[str, Any] | None = None, **meta: Any) -> dict[str, Any]:
    metadata = {"uid": "u", "resourceVersion": "7", **meta}
    return {
        "type": kind,
        "object": {"metadata": metadata, "spec": {"nodeName": "a", **(spec or {})}},
    }


def container(**requests: Any) -> dict[str, Any]:
    return {"resources": {"requests": requests}}


@pytest.mark.parametrize(
    ("spec", "cpu", "memory"),
    [
        ({"containers": [container(cpu="x", memory="-5")]}, MIN_CPU, MIN_MEMORY),
        ({"containers": [container(cpu="1E99")]}, 1e6, MIN_MEMORY),
        ({}, 0.0, 0.0),
    ],
)
def test_invalid_or_huge_requests_are_replaced(
    spec: Mapping[str, Any], cpu: float, memory: float
) -> None:
    bound, _ = observed(event("ADDED", spec))
    assert sums(bound, 0.0) == {"a": PodRequestTotals(1, cpu, memory)}


@pytest.mark.parametrize(
    "odd",
    [
        b"{",
        b"[]",
        event("MODIFIED"),
        event("BOOKMARK"),
        event("ADDED", {"nodeName": ""}),
        event("ADDED", uid=""),
        event("ADDED", {"containers": 5}),
        {**event("ADDED"), "object": None},
    ],
)
def test_an_event_that_is_not_a_just_bound_pod_is_ignored(odd: Any) -> None:
    assert sums(observed(odd)[0], 0.0) == {}


RAN = {"startedAt": "2026-11-20T11:00:00Z"}
NOT_STARTED = {"startedAt": "1970-01-01T00:00:00Z", "reason": "StartError"}


@pytest.mark.parametrize(
    ("status", "has_run"),
    [
        ({"containerStatuses": [{"state": {"running": RAN}}]}, True),
        ({"containerStatuses": [{"state": {}}, {"state": {"terminated": RAN}}]}, True),
        ({"containerStatuses": [{"lastState": {"terminated": RAN}}]}, True),
        ({"initContainerStatuses": [{"state": {"running": RAN}}]}, True),
        ({"containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff"}}}]}, False),
        ({"containerStatuses": [{"lastState": {"terminated": NOT_STARTED}}]}, False),
        ({"containerStatuses": [{"state": {"terminated": {"startedAt": None}}}]}, False),
        ({"containerStatuses": None}, False),
        ({}, False),
    ],
)
def test_a_deleted_pod_counts_as_ended_only_if_it_ever_ran(status, has_run) -> None:
    """Otherwise anyone who may create pods could make a hot node look empty: bind 30 pods with a
    missing image to it, wait until they no longer count, and delete them.
    """
    gone = event("DELETED")
    gone["object"]["status"] = status
    assert ends(observed(gone)[0]) == (["u"] if has_run else [])
    bound, _ = observed(event("ADDED"), gone)
    assert ends(bound) == (["u"] if has_run else [])
    assert sums(bound, 0.0) == {}
