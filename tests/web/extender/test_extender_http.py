"""The extender on HTTP: every path, bodies that hurt, callers that dawdle."""

from __future__ import annotations

import asyncio
import json
import resource
import zlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from aiohttp.test_utils import TestClient, TestServer
from extender_support import NAMES, World, ask, raw, snapshots, whole

from dynsched.web.api import make_app
from dynsched.web.extender import http as extender_http
from dynsched.web.extender.http import EXTENDER_ENDPOINTS, add_extender
from dynsched.web.transport import bodies
from dynsched.web.transport.bodies import BodyReader

MIB = 1 << 20
MANY = 200_000
"""Nodes of the largest cluster here."""


def world() -> World:
    """Nodes a to d are looked at; there are many others."""
    found = World().tick()
    found.nodes |= dict.fromkeys((f"n{number}" for number in range(MANY)), found.nodes["a"])
    return found


@pytest_asyncio.fixture
async def client() -> AsyncIterator[TestClient]:
    """A server that may take 128 MiB for questions."""
    app = make_app(snapshots(), world().extender, memory=128 * MIB)
    async with TestClient(TestServer(app)) as client:
        yield client


@pytest_asyncio.fixture
async def impatient() -> AsyncIterator[TestClient]:
    """A server that waits half a second for a body of 4 MiB at most."""
    app = make_app(snapshots())
    add_extender(app, world().extender, BodyReader(most=4 * MIB, seconds=0.5))
    async with TestClient(TestServer(app)) as client:
        yield client


async def post(client: TestClient, path: str, body: Any, status: int = 200) -> Any:
    data = body if isinstance(body, bytes) else raw(body)
    async with client.post(path, data=data) as response:
        text = await response.text()
        assert response.status == status, text
        assert response.content_type == "application/json"
        return json.loads(text)


@pytest.mark.parametrize("prefix", ["", "/scheduler"])
async def test_the_verbs(client: TestClient, prefix: str) -> None:
    assert (await post(client, f"{prefix}/filter", ask()))["NodeNames"] == ["a", "b", "c"]
    scores = await post(client, f"{prefix}/prioritize", ask())
    assert scores[0] == {"Host": "a", "Score": 10}
    meta = {"NodeNameToMetaVictims": {"a": {"Pods": [], "NumPDBViolations": 0}}}
    assert await post(client, f"{prefix}/preempt", meta) == meta
    binding = {"PodName": "p", "PodNamespace": "n", "PodUID": "u", "Node": "a"}
    assert (await post(client, f"{prefix}/bind", binding))["Error"]


async def test_the_second_forerunners_name_for_preempt(client: TestClient) -> None:
    meta = {"NodeNameToMetaVictims": {"a": {"Pods": [], "NumPDBViolations": 0}}}
    assert await post(client, "/scheduler/preemption", meta) == meta


@pytest.mark.parametrize("path", EXTENDER_ENDPOINTS)
@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"\x00", b"null", b"1e999", b"{}", b"[" * 10**5]
)
async def test_a_broken_body_is_a_400_that_tells_why(
    client: TestClient, path: str, body: bytes
) -> None:
    assert (await post(client, path, body, 400))["error"]


async def test_it_is_asked_by_post_only(client: TestClient) -> None:
    async with client.get("/filter") as response:
        assert response.status == 405
        assert await response.json() == {"error": "GET is not for /filter; use POST"}


@pytest.mark.parametrize("path", EXTENDER_ENDPOINTS)
@pytest.mark.parametrize("origin", ["http://elsewhere.example", "null", "http://localhost:9000"])
async def test_pages_in_a_browser_are_no_schedulers(
    client: TestClient, path: str, origin: str
) -> None:
    """A page of any site can send a POST to a forwarded port; browsers add where it is from."""
    async with client.post(path, data=raw(ask()), headers={"Origin": origin}) as response:
        assert response.status == 403
        assert (await response.json())["error"] == (
            "this path is for schedulers; a page in a browser may not ask it"
        )


async def test_it_is_there_only_while_the_rules_ask_for_it() -> None:
    asking = World().tick().extender
    wanted = [False]
    asking.served = lambda: wanted[0]
    async with TestClient(TestServer(make_app(snapshots(), asking))) as client:
        for path in EXTENDER_ENDPOINTS:
            error = (await post(client, path, ask(), 404))["error"]
            assert error == "the scheduler extender is off: rules.yaml has no section `extender`"
        wanted[0] = True
        assert (await post(client, "/filter", ask()))["NodeNames"]


