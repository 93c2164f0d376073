"""The extender on HTTP: every path, bodies that hurt, callers that dawdle."""

import asyncio
import json
import resource
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import pytest_asyncio
from aiohttp.test_utils import TestClient, TestServer
from extender_support import World, ask, raw, snapshots, whole
from operator_support import until

from dynsched.api.app import make_app
from dynsched.api.extender import endpoints as extender_http
from dynsched.api.extender.answers import Extender
from dynsched.api.extender.endpoints import EXTENDER_ENDPOINTS, add_extender
from dynsched.api.transport import bodies

MIB = 1 << 20
MANY = 200_000
"""Nodes of the largest cluster here."""
META = {"NodeNameToMetaVictims": {"a": {"Pods": [], "NumPDBViolations": 0}}}
BINDING = {"PodName": "p", "PodNamespace": "n", "PodUID": "u", "Node": "a"}
MANY_NAMES = [f"n{number}" for number in range(MANY)]
HEAD = b"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"


@pytest.fixture(scope="module")
def extender() -> Extender:
    """Nodes a to d are looked at; there are many others."""
    found = World().tick()
    found.nodes |= dict.fromkeys(MANY_NAMES, found.nodes["a"])
    return found.extender


@pytest_asyncio.fixture
async def client(extender: Extender) -> AsyncIterator[TestClient]:
    """A server that may take 128 MiB for questions."""
    app = make_app(snapshots(), lambda: extender, memory=128 * MIB)
    async with TestClient(TestServer(app)) as client:
        yield client


@asynccontextmanager
async def taking_4_mib(extender: Extender) -> AsyncIterator[TestClient]:
    app = make_app(snapshots())
    add_extender(app, lambda: extender, 4 * MIB)
    async with TestClient(TestServer(app)) as client:
        yield client


