"""What a watch misses without an error is found, told and mended."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from cluster import NODES, Cluster, SimCluster
from watch_support import Watching, hasten, watching

from dynsched.kube import resync
from dynsched.kube.kopf_operator import CHUNK
from dynsched.kube.lists import PAGE
from dynsched_sim.apiserver.faults import Fault

NAMES_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
OFTEN = 0.15


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes seconds takes a fraction of one."""
    hasten(monkeypatch)
    for name, seconds in (("LAG", 0.4), ("OLD", 0.5), ("LOOK_AGAIN", 0.1)):
        monkeypatch.setattr(resync, name, seconds)
    monkeypatch.setattr(resync, "GAP", OFTEN)


async def label(cluster: Cluster, name: str, value: str) -> None:
    await cluster.patch_node(name, {"metadata": {"labels": {"pool": value}}})


def lists(sim: SimCluster, limit: int = PAGE) -> int:
    """How often nodes were listed since the record was cleared: by us, in a comparison."""
    asked = [r for r in sim.server.requests if (r.verb, r.resource) == ("list", "nodes")]
    return len([r for r in asked if r.query.get("limit") == str(limit)])


def lists_by_kopf(sim: SimCluster) -> int:
    """How often they were listed anew, with their bodies."""
    return lists(sim, CHUNK)


@pytest.fixture
async def running(sim: SimCluster) -> AsyncIterator[Watching]:
    """A watch that follows the nodes a, b and c."""
    await sim.create_nodes("a", "b", "c")
    async with watching(sim.kubeconfig, resync=OFTEN) as found:
        await found.follows(sim)
        yield found


@pytest.mark.parametrize("writes", [0, 60], ids=["behind", "overtaken"])
async def test_an_older_state_that_is_put_back_is_known(cluster: Cluster, writes: int) -> None:
    """Versions may have overtaken the old ones by the time at which the watch is back."""
    await cluster.create_nodes("changed", "deleted", "kept", "busy")
    backup = await cluster.back_up()
    async with watching(cluster.kubeconfig, resync=OFTEN) as running:
        await running.synced()
        for number in range(20):
            await label(cluster, "changed", str(number))
        await cluster.delete_node("deleted")
        await cluster.create_nodes("made-after")
        await running.knows(cluster)

        await cluster.restore(backup)
        for number in range(writes):
            await label(cluster, "busy", str(number))
        await running.knows(cluster, 60)
        assert running.names() == {"changed", "deleted", "kept", "busy"}
        assert running.label("changed", "pool") is None

        await cluster.create_nodes("made-later")
        await label(cluster, "kept", "yes")
        await cluster.delete_node("deleted")
        await running.until(lambda: running.names() == {"changed", "kept", "busy", "made-later"})
        await running.until(lambda: running.label("kept", "pool") == "yes")


async def test_a_namesake_gives_way_to_the_older_node_and_a_second_restore_is_found_too(
    sim: SimCluster,
) -> None:
    await sim.create_nodes("a")
    first = sim.server.store.back_up()
    await sim.create_nodes("b")
    second = sim.server.store.back_up()
    async with watching(sim.kubeconfig, resync=OFTEN) as running:
        await running.synced()
        before = running.uid("a")
        await sim.delete_node("a")
        await sim.create_nodes("a", "c")
        await running.knows(sim)
        assert running.uid("a") != before
        for backup, names in ((first, {"a"}), (second, {"a", "b"})):
            await sim.restore(backup)
            await running.knows(sim)
            assert running.names() == names
            assert running.uid("a") == before


async def test_a_watch_that_falls_silent_is_begun_anew(sim, caplog, running) -> None:
    assert sim.server.mute_watches() == 1
    await sim.create_nodes("d")
    await sim.delete_node("b")
    await label(sim, "c", "blue")
    await running.until(lambda: "b" not in running.names())
    await running.until(lambda: "missed what became of nodes c and d" in caplog.text)
    await running.knows(sim)
    assert running.label("c", "pool") == "blue"
    assert len([r for r in caplog.records if "the watch missed" in r.message]) == 1


async def listed(sim: SimCluster) -> Any:
    """The nodes as they are now, as we list them."""
    return (await sim.request("GET", NODES, headers={"Accept": NAMES_ONLY})).ok


def is_behind(sim: SimCluster, body: Any, times: int | None = None) -> Fault:
    """One of two API servers: it lists the nodes as they were a moment ago."""
    text = json.dumps(body)
    return sim.server.faults.answer(200, body=text, verb="list", resource="nodes", times=times)


async def test_a_list_that_is_older_drops_nothing_and_lists_nothing_anew(
    sim, caplog, running
) -> None:
    before = await listed(sim)
    await sim.create_nodes("new")
    await sim.delete_node("a")
    await label(sim, "b", "blue")
    await running.knows(sim)
    for _ in range(2):
        stale = is_behind(sim, before, times=1)
        await running.until(lambda stale=stale: stale.hits == 1)
        sim.server.requests.clear()
        await running.until(lambda: lists(sim) > 1)
        assert running.names() == {"b", "c", "new"}
        assert running.label("b", "pool") == "blue"
        assert lists_by_kopf(sim) == 0
    assert running.watch.error is None
    assert [r.message for r in caplog.records if r.name.startswith("dynsched")] == []


@pytest.mark.parametrize("left", [0, 2], ids=["empty", "one-missing"])
async def test_one_list_that_lacks_nodes_drops_none(sim, left, running) -> None:
    await running.knows(sim)
    wrong = await listed(sim)
    wrong["items"] = wrong["items"][:left]
    known: list[int] = []
    fault = is_behind(sim, wrong, times=1)
    await running.until(lambda: fault.hits == 1)
    sim.server.requests.clear()
    await running.until(lambda: bool(known.append(len(running.names()))) or lists(sim) > 2)
    assert set(known) == {3}


async def test_an_answer_that_is_no_list_drops_no_node(sim, running) -> None:
    fault = is_behind(sim, {})
    await running.until(lambda: "answered no list" in str(running.watch.error))
    assert running.names() == {"a", "b", "c"}
    fault.remove()
    await running.knows(sim)


async def test_nodes_that_two_lists_lack_are_gone_and_a_cluster_without_any_is_told(
    sim, running
) -> None:
    assert sim.server.mute_watches() == 1
    for name in ("a", "b", "c"):
        await sim.delete_node(name)
    await running.until(lambda: running.names() == set())
    await running.until(lambda: "has no node any more, of up to 3" in str(running.watch.error))
    await sim.create_nodes("d")
    await running.knows(sim)


async def test_a_quiet_cluster_is_compared_without_its_nodes_bodies(sim, running) -> None:
    await running.until(lambda: not running.watch.is_listing)
    sim.server.requests.clear()

    await running.until(lambda: lists(sim) >= 3)
    assert lists_by_kopf(sim) == 0
    assert {r.verb for r in sim.server.requests} == {"list"}
    assert {r.query.get("limit") for r in sim.server.requests} == {"500"}
