"""A cluster of several API servers: some are behind, or cut off from etcd. Nothing is written on an
old view, no mark flaps, and of two replicas one writes."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from cluster import NODES, Cluster, EnvtestCluster, Watch
from envtest import Envtest
from envtest_members import member
from fake_prometheus import FakePrometheus
from late_server import LateServer
from operator_support import Operator, until
from replica_support import (
    AGENT,
    TIMES,
    is_marked,
    leads,
    replica,
    status,
    until_status,
    waited_for_the_lease,
    writer,
)
from tcp_relay import Relay

from dynsched_sim.examples import make_node

pytestmark = pytest.mark.slow

HOT, COOL = 95.0, 5.0


class Loads:
    """What is measured; ``transitions`` counts the marks that are to be set or released for it."""

    def __init__(self, cluster: Cluster, prometheus: FakePrometheus) -> None:
        self._cluster = cluster
        self._prometheus = prometheus
        self._loads: dict[str, float] = {}
        self.transitions = 0

    async def create(self, name: str, load: float = COOL) -> None:
        await self._cluster.create_node(make_node(name, len(self._loads)))
        self._loads[name] = COOL
        self.set(**{name: load})

    async def delete(self, name: str) -> None:
        """Of a cool node."""
        assert self._loads.pop(name) == COOL
        await self._cluster.delete_node(name)
        self.set()

    def set(self, **loads: float) -> None:
        self.transitions += sum(self._loads[name] != load for name, load in loads.items())
        self._loads |= loads
        self._prometheus.set(load=dict(self._loads))

    async def settled(self) -> None:
        """Until what is hot is marked, and nothing else."""
        hot = {name for name, load in self._loads.items() if load == HOT}
        await until(lambda: is_marked(self._cluster, *hot), f"marked: {hot}")

    async def known_to(self, operator: Operator) -> None:
        async def known() -> bool:
            return {node["name"] for node in (await operator.nodes())["nodes"]} == set(self._loads)

        await until(known, "all nodes are known, and no other")


@asynccontextmanager
async def marks_seen(cluster: Cluster) -> AsyncIterator[Counter[str]]:
    """How often the mark of each node came or went, whoever did it, and whatever he was told."""
    seen: Counter[str] = Counter()
    listed = (await cluster.get(NODES)).ok
    marked = {node["metadata"]["name"]: _has_mark(node) for node in listed["items"]}

    async def follow(events: Watch) -> None:
        while (event := await events.next(timeout=60)) is not None:
            node = event["object"]
            name = node["metadata"]["name"]
            if event["type"] != "DELETED" and _has_mark(node) != marked.get(name, False):
                seen[name] += 1
            marked[name] = _has_mark(node)

    version = listed["metadata"]["resourceVersion"]
    async with cluster.watch(NODES, resourceVersion=version) as events:
        following = asyncio.create_task(follow(events))
        try:
            yield seen
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)


def _has_mark(node: dict[str, Any]) -> bool:
    return bool(node["metadata"].get("labels", {}).get("status") == "presure")


async def test_members_that_are_seconds_apart_make_no_mark_flap(
    envtest: Envtest, prometheus: FakePrometheus, tmp_path: Path
) -> None:
    """One of two has the news from etcd a second later, and each connection may go to
    either: a watch that is cut is taken up where the other one has not been yet."""
    async with (
        EnvtestCluster(envtest, tmp_path) as cluster,
        member(envtest) as late,
        Relay(envtest.url, late.url) as balancer,
    ):
        loads = Loads(cluster, prometheus)
        for name in ("a", "b", "c"):
            await loads.create(name)
        kubeconfig = envtest.kubeconfig(tmp_path / "balancer", url=balancer.url)
        async with (
            replica(cluster, prometheus, tmp_path, kubeconfig=kubeconfig) as operator,
            marks_seen(cluster) as seen,
        ):
            await operator.until_ready()
            await until(lambda: leads(operator), "it leads")
            late.etcd.late = 1.0
            for number in range(3):
                await balancer.cut()
                loads.set(a=HOT if number % 2 == 0 else COOL)
                await cluster.patch_node("a", {"metadata": {"labels": {"team": f"t{number}"}}})
                await loads.create(f"new-{number}", HOT)
                await loads.settled()
            await loads.delete("c")
            await loads.known_to(operator)
            late.etcd.late = 0.0
    assert seen.total() == loads.transitions


async def test_reads_older_than_what_was_written_make_no_mark_flap(
    cluster: Cluster, prometheus: FakePrometheus, tmp_path: Path
) -> None:
    loads = Loads(cluster, prometheus)
    for name in ("a", "b"):
        await loads.create(name)
    async with LateServer(cluster) as server:
        config = json.loads(cluster.kubeconfig.read_text())
        config["clusters"][0]["cluster"] = {"server": server.url}
        kubeconfig = tmp_path / "kubeconfig-late"
        kubeconfig.write_text(json.dumps(config))
        async with (
            replica(cluster, prometheus, tmp_path, kubeconfig=kubeconfig) as operator,
            marks_seen(cluster) as seen,
        ):
            await operator.until_ready()
            await until(lambda: leads(operator), "it leads")
            await loads.known_to(operator)
            server.behind = 1.0
            for load in (HOT, COOL, HOT):
                loads.set(a=load)
                await loads.settled()
            # What somebody else changes is not told, and a read does not show it either.
            server.stand_still()
            await cluster.patch_node("b", {"metadata": {"labels": {"team": "theirs"}}})
            loads.set(b=HOT)
            await until_status(
                operator, lambda found: "a read shows it unchanged" in (found["error"] or "")
            )
            server.move()
            await loads.settled()
            labels = (await cluster.get(f"{NODES}/b")).ok["metadata"]["labels"]
            assert labels["team"] == "theirs"
            await loads.create("new", HOT)
            await loads.settled()
            await loads.known_to(operator)
            await until_status(operator, lambda found: found["ok"])
    assert seen.total() == loads.transitions


async def test_a_leader_whose_api_server_is_cut_off_from_etcd_hands_over(
    envtest: Envtest, prometheus: FakePrometheus, tmp_path: Path
) -> None:
    async with EnvtestCluster(envtest, tmp_path) as cluster, member(envtest) as other:
        loads = Loads(cluster, prometheus)
        await loads.create("a", HOT)
        await loads.create("b")
        kubeconfig = envtest.kubeconfig(tmp_path / "other", url=other.url)
        cut_off = replica(cluster, prometheus, tmp_path, kubeconfig=kubeconfig)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(cut_off)
            await until(lambda: leads(cut_off), "the one that is to be cut off leads")
            await loads.settled()
            well = replica(cluster, prometheus, tmp_path)
            await stack.enter_async_context(well)
            await well.until_ready()
            first = (await status(cut_off))["leader"]

            other.etcd.silent = True
            loads.set(a=COOL, b=HOT)  # due on both, from now on
            await until_status(
                cut_off, lambda found: not found["ok"] and "no answer" in found["error"]
            )
            await until(lambda: leads(well), "the other one leads")
            assert not await leads(cut_off)
            await loads.settled()
            await loads.create("new", HOT)
            await loads.settled()

            other.etcd.silent = False
            await loads.known_to(cut_off)
            second = (await status(well))["leader"]
            follower = {"ok": True, "leading": False, "leader": second}
            await until_status(cut_off, lambda found: found.items() >= follower.items())
            loads.set(a=HOT, new=COOL)
            await loads.settled()
        assert await waited_for_the_lease(cluster, first, second) >= TIMES.duration
        ours = [write for write in await cluster.writes() if AGENT.match(write.user_agent)]
        done = [write for write in ours if write.status == 200]
        assert [name for name, _ in groupby(map(writer, done))] == [first, second]
        assert len(done) == loads.transitions