@pytest_asyncio.fixture
async def narrow(extender: Extender, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[TestClient]:
    """Of 4 MiB, and patient: what is not answered here at once hangs."""
    for name in ("READ_SECONDS", "WAIT_SECONDS", "PATIENCE"):
        monkeypatch.setattr(bodies, name, 60.0)
    async with taking_4_mib(extender) as client:
        yield client


async def post(client: TestClient, path: str, body: Any, status: int = 200, **headers: str) -> Any:
    async with client.post(path, data=raw(body), headers=headers) as response:
        text = await response.text()
        assert response.status == status, text
        assert response.content_type == "application/json"
        return json.loads(text)


async def dawdling(client: TestClient, *parts: bytes) -> Any:
    """A caller that has sent these parts and goes on with nothing."""
    pair = await asyncio.open_connection(client.server.host, client.server.port, limit=1024)
    pair[1].writelines(parts)
    return pair


@pytest.mark.parametrize("prefix", ["", "/scheduler"])
async def test_the_verbs(client: TestClient, prefix: str) -> None:
    assert (await post(client, f"{prefix}/filter", ask()))["NodeNames"] == ["a", "b", "c"]
    scores = await post(client, f"{prefix}/prioritize", ask())
    assert scores[0] == {"Host": "a", "Score": 10}
    for verb in ("preempt", *(["preemption"] if prefix else [])):  # the second forerunner's name
        assert await post(client, f"{prefix}/{verb}", META) == META
    assert "--bind" in (await post(client, f"{prefix}/bind", BINDING))["Error"]


@pytest.mark.parametrize("path", EXTENDER_ENDPOINTS)
async def test_what_is_no_question_is_a_400_that_tells_why(client: TestClient, path: str) -> None:
    bindings = ({**BINDING, key: value} for key, value in (("Node", ""), ("PodName", "")))
    broken = (b"", b"{", b"[]", b"\x00", b"null", b"1e999", b"{}", b"[" * 10**5)
    for body in (*broken, *bindings, {**BINDING, "PodName": 1}):
        assert (await post(client, path, body, 400))["error"]


@pytest.mark.parametrize("path", EXTENDER_ENDPOINTS)
async def test_pages_in_a_browser_are_no_schedulers(client: TestClient, path: str) -> None:
    """A page of any site can send a POST to a forwarded port; browsers add where it is from."""
    async with client.get(path) as response:
        assert response.status == 405
        assert await response.json() == {"error": f"GET is not for {path}; use POST"}
    for origin in ("http://elsewhere.example", "null", "http://localhost:9000"):
        told = await post(client, path, ask(), 403, Origin=origin)
        assert told["error"] == ("this path is for schedulers; a page in a browser may not ask it")


async def test_it_is_there_only_while_the_rules_ask_for_it() -> None:
    asking = World().tick().extender
    wanted = [False]
    shown = snapshots()
    async with TestClient(
        TestServer(make_app(shown, lambda: asking if wanted[0] else None))
    ) as client:
        for path in EXTENDER_ENDPOINTS:
            error = (await post(client, path, ask(), 404))["error"]
            assert error == "the scheduler extender is off: rules.yaml has no section `extender`"
        wanted[0] = True
        assert (await post(client, "/filter", ask()))["NodeNames"]
    assert b'dynsched_extender_requests_total{verb="filter"} 1.0' in shown.metrics.exposition()
    async with TestClient(TestServer(make_app(snapshots()))) as client:
        await post(client, "/filter", ask(), 404)


A_NODE = b'{"metadata":{"name":""}}'


@pytest.mark.parametrize("path", ["/filter", "/prioritize"])
async def test_no_more_candidates_are_taken_than_a_cluster_can_have(narrow, path) -> None:
    most = 2 * (MANY + 4)
    for form in (
        b'{"NodeNames":[' + b'"",' * most + b'""]}',
        b'{"NodeNames":[' + b'"\\"",' * most + b'""]}',
        b'{"Nodes":{"items":[' + b"{}," * 1_000_000 + b"{}]}}",
        b'{"Nodes":{"items":[' + b"null," * 700_000 + b"{}]}}",
    ):
        assert (await post(narrow, path, form, 400))["error"]
    few = make_app(snapshots(), World().tick().asked)
    async with TestClient(TestServer(few)) as client:
        for form in (
            b'{"NodeNames":[' + b'"",' * 10_000 + b'""]}',
            b'{"NodeNames":["' + b"x" * 3_000_000 + b'"]}',
            b'{"Nodes":{"items":[' + (A_NODE + b",") * 11_000 + A_NODE + b"]}}",
        ):
            assert "more than 10000" in (await post(client, path, form, 400))["error"]
        assert len((await post(client, "/filter", ask(["x"] * 10_000)))["NodeNames"]) == 10_000


async def test_no_more_victims_are_taken_than_so_many_bytes_can_tell_of(narrow: TestClient) -> None:
    for form in (
        b'{"NodeNameToVictims":{"n":{"Pods":[' + b"{}," * 200_000 + b"{}]}}}",
        b'{"nodeNameToMetaVictims":{"n":{"pods":[' + b"{}," * 200_000 + b"{}]}}}",
        raw({"NodeNameToMetaVictims": dict.fromkeys(map(str, range(60_000)))}),
    ):
        assert (await post(narrow, "/preempt", form, 400))["error"]
    assert (await post(narrow, "/preempt", b" " * (2 * MIB), 413))["error"]
    error = (await post(narrow, "/bind", b" " * 200_000, 413))["error"]
    assert error == "the body is larger than 128 KiB"
    pods = [{"metadata": {"uid": f"{n:036}", "labels": {"a": "b"}}} for n in range(5000)]
    whole_pods = {"NodeNameToVictims": {"a": {"Pods": pods, "NumPDBViolations": 0}}}
    found = await post(narrow, "/preempt", whole_pods)
    assert len(found["NodeNameToMetaVictims"]["a"]["Pods"]) == 5000


@pytest.mark.parametrize("path", EXTENDER_ENDPOINTS)
async def test_what_is_compressed_is_not_read(client: TestClient, path: str) -> None:
    for encoding in ("gzip", "GZIP, deflate", "x-own"):
        told = await post(client, path, b"\x1f\x8b", 415, **{"Content-Encoding": encoding})
        assert "Content-Encoding" in told["error"]
    async with client.post(path, data=b"", headers={"Content-Encoding": "identity"}) as response:
        assert response.status == 400


async def test_without_room_a_question_waits_and_then_is_refused(narrow, monkeypatch) -> None:
    held = narrow.app[extender_http._BUDGET]
    held.give(-4 * MIB)
    question = asyncio.create_task(post(narrow, "/filter", ask()))

    async def waits() -> bool:
        return bool(held._waiting)

    await until(waits, "the question waits")
    assert not question.done()
    held.give(4 * MIB)
    assert (await question)["NodeNames"]
    held.give(-4 * MIB)
    monkeypatch.setattr(bodies, "WAIT_SECONDS", 0.01)
    error = (await post(narrow, "/filter", ask(), 503))["error"]
    assert error == "too much is asked at a time; try again"


async def test_all_that_was_held_is_given_back(narrow: TestClient) -> None:
    held = narrow.app[extender_http._BUDGET]
    for path in EXTENDER_ENDPOINTS:
        for body in (raw(ask()), b"{", b" " * (5 * MIB), raw({"Nodes": {"items": [whole("a")]}})):
            async with narrow.post(path, data=body):
                pass
    assert held._free == held.size


@pytest.mark.thorough
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


async def pieces_of(body: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(body), 100_000):
        yield body[start : start + 100_000]


async def test_a_body_in_pieces_without_a_length(client: TestClient) -> None:
    body = raw(ask(MANY_NAMES))
    async with client.post("/filter", data=pieces_of(body)) as response:
        assert (await response.json())["NodeNames"] == MANY_NAMES
    async with client.post("/prioritize", data=pieces_of(body)) as response:
        assert [each["Host"] for each in await response.json()] == MANY_NAMES


@pytest.mark.parametrize("made", [bytes, pieces_of], ids=["declared", "in pieces"])
async def test_a_body_that_is_too_large(narrow: TestClient, made: Callable[[bytes], Any]) -> None:
    data = made(b" " * (5 if made is bytes else 100) * MIB)
    try:
        async with narrow.post("/filter", data=data) as response:
            assert response.status == 413
            error = "the body is larger than 4 MiB; see --extender-memory"
            assert await response.json() == {"error": error}
    except OSError:
        assert made is pieces_of  # the server hung up while we still sent
    assert (await post(narrow, "/filter", ask()))["NodeNames"]


SLOW = [HEAD % (3 * MIB if number % 2 else 1000) + b'{"NodeNames":' for number in range(20)]


async def test_slow_callers_hold_up_nobody_and_give_their_places_back(narrow: TestClient) -> None:
    slow = [await dawdling(narrow, sent) for sent in SLOW]
    async with asyncio.timeout(30):  # they may take 60 s
        assert (await post(narrow, "/filter", ask()))["NodeNames"] == ["a", "b", "c"]
        for _, writer in slow:
            writer.transport.abort()
        found = await post(narrow, "/filter", ask(MANY_NAMES))
    assert len(found["NodeNames"]) == MANY


async def test_slow_callers_are_let_go(extender: Extender, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "WAIT_SECONDS", 60.0)
    monkeypatch.setattr(bodies, "READ_SECONDS", 0.02)
    async with taking_4_mib(extender) as client:
        for reader, writer in [await dawdling(client, sent) for sent in SLOW]:
            answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)
            assert answer.startswith(b"HTTP/1.1 408")
            writer.close()


async def test_a_caller_that_does_not_read_its_answer_is_let_go(narrow, monkeypatch) -> None:
    monkeypatch.setattr(extender_http, "WRITE_SECONDS", 0.1)
    body = raw({"Nodes": {"items": [{**whole("n0"), "x": "y" * 3_000_000}]}})
    stuck = [await dawdling(narrow, HEAD % len(body), body) for _ in range(4)]
    assert len((await post(narrow, "/filter", ask(MANY_NAMES)))["NodeNames"]) == MANY
    for _, writer in stuck:
        writer.transport.abort()


async def test_a_bug_is_not_a_500(client: TestClient, monkeypatch: Any, caplog: Any) -> None:
    for name in ("wire.read_args", "wire.read_preemption", "wire.read_binding"):
        monkeypatch.setattr(f"dynsched.api.extender.{name}", lambda _: 1 / 0)
    for path in EXTENDER_ENDPOINTS:
        assert (await post(client, path, ask(), 400))["error"]
    assert "Traceback" in caplog.text