@pytest.mark.parametrize("path", ["/filter", "/prioritize"])
async def test_no_more_candidates_are_taken_than_a_cluster_can_have(
    impatient: TestClient, path: str
) -> None:
    most = 2 * (MANY + 4)
    for form in (
        b'{"NodeNames":[' + b'"",' * most + b'""]}',
        b'{"nodenames":[' + b'"\\"",' * most + b'""]}',
        b'{"Nodes":{"items":[' + b"{}," * 1_000_000 + b"{}]}}",
        b'{"nodes":{"Items":[' + b"null," * 700_000 + b"{}]}}",
    ):
        assert (await post(impatient, path, form, 400))["error"]
    few = make_app(snapshots(), World().tick().extender)
    async with TestClient(TestServer(few)) as client:
        for form in (
            b'{"NodeNames":[' + b'"",' * 10_000 + b'""]}',
            b'{"NodeNames":["' + b"x" * 3_000_000 + b'"]}',
            b'{"Nodes":{"items":['
            + b'{"metadata":{"name":""}},' * 11_000
            + b'{"metadata":{"name":""}}]}}',
        ):
            assert "more than 10000" in (await post(client, path, form, 400))["error"]
        assert len((await post(client, "/filter", ask(["x"] * 10_000)))["NodeNames"]) == 10_000


async def test_no_more_victims_are_taken_than_so_many_bytes_can_tell_of(
    impatient: TestClient,
) -> None:
    for form in (
        b'{"NodeNameToVictims":{"n":{"Pods":[' + b"{}," * 200_000 + b"{}]}}}",
        b'{"nodeNameToMetaVictims":{"n":{"pods":[' + b"{}," * 200_000 + b"{}]}}}",
        raw({"NodeNameToMetaVictims": dict.fromkeys(map(str, range(60_000)))}),
    ):
        assert (await post(impatient, "/preempt", form, 400))["error"]
    assert (await post(impatient, "/preempt", b" " * (2 * MIB), 413))["error"]
    pods = [{"metadata": {"uid": f"{n:036}", "labels": {"a": "b"}}} for n in range(5000)]
    whole_pods = {"NodeNameToVictims": {"a": {"Pods": pods, "NumPDBViolations": 0}}}
    found = await post(impatient, "/preempt", whole_pods)
    assert len(found["NodeNameToMetaVictims"]["a"]["Pods"]) == 5000


async def test_a_binding_is_small(impatient: TestClient) -> None:
    error = (await post(impatient, "/bind", b" " * 200_000, 413))["error"]
    assert error == "the body is larger than 128 KiB"


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "GZIP, deflate", "x-own"])
async def test_what_is_compressed_is_not_read(client: TestClient, encoding: str) -> None:
    headers = {"Content-Encoding": encoding}
    for path in EXTENDER_ENDPOINTS:
        async with client.post(path, data=b"\x1f\x8b", headers=headers) as response:
            assert response.status == 415
    async with client.post(
        "/filter", data=raw(ask()), headers={"Content-Encoding": "identity"}
    ) as response:
        assert response.status == 200


async def test_when_there_is_no_room_a_question_waits_and_then_is_refused(
    impatient: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = impatient.app[extender_http._READER].room
    held.take_at_once(4 * MIB)
    question = asyncio.create_task(post(impatient, "/filter", ask()))
    await asyncio.sleep(0.05)
    assert not question.done()
    held.give(4 * MIB)
    assert (await question)["NodeNames"]
    held.take_at_once(4 * MIB)
    monkeypatch.setattr(bodies, "WAIT_SECONDS", 0.1)
    error = (await post(impatient, "/filter", ask(), 503))["error"]
    assert error == "too much is asked at a time; try again"


async def test_all_that_was_held_is_given_back(impatient: TestClient) -> None:
    held = impatient.app[extender_http._READER].room
    for path in EXTENDER_ENDPOINTS:
        for body in (raw(ask()), b"{", b" " * (5 * MIB), raw({"Nodes": {"items": [whole("a")]}})):
            async with impatient.post(path, data=body):
                pass
    assert held._free == held.size


async def test_without_an_extender_there_is_none() -> None:
    async with TestClient(TestServer(make_app(snapshots()))) as client:
        assert (await client.post("/filter", data=raw(ask()))).status == 404


async def test_100_000_names(client: TestClient) -> None:
    names = [f"node-{number}.example.com" for number in range(100_000)]
    assert (await post(client, "/filter", ask(names)))["NodeNames"] == names
    assert len(await post(client, "/prioritize", ask(names))) == 100_000


async def test_60_mb_of_whole_nodes(client: TestClient) -> None:
    padding = ' "x":"' + "y" * 12_000 + '"'
    items = ",".join(f'{{"metadata":{{"name":"n{n}"}},{padding}}}' for n in range(5000))
    body = f'{{"Nodes":{{"items":[{items}]}}}}'.encode()
    assert len(body) > 60e6
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    async with client.post("/filter", data=body) as response:
        assert response.status == 200
        size = 0
        async for chunk in response.content.iter_chunked(MIB):
            size += len(chunk)
    assert size > len(body) - 100
    # The client is in this process too; the server's own part is one body and little more.
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert grown < 400
    assert len(await post(client, "/prioritize", body)) == 5000


async def test_a_body_in_pieces_without_a_length(client: TestClient) -> None:
    body = raw(ask([f"n{number}" for number in range(MANY)]))

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(body), 100_000):
            yield body[start : start + 100_000]

    async with client.post("/filter", data=pieces()) as response:
        assert len((await response.json())["NodeNames"]) == MANY


