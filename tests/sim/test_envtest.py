"""The real servers that the tests start: what the other tests take for granted of them."""

from __future__ import annotations

from pathlib import Path

from cluster import NODES, EnvtestCluster
from envtest import Envtest

from dynsched.sim.nodes import make_node


def test_it_is_there_where_it_must_be(envtest: Envtest) -> None:
    """Where there is no real API server, this is the one test that says so."""
    assert envtest.url.startswith("https://127.0.0.1:")


async def test_a_test_begins_with_nothing_and_with_no_writes(
    envtest: Envtest, tmp_path: Path
) -> None:
    for _ in range(2):
        async with EnvtestCluster(envtest, tmp_path) as cluster:
            assert await cluster.list_nodes() == []
            assert await cluster.writes() == []
            await cluster.create_node(make_node("left"))
            assert [w.verb for w in await cluster.writes()] == ["create"]
            assert (await cluster.get(f"{NODES}/left")).status == 200
