"""Just-bound pods are seen as they are bound, on the simulator and on a real API server."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest
from api_support import api_of
from builders import NOON
from cluster import Cluster, SimCluster
from operator_support import until
from pods_support import PODS, create, pod

from dynsched.core.errors import ClusterError
from dynsched.core.formatting import format_time
from dynsched.core.pods import MIN_CPU, MIN_MEMORY
from dynsched.core.recent import RecentPods
from dynsched.kube.pods import PodWatch
from dynsched.kube.stream import StreamingApi
from dynsched.sim.nodes import make_node

MIB = 2.0**20


class Bound(NamedTuple):
    """All pods that were bound to one node and have not ended."""

    pods: int
    cpu: float
    memory: float


def sums(recent: RecentPods, now: float) -> dict[str, Bound]:
    """By node."""
    found: dict[str, Bound] = {}
    for one, _, ended in recent.pods(now):
        if ended is None:
            before = found.get(one.node, Bound(0, 0.0, 0.0))
            found[one.node] = Bound(
                before.pods + 1, before.cpu + one.cpu, before.memory + one.memory
            )
    return found


def ends(recent: RecentPods, now: float = 0.0) -> list[str]:
    """The uids of the pods that ended."""
    return [one.uid for one, _, ended in recent.pods(now) if ended is not None]


@asynccontextmanager
async def watching(cluster: Cluster) -> AsyncIterator[tuple[RecentPods, PodWatch]]:
    bound, stop = RecentPods(), asyncio.Event()
    async with api_of(cluster.kubeconfig, StreamingApi) as api:
        watch = PodWatch(api, bound)
        task = asyncio.create_task(watch.run(stop))
        try:
            yield bound, watch
        finally:
            stop.set()
            async with asyncio.timeout(5):
                await task


async def seen(bound: RecentPods, **expected: Bound) -> None:
    async def fits() -> bool:
        return sums(bound, time.monotonic()) == expected

    try:
        await until(fits, "the pods are seen", seconds=5)
    except AssertionError:
        assert sums(bound, time.monotonic()) == expected


async def started(cluster: Cluster, bound: RecentPods) -> None:
    """Wait until the watch sees what happens: a pod of its own, made again and again."""
    for number in range(100):
        name = f"probe-{number}"
        await create(cluster, pod(name, "probe"))
        await asyncio.sleep(0.05)
        await cluster.delete(f"{PODS}/{name}", {"gracePeriodSeconds": 0})
        if "probe" in sums(bound, time.monotonic()):
            break

    async def forgotten() -> bool:
        return not sums(bound, time.monotonic())

    await until(forgotten, "the probes are gone", seconds=5)


async def test_a_pod_counts_from_its_binding_on_and_not_before(cluster: Cluster) -> None:
    await cluster.create_node(make_node("a", 0))
    await create(cluster, pod("old", "a"))
    async with watching(cluster) as (bound, watch):
        await started(cluster, bound)
        await create(cluster, pod("waiting", cpu="500m", memory="64Mi"))
        await create(cluster, pod("placed", "a", cpu="2"))
        await seen(bound, a=Bound(1, 2.0, MIN_MEMORY))
        await cluster.delete(f"{PODS}/placed", {"gracePeriodSeconds": 0})
        await seen(bound)
        assert watch.error is None


async def test_a_pod_that_is_deleted_or_finishes_is_seen_to_end(cluster: Cluster) -> None:
    await cluster.create_node(make_node("a", 0))
    made = {name: await create(cluster, pod(name, "a")) for name in ("deleted", "finished")}
    async with watching(cluster) as (bound, _):
        await started(cluster, bound)
        begun = set(ends(bound, time.monotonic()))
        await cluster.delete(f"{PODS}/deleted", {"gracePeriodSeconds": 0})
        finished = {"exitCode": 0, "finishedAt": format_time(time.time())}
        status = {
            "phase": "Succeeded",
            "containerStatuses": [
                {
                    "name": "c",
                    "image": "i",
                    "imageID": "i",
                    "ready": False,
                    "restartCount": 0,
                    "state": {"terminated": finished},
                }
            ],
        }
        await cluster.patch(f"{PODS}/finished/status", {"status": status})
        expected = {body["metadata"]["uid"] for body in made.values()}

        async def ended() -> bool:
            return set(ends(bound, time.monotonic())) - begun == expected

        await until(ended, "both have ended", seconds=5)


async def test_running_pods_are_counted_by_pages_and_kept_up(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dynsched.kube.pods._PAGE", 3)
    await cluster.create_node(make_node("a", 0))
    for number in range(8):
        name = f"p{number}"
        await create(cluster, pod(name, "a" if number else None))
        if number != 1:  # the one waits for a node, and the other is starting
            await cluster.patch(f"{PODS}/{name}/status", {"status": {"phase": "Running"}})
    async with watching(cluster) as (bound, watch):

        async def counted() -> bool:
            return watch.running is not None

        await until(counted, "they are counted", seconds=5)
        assert watch.running == 6
        await started(cluster, bound)
        await create(cluster, pod("more", "a"))

        async def one_more() -> bool:
            return watch.running == 7

        await until(one_more, "one more runs", seconds=5)


async def test_a_pod_that_is_bound_is_seen(cluster: Cluster) -> None:
    await cluster.create_node(make_node("a", 0))
    async with watching(cluster) as (bound, _):
        await started(cluster, bound)
        await create(cluster, pod("waiting", cpu="500m", memory="64Mi"))
        target = {"kind": "Node", "name": "a"}
        binding = {"metadata": {"name": "waiting"}, "target": target}
        _ = (await cluster.post(f"{PODS}/waiting/binding", binding)).ok
        await seen(bound, a=Bound(1, 0.5, 64 * MIB))


@pytest.mark.parametrize("how", ["end", "gone", "cut"])
async def test_a_watch_that_ends_is_taken_up_again(sim: SimCluster, how: str) -> None:
    async with watching(sim) as (bound, _):
        await started(sim, bound)
        await create(sim, pod("first", "a", cpu="1"))
        await seen(bound, a=Bound(1, 1.0, MIN_MEMORY))
        assert sim.server.drop_watches(how) == 1

        async def ended() -> bool:
            return sim.server.open_watches == 0

        async def again() -> bool:
            return sim.server.open_watches == 1

        if how == "gone":  # what is bound between the two is not seen, and counts by its load
            await until(ended, "the watch ends")
        await until(again, "the watch is back")
        await create(sim, pod("second", "a", cpu="1"))
        await seen(bound, a=Bound(2, 2.0, 2 * MIN_MEMORY))


async def test_without_rights_it_says_so_and_nothing_ends(sim: SimCluster) -> None:
    sim.server.forbidden = {("list", "pods"), ("watch", "pods")}
    async with watching(sim) as (bound, watch):

        async def told() -> bool:
            return watch.error is not None

        await until(told, "the trouble is told")
        assert "may not list pods" in (watch.error or "")
        assert "kubectl apply -k manifests/base" in (watch.error or "")
        assert sums(bound, 0.0) == {}


async def test_an_outage_is_waited_out(sim: SimCluster) -> None:
    async with watching(sim) as (bound, watch):
        await started(sim, bound)
        await sim.server.down()

        async def told() -> bool:
            return watch.error is not None

        await until(told, "the trouble is told")
        await sim.server.up()

        async def again() -> bool:
            return sim.server.open_watches == 1

        await until(again, "the watch is back")
        await create(sim, pod("placed", "a", cpu="1"))
        await seen(bound, a=Bound(1, 1.0, MIN_MEMORY))


async def test_after_a_restore_it_sees_again_what_is_bound(cluster: Cluster) -> None:
    """The place that it knows is yet to come again: from there it would be told nothing."""
    backup = await cluster.back_up()
    async with watching(cluster) as (bound, watch):
        await started(cluster, bound)
        for number in range(100):
            await create(cluster, pod(f"before-{number}", "a", cpu="1"))
        await seen(bound, a=Bound(100, 100.0, 100 * MIN_MEMORY))

        await cluster.restore(backup)
        assert (await cluster.get(PODS)).ok["items"] == []
        for number in range(25):  # too few to reach the versions of before
            await create(cluster, pod(f"after-{number}", "b", cpu="1"))
            await asyncio.sleep(0.4)
            if "b" in sums(bound, time.monotonic()):
                break
        else:
            pytest.fail("what is bound is not seen any more")
        assert watch.error is None


async def test_an_answer_that_is_no_list_makes_no_pod_of_before_count(sim: SimCluster) -> None:
    """A watch without a place to begin at tells of every pod that there is."""
    await create(sim, pod("before", "a", cpu="1"))
    body = json.dumps({"metadata": {}, "items": None})
    fault = sim.server.faults.answer(200, body=body, verb="list", resource="pods", times=1)
    async with watching(sim) as (bound, watch):

        async def is_told() -> bool:
            return "answered no list" in str(watch.error)

        await until(is_told, "the answer that is no list is told")
        assert fault.hits == 1
        await started(sim, bound)
        assert "a" not in sums(bound, time.monotonic())


# --- what is looked at of a pod, without a server ---


class OneAnswer(StreamingApi):
    """No connection: the lines are given."""

    def __init__(self) -> None:
        pass


def observed(*events: Any) -> tuple[RecentPods, PodWatch]:
    bound = RecentPods()
    watch = PodWatch(OneAnswer(), bound, clock=lambda: 0.0, wall_clock=lambda: NOON)
    for event in events:
        watch._observe(event if isinstance(event, bytes) else json.dumps(event).encode())
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
        ({"containers": [container(cpu="1500m", memory="1Gi")]}, 1.5, 1024 * MIB),
        ({"containers": [{}, {"resources": None}]}, 2 * MIN_CPU, 2 * MIN_MEMORY),
        ({"containers": [container(cpu=2), container(cpu="1")]}, 3.0, 2 * MIN_MEMORY),
        (
            {"containers": [container(cpu="1")], "initContainers": [container(cpu="4")]},
            4.0,
            MIN_MEMORY,
        ),
        ({"containers": [container(cpu="x", memory="-5")]}, MIN_CPU, MIN_MEMORY),
        ({"containers": [container(cpu="1E99")]}, 1e6, MIN_MEMORY),
        ({"containers": [container(cpu="1")], **container(cpu="8")}, 8.0, MIN_MEMORY),
        ({}, 0.0, 0.0),
    ],
)
def test_what_a_pod_requests(spec: Mapping[str, Any], cpu: float, memory: float) -> None:
    bound, _ = observed(event("ADDED", spec))
    assert sums(bound, 0.0) == {"a": Bound(1, cpu, memory)}


@pytest.mark.parametrize(
    "odd",
    [
        b"{",
        b"[]",
        event("MODIFIED"),
        event("BOOKMARK"),
        event("ADDED", {"nodeName": ""}),
        event("ADDED", uid=""),
        event("ADDED", deletionTimestamp="2026-11-20T12:00:00Z"),
        event("ADDED", {"containers": 5}),
        {**event("ADDED"), "object": None},
    ],
)
def test_what_is_no_just_bound_pod(odd: Any) -> None:
    assert sums(observed(odd)[0], 0.0) == {}


def test_a_pod_that_has_ended_does_not_count() -> None:
    ended = event("ADDED")
    ended["object"]["status"] = {"phase": "Succeeded"}
    assert sums(observed(ended)[0], 0.0) == {}


def ended_pod(ago: float, phase: str = "Succeeded", kind: str = "MODIFIED") -> dict[str, Any]:
    """A pod whose containers finished this many seconds ago, the last of them."""
    found = event(kind)
    states: list[Any] = [
        {"state": {"terminated": {"finishedAt": format_time(NOON - seconds)}}}
        for seconds in (ago, ago + 1000)
    ]
    found["object"]["status"] = {"phase": phase, "containerStatuses": states}
    return found


def failed_pod(*states: Any, kind: str = "MODIFIED") -> bytes:
    """A pod that failed, whose containers are in these states."""
    found = event(kind)
    found["object"]["status"] = {
        "phase": "Failed",
        "containerStatuses": [{"state": state} for state in states],
    }
    return json.dumps(found).encode()


def test_a_container_of_unknown_end_does_not_end_the_watch() -> None:
    """``finishedAt`` is null after an eviction or the loss of a node; it ended the process."""
    unknown = {"terminated": {"reason": "ContainerStatusUnknown", "finishedAt": None}}
    bound, watch = observed(event("ADDED"))
    watch.running = 10
    for _ in range(2):
        watch._observe(failed_pod(unknown))
    assert (ends(bound), watch.running) == (["u"], 9)


def test_a_pod_that_the_kubelet_refused_ends_once() -> None:
    bound, watch = observed(event("ADDED"))
    watch.running = 10
    for kind in ("MODIFIED", "MODIFIED", "DELETED"):
        watch._observe(failed_pod(kind=kind))
    assert (ends(bound), watch.running) == (["u"], 9)


def test_a_pod_whose_node_was_lost_ends_when_it_is_deleted() -> None:
    """Nobody can say any more when its containers ended: they still stand as running."""
    bound, watch = observed()
    watch.running = 10
    for kind in ("MODIFIED", "DELETED"):
        watch._observe(failed_pod({"running": {}}, kind=kind))
    assert (ends(bound), watch.running) == (["u"], 9)


def test_a_deleted_pod_ends() -> None:
    assert ends(observed(event("ADDED"), event("DELETED"))[0]) == ["u"]
    assert ends(observed(event("DELETED"))[0]) == ["u"]


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_finished_pod_ends_once_however_many_events_come(phase: str) -> None:
    events = [ended_pod(2.0, phase)] * 3
    bound, watch = observed()
    watch.running = 10
    for one in [*events, event("DELETED") | {"object": events[0]["object"]}]:
        watch._observe(json.dumps(one).encode())
    assert ends(bound) == ["u"]
    assert bound.sequence == 1
    assert watch.running == 9


def test_a_pod_that_finished_long_ago_and_is_deleted_now_changes_nothing() -> None:
    bound, watch = observed()
    watch.running = 10
    for kind in ("MODIFIED", "DELETED"):
        watch._observe(json.dumps(ended_pod(7200.0, kind=kind)).encode())
    assert (bound.sequence, watch.running) == (0, 10)


def test_how_many_run_is_kept_up() -> None:
    _, watch = observed()
    watch._observe(json.dumps(event("ADDED")).encode())
    assert watch.running is None
    watch.running = 1
    for kind, uid, expected in [
        ("ADDED", "v", 2),
        ("ADDED", "v", 2),
        ("DELETED", "v", 1),
        ("DELETED", "of before", 0),
        ("DELETED", "not counted", 0),
    ]:
        watch._observe(json.dumps(event(kind, uid=uid)).encode())
        assert watch.running == expected


def test_the_place_is_kept() -> None:
    assert observed(event("BOOKMARK", resourceVersion="99"))[1]._version == "99"


def test_an_error_ends_the_watch() -> None:
    with pytest.raises(ClusterError, match="too old"):
        observed({"type": "ERROR", "object": {"kind": "Status", "status": "Failure", "code": 410}})
    with pytest.raises(ClusterError, match="500"):
        observed({"type": "ERROR", "object": {"code": 500, "metadata": {}}})
