"""Two replicas as separate processes: only one writes at a time, whatever happens to the other."""

import re
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import groupby
from pathlib import Path

import pytest
from cluster import Cluster, SimCluster, Write
from fake_prometheus import FakePrometheus
from operator_support import Operator, until
from replica_support import is_marked, leads, metric, replica, some_ticks, status, until_status

pytestmark = pytest.mark.slow

AGENT = re.compile(r"dynsched/\S+ \((\S+)\)")


def writer(write: Write) -> str:
    """The identity of the process that sent the write."""
    found = AGENT.fullmatch(write.user_agent)
    assert found is not None, write.user_agent
    return found[1]


@asynccontextmanager
async def pair(
    cluster: Cluster, ours: FakePrometheus, theirs: FakePrometheus, folder: Path
) -> AsyncIterator[tuple[Operator, Operator]]:
    """The leader and the follower, each with its own Prometheus."""
    first, second = (replica(cluster, prometheus, folder) for prometheus in (ours, theirs))
    async with first:
        await until(lambda: leads(first), "the first one leads")
        async with second:
            await second.until_ready()
            yield first, second


async def writes(cluster: Cluster) -> list[Write]:
    """All write requests of dynsched, whatever their response."""
    return [write for write in await cluster.writes() if AGENT.match(write.user_agent)]


async def reigns(cluster: Cluster) -> list[str]:
    """The identities of the writers, in sequence."""
    return [name for name, _ in groupby(map(writer, await writes(cluster)))]


async def test_one_replica_writes_both_serve_and_a_stop_hands_over(cluster, tmp_path) -> None:
    """They belong to two clusters with the same node names and addresses, and one of them has the
    wrong kubeconfig.
    """
    await cluster.create_nodes("a", "b")
    async with FakePrometheus() as ours, FakePrometheus() as theirs:
        ours.set(load={"a": 95, "b": 5})
        theirs.set(load={"a": 5, "b": 95})
        async with pair(cluster, ours, theirs, tmp_path) as (first, second):
            await until(lambda: is_marked(cluster, "a"), "what is hot here is marked")
            one = (await status(first))["leader"]
            await until_status(second, lambda found: found["leader"] == one)
            for each, leading, hot in ((first, True, "a"), (second, False, "b")):
                assert await leads(each) is leading
                assert await metric(each, "dynsched_leader") == leading
                assert await each.get("/status") == (200, "ok")

                async def sees(each: Operator = each, hot: str = hot) -> bool:
                    found = await each.nodes()
                    pressured = [node["name"] for node in found["nodes"] if node["pressured"]]
                    return (found["node_names"], pressured) == (["a"], [hot])

                await until(sees, "it serves the marks and its own evaluation")
            await some_ticks(second)
            assert await is_marked(cluster, "a")
            assert await reigns(cluster) == [one]

            assert await first.stop() == 0  # then the other replica decides
            await until(lambda: is_marked(cluster, "b"), "what is hot elsewhere is marked")
            two = (await status(second))["leader"]
            assert await reigns(cluster) == [one, two]
            assert await metric(second, "dynsched_leader") == 1
    assert "released the Lease default/dynsched" in first.log
    lease = await cluster.get_lease("dynsched")
    assert lease is not None
    assert (lease["spec"]["holderIdentity"], lease["spec"]["leaseTransitions"]) == (two, 1)


async def test_a_leader_that_was_suspended_past_its_lease_writes_nothing_when_it_wakes(
    sim: SimCluster, tmp_path: Path
) -> None:
    """Neither its pending writes nor those of a new evaluation."""
    names = [f"n{index:02}" for index in range(60)]
    await sim.create_nodes(*names)
    async with (
        FakePrometheus() as prometheus,
        pair(sim, prometheus, prometheus, tmp_path) as (first, second),
    ):
        one = (await status(first))["leader"]
        slow = sim.server.faults.delay(1.0, resource="nodes", verb="patch")
        prometheus.set(load=dict.fromkeys(names, 95))

        async def under_way() -> bool:
            return len(await writes(sim)) >= 20

        await until(under_way, "many writes are under way")
        first.process.send_signal(signal.SIGSTOP)
        await until(lambda: leads(second), "the other one leads")
        await until(lambda: is_marked(sim, *names), "it has written the rest")
        slow.remove()
        two = (await status(second))["leader"]
        before = len(await writes(sim))
        assert await reigns(sim) == [one, two]

        first.process.send_signal(signal.SIGCONT)
        follower = {"leading": False, "leader": two, "ok": True}
        await until_status(first, lambda found: found.items() >= follower.items())
        await some_ticks(first)
        assert await metric(first, "dynsched_leader") == 0
        assert len(await writes(sim)) == before

        prometheus.set(load=dict.fromkeys(names, 5))
        await until(lambda: is_marked(sim), "the other one continues")
        assert await reigns(sim) == [one, two]


async def test_a_dry_run_takes_part_in_no_election(cluster: Cluster, tmp_path: Path) -> None:
    await cluster.create_nodes("a")
    async with FakePrometheus() as prometheus:
        prometheus.set(load={"a": 95})
        async with replica(cluster, prometheus, tmp_path, "--dry-run") as dry:
            await dry.until_ready()
            assert (await dry.nodes())["nodes"][0]["pressured"]
            assert await cluster.get_lease("dynsched") is None
            assert (await leads(dry), await metric(dry, "dynsched_leader")) == (False, 0)
    assert await writes(cluster) == []
