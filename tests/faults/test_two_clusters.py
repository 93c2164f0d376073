"""Replicas of two clusters that write to one API server: one of them has the wrong kubeconfig."""

from __future__ import annotations

import itertools
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from cluster import Cluster, Write
from fake_loop import Bench
from fake_prometheus import FakePrometheus
from operator_support import Operator, until
from replica_support import AGENT, replica, status

from dynsched.core.disputes import DIFFERS, PUT_ON, TAKEN_OFF
from dynsched.sim.nodes import make_node


@asynccontextmanager
async def two(cluster: Cluster, folder: Path) -> AsyncIterator[tuple[Operator, Operator]]:
    """The replica of this cluster, whose Prometheus finds a hot; then the one that should be at
    work elsewhere, whose Prometheus finds b hot and whose Lease is another."""
    for index, name in enumerate("ab"):
        await cluster.create_node(make_node(name, index))
    async with FakePrometheus() as ours, FakePrometheus() as theirs:
        ours.set(load={"a": 95, "b": 5})
        theirs.set(load={"a": 5, "b": 95})
        async with (
            replica(cluster, ours, folder) as first,
            replica(cluster, theirs, folder, "--lease-namespace", "kube-system") as second,
        ):
            yield first, second


async def writes(cluster: Cluster) -> list[Write]:
    return [write for write in await cluster.writes() if AGENT.match(write.user_agent)]


async def disputes(operator: Operator) -> dict[str, str]:
    found = (await status(operator)).get("disputes") or {"first": []}
    return {entry["node"]: entry["dispute"] for entry in found["first"]}


@pytest.mark.slow
async def test_with_two_leases_both_write_and_say_so(cluster: Cluster, tmp_path: Path) -> None:
    async with two(cluster, tmp_path) as (first, second):

        async def both_tell() -> bool:
            found = [await disputes(each) for each in (first, second)]
            return found == [{"a": TAKEN_OFF, "b": PUT_ON}, {"b": TAKEN_OFF, "a": PUT_ON}]

        await until(both_tell, "both say that somebody else decides on the same marks")
        for each in (first, second):
            assert (await each.get("/status"))[0] == 200
            metrics = (await each.get("/metrics"))[1]
            assert re.search(r"^dynsched_disputed_nodes 2\.0$", metrics, re.MULTILINE)
        begun = first.log
        told = len(await writes(cluster))

        async def it_goes_on() -> bool:
            return len(await writes(cluster)) > told + 12

        await until(it_goes_on, "the dispute goes on")
        assert len(first.log.splitlines()) <= len(begun.splitlines()) + 2, "no line a tick"
        assert first.log.count("is another dynsched running here") == 2

        async def events() -> set[str]:
            found = await cluster.list_events()
            return {e["involvedObject"]["name"] for e in found if e["reason"] == "MarkDisputed"}

        async def both_nodes() -> bool:
            return await events() == {"a", "b"}

        await until(both_nodes, "an Event is on each of them")


async def test_two_leaders_that_saw_other_moments_say_so_between_the_two_lines() -> None:
    """Two installations with the same rules and the same Prometheus."""
    first, second = Bench("a"), Bench("a")
    second.cluster.stored = first.cluster.stored
    for load, seen in ((75.0, 75.0), (81.0, 79.0)):
        told = [await first.tick(cpu={"a": load}), await second.tick(cpu={"a": seen})]
    while not all(each.disputes for each in told):
        told = [await each.tick(cpu={"a": 75.0}) for each in (first, second)]
        assert len(first.snapshots) < 10
    assert [each.disputes for each in told] == [{"a": TAKEN_OFF}, {"a": PUT_ON}]


async def test_a_follower_that_would_decide_otherwise_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = itertools.count(step=DIFFERS / 8)
    bench = Bench("a", "b", monotonic=lambda: next(clock))
    bench.leadership.may_write = False
    bench.leadership.leader = "another"
    while not (snapshot := await bench.tick(cpu={"a": 91.0, "b": 5.0})).disputes:
        assert len(bench.snapshots) < 10
    assert snapshot.disputes["a"].startswith("this replica would mark it, and another, who leads,")
    await bench.tick(cpu={"a": 92.0, "b": 5.0})
    assert sum("who leads, does not" in message for message in caplog.messages) == 1
    assert (bench.cluster.writes, bench.events.posted) == ([], [])

    assert (await bench.tick(cpu={"a": 5.0, "b": 5.0})).disputes == {}


async def test_what_somebody_takes_off_each_time_is_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench("a")
    caplog.set_level("INFO")
    for _ in range(20):
        stored = bench.cluster.stored["a"]
        bench.cluster.stored["a"] = type(stored)(
            "a", uid="a", resource_version=str(int(stored.resource_version) + 1)
        )
        snapshot = await bench.tick(cpu={"a": 91.0})
        assert bench.label("a") == "presure"
    assert snapshot.disputes == {"a": TAKEN_OFF}
    assert [reason for _, reason, *_ in bench.events.posted].count("MarkDisputed") == 1
    assert [m for m in caplog.messages if m.startswith("node a: ")] == [f"node a: {TAKEN_OFF}"]
    assert caplog.messages.count("mark node a: cpu 91 > 80") == 3

    for _ in range(2):  # the rules change, and it begins anew
        bench.rules_file.next_content = {"rules": [{"name": "cpu", "expr": "cpu", "threshold": 81}]}
        assert (await bench.tick(cpu={"a": 91.0})).disputes == {}
