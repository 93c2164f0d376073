"""Two replicas, as processes of their own: one writes at a time, whatever becomes of the other."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from itertools import groupby
from pathlib import Path
from typing import Any, Self

import pytest
from cluster import Cluster, SimCluster, Write
from fake_prometheus import FakePrometheus
from operator_support import Operator, until
from replica_support import (
    AGENT,
    INTERVAL,
    TIMES,
    is_marked,
    leads,
    replica,
    status,
    writer,
)

from dynsched.sim.nodes import make_node

pytestmark = pytest.mark.slow


@pytest.fixture
async def prometheus() -> AsyncIterator[FakePrometheus]:
    async with FakePrometheus() as running:
        yield running


class Pair:
    """Two replicas on one cluster: the one that leads, and the other."""

    def __init__(self, cluster: Cluster, prometheus: FakePrometheus, folder: Path) -> None:
        self.cluster = cluster
        self.leader, self.follower = (replica(cluster, prometheus, folder) for _ in range(2))
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        try:
            await self._stack.enter_async_context(self.leader)
            await until(lambda: leads(self.leader), "the first one leads")
            await self._stack.enter_async_context(self.follower)
            await self.follower.until_ready()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def writes(self) -> list[Write]:
        """What dynsched wrote to nodes, whatever it was answered."""
        return [write for write in await self.cluster.writes() if AGENT.match(write.user_agent)]

    async def reigns(self) -> list[str]:
        """Who wrote, one after the other."""
        return [name for name, _ in groupby(map(writer, await self.writes()))]


async def leader(operator: Operator) -> Any:
    """Whom it takes for the leader."""
    return (await status(operator)).get("leader")


async def leader_metric(operator: Operator) -> str:
    _, text = await operator.get("/metrics")
    found = re.search(r"^dynsched_leader (\S+)$", text, re.MULTILINE)
    return found[1] if found else ""


@pytest.fixture
async def pair(cluster: Cluster, prometheus: FakePrometheus, tmp_path: Path) -> AsyncIterator[Pair]:
    for index, name in enumerate("ab"):
        await cluster.create_node(make_node(name, index))
    prometheus.set(load={"a": 95, "b": 5})
    async with Pair(cluster, prometheus, tmp_path) as running:
        await until(lambda: is_marked(cluster, "a"), "the hot one is marked")
        yield running


async def test_one_writes_both_serve_and_a_stop_hands_over(
    cluster: Cluster, prometheus: FakePrometheus, pair: Pair
) -> None:
    first = await leader(pair.leader)
    await until(lambda: _agree(pair, first), "both know who leads")
    assert [await leads(pair.leader), await leads(pair.follower)] == [True, False]
    assert [await leader_metric(each) for each in (pair.leader, pair.follower)] == ["1.0", "0.0"]
    for each in (pair.leader, pair.follower):
        assert await each.get("/status") == (200, "ok")
        nodes = await each.nodes()
        assert nodes["node_names"] == ["a"]
        assert [node["name"] for node in nodes["nodes"] if node["pressured"]] == ["a"]

    prometheus.set(load={"a": 5, "b": 95})
    await until(lambda: is_marked(cluster, "b"), "the other one is marked")
    assert await pair.reigns() == [first]

    prometheus.set(load={"a": 95, "b": 95})
    began = time.monotonic()
    assert await pair.leader.stop() == 0
    await until(lambda: _reigns(pair, 2), "the other one writes")
    assert time.monotonic() - began < 3
    await until(lambda: is_marked(cluster, "a", "b"), "both are marked")
    second = await leader(pair.follower)
    assert await pair.reigns() == [first, second]
    assert await leader_metric(pair.follower) == "1.0"
    assert "gave up the Lease default/dynsched" in pair.leader.log
    lease = await cluster.get_lease("dynsched")
    assert lease is not None
    assert (lease["spec"]["holderIdentity"], lease["spec"]["leaseTransitions"]) == (second, 1)


async def _agree(pair: Pair, name: str) -> bool:
    return {await leader(pair.leader), await leader(pair.follower)} == {name}


async def _reigns(pair: Pair, number: int) -> bool:
    return len(await pair.reigns()) >= number


async def test_when_the_leader_is_killed_the_other_writes_when_its_lease_has_run_out(
    cluster: Cluster, prometheus: FakePrometheus, pair: Pair
) -> None:
    first = await leader(pair.leader)

    pair.leader.process.kill()
    killed = time.monotonic()
    prometheus.set(load={"a": 5, "b": 95})
    await until(lambda: _reigns(pair, 2), "the other one writes", seconds=40)
    passed = time.monotonic() - killed

    # The wait begins when the last renewal is seen, up to a look after it was made.
    assert passed < TIMES.duration + TIMES.renew_every + INTERVAL + 1
    assert passed > TIMES.duration - TIMES.renew_every - 0.5
    await until(lambda: is_marked(cluster, "b"), "what is hot now is marked")
    assert await pair.reigns() == [first, await leader(pair.follower)]


async def test_a_leader_that_was_stopped_for_longer_than_its_lease_does_not_write_when_it_wakes(
    cluster: Cluster, prometheus: FakePrometheus, pair: Pair
) -> None:
    first = await leader(pair.leader)
    pair.leader.process.send_signal(signal.SIGSTOP)
    prometheus.set(load={"a": 5, "b": 95})  # what it would write when it wakes
    await until(lambda: leads(pair.follower), "the other one leads", seconds=40)
    second = await leader(pair.follower)
    await until(lambda: is_marked(cluster, "b"), "and writes")

    prometheus.set(load={"a": 95, "b": 95})
    pair.leader.process.send_signal(signal.SIGCONT)
    await until(lambda: _follows(pair.leader, second), "it knows that it leads no more")
    await until(lambda: is_marked(cluster, "a", "b"), "the other one goes on")
    prometheus.set(load={"a": 5, "b": 5})
    await until(lambda: is_marked(cluster), "and on")

    assert await pair.reigns() == [first, second]
    assert await leader_metric(pair.leader) == "0.0"
    assert await pair.leader.get("/status") == (200, "ok")


async def _follows(operator: Operator, whom: str) -> bool:
    found = await status(operator)
    return (found["leading"], found["leader"]) == (False, whom)


async def test_what_a_leader_had_yet_to_write_when_it_was_stopped_is_never_written(
    sim: SimCluster, prometheus: FakePrometheus, tmp_path: Path
) -> None:
    names = [f"n{index:02}" for index in range(60)]
    for index, name in enumerate(names):
        await sim.create_node(make_node(name, index))
    async with Pair(sim, prometheus, tmp_path) as pair:
        first = await leader(pair.leader)
        slow = sim.server.faults.delay(1.0, resource="nodes", verb="patch")
        prometheus.set(load=dict.fromkeys(names, 95))
        await until(lambda: _under_way(sim), "many writes are under way")
        pair.leader.process.send_signal(signal.SIGSTOP)
        await until(lambda: leads(pair.follower), "the other one leads", seconds=40)
        await until(lambda: is_marked(sim, *names), "it has written the rest")
        slow.remove()
        second = await leader(pair.follower)
        before = len(await pair.writes())
        assert {writer(write) for write in (await pair.writes())} == {first, second}

        pair.leader.process.send_signal(signal.SIGCONT)
        await until(lambda: _follows(pair.leader, second), "it knows that it leads no more")
        tick = (await status(pair.leader))["tick"]["number"]
        await until(lambda: _ticked(pair.leader, tick + 3), "it goes on evaluating")

        assert await pair.reigns() == [first, second]
        assert len(await pair.writes()) == before


async def _under_way(sim: SimCluster) -> bool:
    return len(sim.server.requests.writes("nodes")) >= 60 + 20  # they were created, too


async def _ticked(operator: Operator, number: int) -> bool:
    found: int = (await status(operator))["tick"]["number"]
    return found >= number


async def test_a_dry_run_takes_part_in_no_election(
    cluster: Cluster, prometheus: FakePrometheus, tmp_path: Path
) -> None:
    await cluster.create_node(make_node("a", 0))
    prometheus.set(load={"a": 95})
    async with replica(cluster, prometheus, tmp_path, "--dry-run") as dry:
        await dry.until_ready()
        assert (await dry.nodes())["nodes"][0]["pressured"]
        assert await cluster.get_lease("dynsched") is None
        assert (await leads(dry), await leader_metric(dry)) == (False, "0.0")
    assert not [write for write in await cluster.writes() if AGENT.match(write.user_agent)]
