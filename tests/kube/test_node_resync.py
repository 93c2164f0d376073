"""What a watch misses without an error is found, told and mended."""

import asyncio
import json
import re
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from cluster import NODES, Cluster, SimCluster
from watch_support import Watching, hasten, watching

from dynsched.engine.model import Node
from dynsched.kube import resync
from dynsched.kube.client import Listing, Seen
from dynsched.kube.cluster import NodeStore
from dynsched.kube.kopf_operator import CHUNK
from dynsched.kube.lists import PAGE
from dynsched.kube.node_watch import NodeWatch
from dynsched.kube.resync import Resync, Troubles
from dynsched.util.logs import trouble_kind
from dynsched_sim.apiserver.faults import Fault
from dynsched_sim.examples import make_node

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


async def test_while_it_may_be_blind_it_says_why(sim, caplog, monkeypatch) -> None:
    """By the log: on a busy machine a trouble may be over before anybody asks for it."""
    await sim.create_nodes("a", "b")
    backup = sim.server.store.back_up()
    async with watching(sim.kubeconfig, resync=OFTEN) as running:
        await running.synced()
        known, cure = [], running.watch.begin_anew

        def cures() -> None:
            known.append(running.label("a", "pool"))
            cure()

        monkeypatch.setattr(running.watch, "begin_anew", cures)
        for name in ("a", "b"):
            await label(sim, name, "new")
        await running.knows(sim)
        await sim.restore(backup)
        await running.until(lambda: known != [])
        assert known == ["new"]
        await running.knows(sim)
    assert re.search("lists the nodes as of version .* was restored, or one of", caplog.text)
    told = [r.message for r in caplog.records if "went back to an older state" in r.message]
    assert len(told) == 1


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


async def test_what_is_under_way_is_not_missed(sim, caplog, monkeypatch) -> None:
    """Every event comes late, and changes never cease."""
    monkeypatch.setattr(resync, "LAG", 60.0)
    loop, observe = asyncio.get_running_loop(), NodeWatch._observe

    def late(*event: Any) -> None:
        loop.call_soon_threadsafe(loop.call_later, 0.2, observe, *event)

    monkeypatch.setattr(NodeWatch, "_observe", late)
    await sim.create_nodes("a", "b")
    async with watching(sim.kubeconfig, resync=OFTEN) as running:
        await running.synced()
        await running.until(lambda: not running.watch.is_listing)
        sim.server.requests.clear()
        changes = 0

        async def go_on() -> None:
            nonlocal changes
            while True:
                changes += 1
                await label(sim, "a", str(changes))

        changing = asyncio.create_task(go_on())
        await running.until(lambda: lists(sim) >= 3 and changes > 20)
        changing.cancel()
        await asyncio.wait({changing})
        assert lists_by_kopf(sim) == 0
        await running.knows(sim)
    assert [r.message for r in caplog.records if r.name.startswith("dynsched")] == []


async def test_what_a_watch_of_before_still_says_does_not_count(sim: SimCluster) -> None:
    """Its thread may be left behind, busy with a list that is of the past."""
    await sim.create_nodes("a")
    async with watching(sim.kubeconfig) as running:
        await running.synced()
        life = running.watch._life
        running.watch.begin_anew()
        running.watch._observe(life, None, make_node("ghost"))
        assert running.names() == {"a"}
        await running.until(lambda: running.watch._life is not life)
        await running.knows(sim)


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


async def test_an_api_server_that_is_behind_for_a_moment_is_told_and_waited_for(
    sim, monkeypatch, running
) -> None:
    before = await listed(sim)
    monkeypatch.setattr(resync, "OLD", 60.0)
    await sim.create_nodes("new")
    await running.knows(sim)
    sim.server.requests.clear()
    stale = is_behind(sim, before)
    await running.until(lambda: "one of several API servers is behind" in str(running.watch.error))
    assert running.names() == {"a", "b", "c", "new"}
    stale.remove()
    await running.knows(sim)
    assert lists_by_kopf(sim) == 0


