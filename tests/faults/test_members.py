"""A cluster of several API servers, of which some are behind: nothing is written on an old view."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from cluster import NODES, Cluster, SimCluster
from fake_prometheus import FakePrometheus
from late_server import LateServer
from operator_support import Operator, until
from replica_support import (
    is_marked,
    leads,
    replica,
    status,
)

from dynsched.sim.nodes import make_node

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

    async def follow(version: str) -> None:
        while True:  # a watch that is cut goes on where it was
            with suppress(aiohttp.ClientError, asyncio.IncompleteReadError):
                async with cluster.watch(NODES, resourceVersion=version) as events:
                    while (event := await events.next(timeout=60)) is not None:
                        node = event["object"]
                        name, version = (node["metadata"][key] for key in _NAME_AND_VERSION)
                        changed = _has_mark(node) != marked.get(name, False)
                        seen[name] += changed and event["type"] != "DELETED"
                        marked[name] = _has_mark(node)

    following = asyncio.create_task(follow(listed["metadata"]["resourceVersion"]))
    try:
        yield seen
        assert not following.done()
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


_NAME_AND_VERSION = ("name", "resourceVersion")


def _has_mark(node: dict[str, Any]) -> bool:
    return bool(node["metadata"].get("labels", {}).get("status") == "presure")


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
                if isinstance(cluster, SimCluster):  # a watch is taken up where it is behind
                    cluster.server.drop_watches("cut")
                loads.set(a=load)
                await loads.settled()
            # What somebody else changes is not told, and a read does not show it either.
            server.stand_still()
            await cluster.patch_node("b", {"metadata": {"labels": {"team": "theirs"}}})
            loads.set(b=HOT)

            async def told() -> Any:
                return "a read shows it unchanged" in ((await status(operator))["error"] or "")

            await until(told, "it says that reads are old")
            server.move()
            await loads.settled()
            labels = (await cluster.get(f"{NODES}/b")).ok["metadata"]["labels"]
            assert labels["team"] == "theirs"
            await loads.create("new", HOT)
            await loads.settled()
            await loads.known_to(operator)

            async def well() -> bool:
                return bool((await status(operator))["ok"])

            await until(well, "and that all is well again")
    assert seen.total() == loads.transitions
