"""Pods are seen as they are bound and end, on the simulator and on a real API server."""

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
    """By node: all pods that were bound to it and have not ended."""
    found: dict[str, PodRequestTotals] = {}
    for one, _, ended in recent.pods(now):
        if ended is None:
            pods, cpu, memory = found.get(one.node, PodRequestTotals())
            found[one.node] = PodRequestTotals(pods + 1, cpu + one.cpu, memory + one.memory)
    return found


def ends(recent: RecentPods, now: float = 0.0) -> list[str]:
    """The uids of the pods that ended."""
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
    """Wait until the watch sees what happens: a pod of its own, made again and again."""
    for number in range(100):
        name = f"probe-{number}"
        await create(cluster, pod(name, "probe"))
        await asyncio.sleep(0.05)
        await cluster.delete(f"{PODS}/{name}", {"gracePeriodSeconds": 0})
        if "probe" in sums(bound, time.monotonic()):
            break
    await seen(bound)


async def test_a_pod_counts_from_its_binding_on_and_not_before(cluster: Cluster) -> None:
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


async def test_a_pod_that_is_deleted_or_finishes_is_seen_to_end(cluster: Cluster) -> None:
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


async def test_what_is_counted_of_a_pod_follows_its_changes_and_goes_with_it(cluster) -> None:
    """One that grew and was deleted left its node with -3 CPUs requested, and one that got the
    annotation after its creation left one pod less with the order, until the next list. Each that
    ends is one less, once, whatever it says of its end: clocks may be behind.
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
async def test_a_watch_that_ends_is_taken_up_again(sim: SimCluster, how: str) -> None:
    async with watching(sim) as (bound, _):
        await started(sim, bound)
        await create(sim, pod("first", "a", cpu="1"))
        await seen(bound, a=PodRequestTotals(1, 1.0, MIN_MEMORY))
        sim.server.requests.clear()
        assert sim.server.drop_watches(how) == 1
        # What is bound before it is back is not seen after `gone`, and counts by its load.
        await reached(lambda: [r.verb for r in sim.server.requests].count("watch"), 1)
        await reached(lambda: sim.server.open_watches, 1)
        await create(sim, pod("second", "a", cpu="1"))
        await seen(bound, a=PodRequestTotals(2, 2.0, 2 * MIN_MEMORY))


async def test_without_rights_it_says_so_and_nothing_ends(sim: SimCluster) -> None:
    sim.server.forbidden = {("list", "pods"), ("watch", "pods")}
    async with watching(sim) as (bound, watch):
        await reached(lambda: watch.error is not None, True)
        assert "may not list pods" in (watch.error or "")
        assert "kubectl apply -f manifests/base/rbac.yaml" in (watch.error or "")
        assert sums(bound, 0.0) == {}


@pytest.mark.parametrize(("gap", "is_listed"), [(20.0, False), (3600.0, True)])
async def test_after_a_long_gap_it_begins_anew_with_a_list(sim, gap, is_listed) -> None:
    """The metrics show by then what was bound and ended meanwhile: it counted twice."""
    now = [1000.0]
    await create(sim, pod("before", "a"))
    async with watching(sim, lambda: now[0]) as (_, watch):
        await reached(lambda: (sim.server.open_watches, watch.running), (1, 1))
        await sim.server.down()
        await reached(lambda: watch.error is not None, True)
        now[0] += gap
        sim.server.requests.clear()
        await sim.server.up()
        # Though nothing has happened yet.
        await reached(lambda: (sim.server.open_watches, watch.running, watch.error), (1, 1, None))
        lists = [read for read in sim.server.requests.reads("pods") if read.verb == "list"]
        assert bool(lists) is is_listed


async def test_an_answer_that_is_no_list_makes_no_pod_of_before_count(sim, caplog) -> None:
    """A watch without a place to begin at tells of every pod that there is."""
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
def test_odd_requests(spec: Mapping[str, Any], cpu: float, memory: float) -> None:
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
def test_what_is_no_just_bound_pod(odd: Any) -> None:
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
def test_a_pod_ends_if_it_ever_ran_and_else_was_never_there(status, has_run) -> None:
    """Who may create pods could otherwise make a hot node look empty: with 30 pods whose image
    there is not, bound to it, waited for until they count no longer, and deleted.
    """
    gone = event("DELETED")
    gone["object"]["status"] = status
    assert ends(observed(gone)[0]) == (["u"] if has_run else [])
    bound, _ = observed(event("ADDED"), gone)
    assert ends(bound) == (["u"] if has_run else [])
    assert sums(bound, 0.0) == {}