async def test_our_list_is_newer_than_a_watch_at_an_api_server_that_is_behind(
    sim, caplog, monkeypatch, running
) -> None:
    monkeypatch.setattr(resync, "LAG", 60.0)
    await running.until(lambda: not running.watch.is_listing)
    sim.server.requests.clear()
    for number in range(3):
        sim.server.mute_watches()
        seen = lists(sim)  # before: once the list has the node, it is waited for without others
        await sim.create_nodes(f"late-{number}")
        await running.until(lambda seen=seen: lists(sim) > seen)  # so far it is behind
        sim.server.drop_watches("end")
        await running.until(lambda n=number: f"late-{n}" in running.names())
    await running.knows(sim)
    assert lists_by_kopf(sim) == 0
    assert not [r for r in caplog.records if "missed" in r.message]


class ListedAnewAtOnce:
    """A watch at an API server that is not behind, and that takes no time."""

    def __init__(self, store: NodeStore, node: Node) -> None:
        self.begun, self.cures, self.is_listing = 1, 0, False
        self._store, self._node = store, node
        store.offer(node)

    def begin_anew(self) -> None:
        self.begun += 1
        self.cures += 1
        self._store.forget_versions()
        self._store.offer(self._node)


class Listed:
    """A client whose lists are as of ``version``; each is one version later than the last."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.looks = 0
        self.caught_up = False
        self.config = SimpleNamespace(server="https://behind")

    async def listing(self) -> Listing:
        self.looks += 1
        self.version += 1
        if self.caught_up:
            return Listing("6000", {"a": Seen("u", "5000")})
        return Listing(str(self.version), {"a": Seen("u", "50")})


async def test_lists_that_stay_older_for_good_are_told_once_and_cured_less_and_less_often(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Our lists come from an API server that is behind, and the watch from another one."""
    for name in ("OLD", "LOOK_AGAIN", "GAP"):
        monkeypatch.setattr(resync, name, 0.01)
    caplog.set_level("INFO")
    client, store, troubles, stop = Listed(100), NodeStore(), Troubles(), asyncio.Event()
    ahead = ListedAnewAtOnce(store, Node("a", uid="u", resource_version="5000"))
    it = Resync(client, store, ahead, troubles, every=0.01)  # type: ignore[arg-type]
    running = asyncio.create_task(it.run(stop))

    async def until(reached: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not reached():
                await asyncio.sleep(0.01)

    await until(lambda: "did not cure it" in str(troubles.first) and client.looks > 60)
    assert 2 <= ahead.cures <= client.looks / 5
    kinds = Counter(trouble_kind(r.message) for r in caplog.records if r.levelname == "WARNING")
    assert len(kinds) == 3
    assert set(kinds.values()) == {1}
    client.caught_up = True
    await until(lambda: troubles.first is None)
    assert "the nodes are known as the API server lists them again" in caplog.text
    stop.set()
    await running


@pytest.mark.parametrize("left", [0, 2], ids=["empty", "one-missing"])
async def test_one_list_that_lacks_nodes_drops_none(sim, left, running) -> None:
    await running.knows(sim)
    wrong = await listed(sim)
    wrong["items"] = wrong["items"][:left]
    fewest = [3]
    drop = running.watch.store.drop
    running.watch.store.drop = lambda *a: fewest.append(0) or drop(*a)
    fault = is_behind(sim, wrong, times=1)
    await running.until(lambda: fault.hits == 1)
    sim.server.requests.clear()
    await running.until(lambda: lists(sim) > 2)
    await running.knows(sim)
    assert fewest == [3]


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


async def test_a_large_cluster_is_compared_beside_the_event_loop(sim, monkeypatch, running) -> None:
    """HTTP answers wait for whatever runs in it."""
    threads: set[int] = set()

    def beside(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            threads.add(threading.get_ident())
            return function(*arguments)

        return call

    monkeypatch.setattr(resync, "compare", beside(resync.compare))
    monkeypatch.setattr(resync, "newest", beside(resync.newest))
    await running.until(lambda: lists(sim) >= 2)
    assert threads
    assert threading.get_ident() not in threads
