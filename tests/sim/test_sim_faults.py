"""What the simulated API server does wrong on request, and what it remembers."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import aiohttp
import pytest
from cluster import LEASES, NODES, SimCluster

from dynsched.sim.apiserver.server import ApiServer
from dynsched.sim.nodes import make_node

PATCH = {"metadata": {"labels": {"status": "presure"}}}


async def labels(sim: SimCluster, name: str = "a") -> dict[str, str]:
    found: dict[str, str] = sim.server.objects.get("nodes", name)["metadata"]["labels"]
    return found


async def test_an_answer_can_be_ordered_so_many_times(sim: SimCluster) -> None:
    await sim.create_node(make_node("a"))
    fault = sim.server.faults.answer(429, verb="patch", resource="nodes", times=2, retry_after=1)
    for _ in range(2):
        answer = await sim.patch(f"{NODES}/a", PATCH)
        assert (answer.status, answer.headers["Retry-After"]) == (429, "1")
        assert (answer.body["kind"], answer.body["reason"]) == ("Status", "TooManyRequests")
    assert "status" not in await labels(sim)
    assert (await sim.patch(f"{NODES}/a", PATCH)).status == 200
    assert fault.hits == 2


async def test_a_fault_hits_only_what_it_names(sim: SimCluster) -> None:
    for name in "ab":
        await sim.create_node(make_node(name))
    fault = sim.server.faults.answer(500, verb="patch", name="a", message="etcd is away")
    answer = await sim.patch(f"{NODES}/a", PATCH)
    assert (answer.status, answer.body["message"]) == (500, "etcd is away")
    assert (await sim.patch(f"{NODES}/b", PATCH)).status == 200
    assert (await sim.get(f"{NODES}/a")).status == 200
    fault.remove()
    assert (await sim.patch(f"{NODES}/a", PATCH)).status == 200
    with pytest.raises(TypeError, match="cannot match on verbs"):
        sim.server.faults.answer(500, verbs="patch")


async def test_an_answer_can_be_something_else_than_json(sim: SimCluster) -> None:
    sim.server.faults.answer(503, body="<html>no backend</html>", path="/version")
    answer = await sim.get("/version")
    assert (answer.status, answer.text) == (503, "<html>no backend</html>")


async def test_a_write_can_be_done_and_yet_answered_by_an_error(sim: SimCluster) -> None:
    await sim.create_node(make_node("a"))
    sim.server.faults.answer(504, after=True, verb="patch", times=1)
    assert (await sim.patch(f"{NODES}/a", PATCH)).status == 504
    assert (await labels(sim))["status"] == "presure"
    sim.server.faults.answer(504, after=True, verb="patch", times=1)
    assert (await sim.patch(f"{NODES}/absent", PATCH)).status == 504


@pytest.mark.parametrize("after", [False, True])
async def test_a_connection_can_be_cut_before_or_after_the_write(
    sim: SimCluster, *, after: bool
) -> None:
    await sim.create_node(make_node("a"))
    sim.server.faults.reset(after=after, verb="patch", times=1)
    with pytest.raises(aiohttp.ClientError):
        await sim.patch(f"{NODES}/a", PATCH)
    assert ("status" in await labels(sim)) is after
    assert [(r.verb, r.status) for r in sim.server.requests.writes("nodes")][-1] == ("patch", 0)
    assert (await sim.patch(f"{NODES}/a", PATCH)).status == 200


async def test_an_answer_can_be_delayed(sim: SimCluster) -> None:
    sim.server.faults.delay(0.2, verb="list", times=1)
    for least, most in ((0.2, 2.0), (0.0, 0.15)):
        began = time.monotonic()
        assert (await sim.get(NODES)).status == 200
        assert least <= time.monotonic() - began < most


async def test_the_server_can_be_away_and_come_back_with_everything(sim: SimCluster) -> None:
    await sim.create_node(make_node("a"))
    start = str(sim.server.store.version)
    async with sim.watch(NODES, resourceVersion=start) as watch:
        await sim.server.down()
        with pytest.raises(aiohttp.ClientError):
            await watch.next()
    with pytest.raises(aiohttp.ClientConnectorError):
        await sim.get(NODES)
    await sim.server.up()
    assert sim.server.url == sim.url
    assert (await sim.get_node("a"))["metadata"]["name"] == "a"


@pytest.mark.parametrize(("how", "last"), [("end", None), ("gone", "ERROR")])
async def test_watches_can_be_ended(sim: SimCluster, how: str, last: str | None) -> None:
    async with sim.watch(NODES) as watch:
        await sim.create_node(make_node("a"))
        assert (await watch.next() or {})["type"] == "ADDED"
        assert sim.server.drop_watches(how) == 1
        events = await watch.rest()
    assert [e["type"] for e in events] == ([last] if last else [])
    if last:
        assert events[0]["object"]["code"] == 410


async def test_watches_can_be_cut(sim: SimCluster) -> None:
    async with sim.watch(NODES) as watch:
        assert sim.server.drop_watches("cut") == 1
        with pytest.raises(aiohttp.ClientError):
            await watch.next()


async def test_a_watch_ends_with_its_client(sim: SimCluster) -> None:
    async with sim.watch(NODES):
        assert sim.server.open_watches == 1
    async with asyncio.timeout(5):
        while sim.server.open_watches:
            await asyncio.sleep(0.01)


async def test_compaction_expires_watches_and_lists(sim: SimCluster) -> None:
    for name in "ab":
        await sim.create_node(make_node(name))
    token = (await sim.get(NODES, limit=1)).ok["metadata"]["continue"]
    old = sim.server.store.version
    await sim.create_node(make_node("c"))
    sim.server.compact("nodes")
    async with sim.watch(NODES, resourceVersion=old) as watch:
        (told,) = await watch.rest()
    assert (told["object"]["code"], told["object"]["reason"]) == (410, "Expired")
    assert told["object"]["message"].startswith(f"too old resource version: {old} (")
    assert (await sim.get(NODES, **{"limit": 1, "continue": token})).status == 410


async def test_initial_events_end_in_a_bookmark(sim: SimCluster) -> None:
    # The real server of the tests cannot: its etcd is too old for streamed lists.
    for name in "ab":
        await sim.create_node(make_node(name))
    query = {
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "allowWatchBookmarks": "true",
    }
    async with sim.watch(NODES, **query) as watch:
        told = [await watch.next() or {} for _ in range(3)]
    assert [e["type"] for e in told] == ["ADDED", "ADDED", "BOOKMARK"]
    end = {"k8s.io/initial-events-end": "true"}
    assert told[2]["object"]["metadata"]["annotations"] == end


async def test_bookmarks_come_in_their_interval(tmp_path: Path) -> None:
    async with (
        SimCluster(tmp_path, bookmark_interval=0.05) as sim,
        sim.watch(NODES, allowWatchBookmarks="true") as watch,
    ):
        told = [await watch.next() or {} for _ in range(2)]
    assert [e["type"] for e in told] == ["BOOKMARK", "BOOKMARK"]


async def test_a_token_can_be_required(tmp_path: Path) -> None:
    async with SimCluster(tmp_path, token="secret") as sim:
        assert (await sim.get(NODES)).status == 200
        answer = await sim.request("GET", NODES, token="wrong")
        assert (answer.status, answer.body["reason"]) == (401, "Unauthorized")
        sim.token = None
        assert (await sim.get(NODES)).status == 401
        assert (await sim.get("/readyz")).status == 200
        assert '"token": "secret"' in sim.kubeconfig.read_text()


async def test_rights_can_be_taken_away(tmp_path: Path) -> None:
    async with SimCluster(tmp_path, user="bob", forbidden=[("patch", "nodes")]) as sim:
        await sim.create_node(make_node("a"))
        answer = await sim.patch(f"{NODES}/a", PATCH)
        assert answer.status == 403
        assert answer.body["message"] == (
            'nodes "a" is forbidden: User "bob" cannot patch resource "nodes" in API group ""'
            " at the cluster scope"
        )
        sim.server.forbidden.clear()
        assert (await sim.patch(f"{NODES}/a", PATCH)).status == 200


async def test_server_side_apply_is_refused_clearly(sim: SimCluster) -> None:
    await sim.create_node(make_node("a"))
    answer = await sim.patch(f"{NODES}/a", {}, "application/apply-patch+yaml", fieldManager="x")
    assert (answer.status, answer.body["reason"]) == (415, "UnsupportedMediaType")
    assert "server-side apply is not offered" in answer.body["message"]


async def test_requests_are_recorded_with_who_asked_what(sim: SimCluster) -> None:
    await sim.create_node(make_node("a"))
    await sim.list_nodes("x=y")
    await sim.patch(f"{NODES}/a/status", {}, fieldManager="m", dryRun="All")
    await sim.get("/version")
    async with sim.watch(LEASES):
        pass
    created, listed, patched, version, watched = sim.server.requests
    assert (created.verb, created.name, created.status) == ("create", "a", 201)
    assert created.json()["metadata"]["name"] == "a"
    assert (listed.verb, listed.query["labelSelector"]) == ("list", "x=y")
    assert (patched.subresource, patched.manager, patched.user_agent) == ("status", "m", "tests/1")
    assert abs(patched.time - time.time()) < 60
    assert (version.verb, version.path) == ("", "/version")
    assert (watched.verb, watched.namespace, watched.status) == ("watch", "default", 200)
    assert [r.verb for r in sim.server.requests.reads("nodes")] == ["list"]
    assert len(sim.server.requests.writes()) == 2
    sim.server.requests.clear()
    assert len(sim.server.requests) == 0


async def test_a_watch_that_is_cut_while_it_has_something_to_tell_is_no_error(
    sim: SimCluster, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"{sim.server.url}{NODES}"
    async with aiohttp.ClientSession() as session, session.get(url, params={"watch": "1"}):
        sim.server.objects.create("nodes", make_node("a"))
        sim.server.drop_watches("cut")
        async with asyncio.timeout(5):
            while sim.server.open_watches:
                await asyncio.sleep(0.01)
    assert caplog.messages == []


async def test_an_idle_connection_is_closed() -> None:
    async with ApiServer(idle_timeout=0.05) as server:
        reader, writer = await asyncio.open_connection(server.host, server.port)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: sim\r\n\r\n")
        async with asyncio.timeout(5):
            assert (await reader.read()).endswith(b"ok")
        writer.close()