@pytest.mark.parametrize("declared", [True, False])
async def test_a_body_that_is_too_large(impatient: TestClient, declared: bool) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b" " * MIB

    data: Any = b" " * (5 * MIB) if declared else endless()
    try:
        async with impatient.post("/filter", data=data) as response:
            assert response.status == 413
            error = "the body is larger than 4 MiB; see --extender-memory"
            assert await response.json() == {"error": error}
    except (ConnectionError, OSError):
        assert not declared  # the server hung up while we still sent
    assert (await post(impatient, "/filter", ask()))["NodeNames"]


async def test_a_small_body_that_unpacks_to_a_large_one(impatient: TestClient) -> None:
    data = zlib.compress(b" " * (64 * MIB))
    headers = {"Content-Encoding": "deflate"}
    async with impatient.post("/filter", data=data, headers=headers) as response:
        assert response.status == 415
    assert (await post(impatient, "/filter", ask()))["NodeNames"]


async def test_a_body_that_is_not_what_its_encoding_says(
    impatient: TestClient, caplog: pytest.LogCaptureFixture
) -> None:
    headers = {"Content-Encoding": "gzip"}
    async with impatient.post("/filter", data=b"junk" * 9, headers=headers) as response:
        assert response.status == 415
        assert "Content-Encoding" in (await response.json())["error"]
    assert not [each for each in caplog.records if each.name.startswith("dynsched")]


async def test_slow_callers_are_let_go_and_hold_up_nobody(impatient: TestClient) -> None:
    server = impatient.server
    head = b"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
    slow = [await asyncio.open_connection(server.host, server.port) for _ in range(20)]
    for number, (_, writer) in enumerate(slow):
        writer.write(head % (3 * MIB if number % 2 else 1000) + b'{"NodeNames":')
    began = asyncio.get_running_loop().time()
    assert (await post(impatient, "/filter", ask()))["NodeNames"] == ["a", "b", "c"]
    assert asyncio.get_running_loop().time() - began < 0.4
    for reader, writer in slow:
        answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
        assert answer.startswith(b"HTTP/1.1 408")
        writer.close()
    names = [f"n{number}" for number in range(MANY)]  # a large one finds a place again
    assert len((await post(impatient, "/filter", ask(names)))["NodeNames"]) == MANY


async def test_a_caller_that_hangs_up_gives_its_place_back(impatient: TestClient) -> None:
    server = impatient.server
    for _ in range(10):
        _, writer = await asyncio.open_connection(server.host, server.port)
        writer.write(b"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: 3000000\r\n\r\n{")
        await writer.drain()
        writer.transport.abort()
    names = [f"n{number}" for number in range(MANY)]
    assert len((await post(impatient, "/filter", ask(names)))["NodeNames"]) == MANY


async def test_a_caller_that_does_not_read_its_answer(
    impatient: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extender_http, "WRITE_SECONDS", 0.3)
    items = [{**whole(f"n{n}"), "x": "y" * 3_000_000} for n in range(1)]
    body = raw({"Nodes": {"items": items}})
    server = impatient.server
    stuck = []
    for _ in range(4):
        reader, writer = await asyncio.open_connection(server.host, server.port, limit=1024)
        writer.write(b"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body))
        writer.write(body)
        stuck.append((reader, writer))
    names = [f"n{number}" for number in range(MANY)]
    assert len((await post(impatient, "/filter", ask(names)))["NodeNames"]) == MANY
    for _, writer in stuck:
        writer.transport.abort()


async def test_200_at_once(client: TestClient) -> None:
    names = [f"node-{number}.example.com" for number in range(5000)] + NAMES
    body = raw(ask(names))
    found = await asyncio.gather(
        *(post(client, ("/filter", "/prioritize")[n % 2], body) for n in range(200))
    )
    assert all(len(answer["NodeNames"]) == 5003 for answer in found[::2])
    assert all(len(answer) == 5004 for answer in found[1::2])


async def test_a_bug_is_not_a_500(client: TestClient, monkeypatch: Any, caplog: Any) -> None:
    monkeypatch.setattr("dynsched.web.extender.wire.read_args", lambda _: 1 / 0)
    monkeypatch.setattr("dynsched.web.extender.answers.read_preemption", lambda _: 1 / 0)
    monkeypatch.setattr("dynsched.web.extender.wire.read_binding", lambda _: 1 / 0)
    for path in EXTENDER_ENDPOINTS:
        assert (await post(client, path, ask(), 400))["error"]
    assert "Traceback" in caplog.text
