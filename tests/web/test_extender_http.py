"""The extender over HTTP: every path, large bodies."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from aiohttp.test_utils import TestClient, TestServer
from extender_support import World, ask, raw
from store_support import Clock, make_store

from dynsched.web.app import make_app
from dynsched.web.extender import EXTENDER_ENDPOINTS, MAX_BODY

META = {"NodeNameToMetaVictims": {"a": {"Pods": [], "NumPDBViolations": 0}}}
BINDING = {"PodName": "p", "PodNamespace": "n", "PodUID": "u", "Node": "a"}


@pytest_asyncio.fixture
async def client() -> AsyncIterator[TestClient[Any, Any]]:
    app = make_app(make_store(Clock()), World().tick().asked)
    async with TestClient(TestServer(app)) as client:
        yield client


async def post(
    client: TestClient[Any, Any], path: str, body: Any, status: int = 200, **headers: str
) -> Any:
    async with client.post(path, data=raw(body), headers=headers) as response:
        text = await response.text()
        assert response.status == status, text
        assert response.content_type == "application/json"
        return json.loads(text)


@pytest.mark.parametrize("prefix", ["", "/scheduler"])
async def test_every_verb_is_answered_on_its_paths(
    client: TestClient[Any, Any], prefix: str
) -> None:
    assert (await post(client, f"{prefix}/filter", ask()))["NodeNames"] == ["a", "b", "c"]
    scores = await post(client, f"{prefix}/prioritize", ask())
    assert scores[0] == {"Host": "a", "Score": 10}
    # `preemption` is the name in the second predecessor project.
    for verb in ("preempt", *(["preemption"] if prefix else [])):
        assert await post(client, f"{prefix}/{verb}", META) == META
    assert "--bind" in (await post(client, f"{prefix}/bind", BINDING))["Error"]


@pytest.mark.parametrize("path", EXTENDER_ENDPOINTS)
async def test_an_invalid_request_is_a_400_with_the_reason(
    client: TestClient[Any, Any], path: str
) -> None:
    bindings = ({**BINDING, key: value} for key, value in (("Node", ""), ("PodName", "")))
    broken = (b"", b"{", b"[]", b"\x00", b"null", b"1e999", b"{}", b"[" * 10**5)
    for body in (*broken, *bindings, {**BINDING, "PodName": 1}):
        assert (await post(client, path, body, 400))["error"]


@pytest.mark.parametrize("path", EXTENDER_ENDPOINTS)
async def test_requests_from_browser_pages_are_refused(
    client: TestClient[Any, Any], path: str
) -> None:
    """Any site's page can POST to a forwarded port; browsers then add the Origin header."""
    async with client.get(path) as response:
        assert response.status == 405
        assert await response.json() == {"error": f"GET is not for {path}; use POST"}
    for origin in ("http://elsewhere.example", "null", "http://localhost:9000"):
        answer = await post(client, path, ask(), 403, Origin=origin)
        assert "schedulers" in answer["error"]


async def test_the_extender_is_served_only_while_the_rules_have_an_extender_section() -> None:
    asking = World().tick().extender
    wanted = [False]
    shown = make_store(Clock())
    async with TestClient(
        TestServer(make_app(shown, lambda: asking if wanted[0] else None))
    ) as client:
        for path in EXTENDER_ENDPOINTS:
            error = (await post(client, path, ask(), 404))["error"]
            assert error == "the scheduler extender is off: rules.yaml has no section `extender`"
        wanted[0] = True
        assert (await post(client, "/filter", ask()))["NodeNames"]
    assert b'dynsched_extender_requests_total{verb="filter"} 1.0' in shown.metrics.exposition()
    async with TestClient(TestServer(make_app(make_store(Clock())))) as client:
        await post(client, "/filter", ask(), 404)


async def test_a_large_body_of_whole_nodes_is_accepted_and_one_above_the_limit_refused(
    client: TestClient[Any, Any],
) -> None:
    padding = ' "x":"' + "y" * 12_000 + '"'
    items = ",".join(f'{{"metadata":{{"name":"n{n}"}},{padding}}}' for n in range(1000))
    body = f'{{"Nodes":{{"items":[{items}]}}}}'.encode()
    assert len(await post(client, "/prioritize", body)) == 1000
    assert (await post(client, "/filter", b" " * (MAX_BODY + 1), 413))["error"]
    assert (await post(client, "/filter", ask()))["NodeNames"] == ["a", "b", "c"]
