"""--web-auth over a real socket: who may read; the API server is a test double."""

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio
from aiohttp.test_utils import TestClient, TestServer
from reader_support import bearer
from store_support import Clock
from web_support import PATHS, Kubernetes, application

from dynsched.util.errors import ClusterError
from dynsched.web.auth import GRANTED_SECONDS, require_token
from dynsched.web.extender import EXTENDER_ENDPOINTS
from dynsched.web.responses import PROBES

OPEN = PROBES | EXTENDER_ENDPOINTS.keys()


@pytest.fixture
def kubernetes() -> Kubernetes:
    return Kubernetes()


@pytest.fixture
def clock() -> Clock:
    return Clock(1000.0)


@pytest_asyncio.fixture
async def client(kubernetes: Kubernetes, clock: Clock) -> AsyncIterator[TestClient[Any, Any]]:
    guard = require_token(kubernetes.user_of, kubernetes.may_get, OPEN, clock=clock)
    app, _ = application(guards=[guard])
    async with TestClient(TestServer(app)) as found:
        yield found


@pytest.fixture
def get(client: TestClient[Any, Any]) -> Callable[..., Any]:
    async def ask(path: str, token: str | None = None, **headers: str) -> tuple[int, Any, Any]:
        sent = {**headers, **(bearer(token) if token else {})}
        async with client.get(path, headers=sent) as response:
            text = await response.text()
            is_json = response.content_type == "application/json"
            return response.status, json.loads(text) if is_json else text, response.headers

    return ask


async def test_an_authorized_reader_gets_everything_and_others_nothing(
    get, client, kubernetes
) -> None:
    for path in PATHS:
        status, body, headers = await get(path)
        assert status == (200 if path in PROBES else 401)
        if status == 401:
            assert headers["WWW-Authenticate"] == 'Bearer realm="dynsched"'
            assert "Authorization: Bearer TOKEN" in body["error"]
    assert (await get("/page/page.js"))[0] == 401
    assert kubernetes.asked == []
    for path in PATHS:
        assert (await get(path, "anns"))[0] == 200
    async with client.head("/nodes", headers=bearer("bobs")) as response:
        assert response.status == 403
    status, body, headers = await get("/nodes", "nobodys")
    assert status == 401
    assert headers["WWW-Authenticate"] == 'Bearer realm="dynsched", error="invalid_token"'
    assert "does not accept the token" in body["error"]
    assert "nobodys" not in json.dumps(body) + str(headers)
    status, body, _ = await get("/nodes/worker-1", "bobs")
    assert status == 403
    assert body["error"].startswith("user bob may not get /nodes/worker-1: ")
    assert 'nonResourceURLs: ["/nodes/worker-1"] and verbs: [get]' in body["error"]
    assert (await get("/metrics", "bobs"))[0] == 200


NO_TOKENS = "|anns|Basic YW5uOnB3|Bearer|Bearer |Bearer two words|Bearer ann\u00e9|Bearer =a"


async def test_requests_without_a_valid_bearer_token_do_not_reach_the_api_server(
    client, kubernetes
) -> None:
    for sent in (*([each] for each in NO_TOKENS.split("|")), ["Bearer anns", "Bearer bobs"]):
        headers = [("Authorization", each) for each in sent]
        async with client.get("/nodes", headers=headers) as response:
            assert response.status == 401, sent
    assert kubernetes.asked == []
    async with client.get("/nodes", headers={"Authorization": "bearer  anns"}) as response:
        assert response.status == 200


@pytest.mark.parametrize(
    ("sent", "asked"),
    [
        ("/nodes?x=y", "/nodes"),
        ("/%6eodes", "/nodes"),
        ("/nodes/a%2Fb", "/nodes/a/b"),
        ("/page/page.js", "/page/page.js"),
    ],
)
async def test_the_permission_is_checked_for_the_decoded_path(
    client, kubernetes, sent, asked
) -> None:
    url = client.make_url("/").with_path("").join(type(client.make_url("/"))(sent, encoded=True))
    async with client.session.get(url, headers=bearer("bobs")) as response:
        assert response.status == 403
    assert kubernetes.asked[-1] == ("bob", asked)


async def test_unknown_paths_and_schedulers_cause_no_review(get, client, kubernetes) -> None:
    assert (await get("/nothing"))[0] == 404
    assert (await get("/nodes/a/b", "anns"))[0] == 404
    async with client.post("/nodes") as response:
        assert response.status == 405
    for path in EXTENDER_ENDPOINTS:
        async with client.post(path, json={"NodeNames": ["a"]}) as response:
            assert response.status in (200, 400), path
    assert kubernetes.asked == []


async def test_grants_are_cached_for_a_minute_and_refusals_not_at_all(
    get, kubernetes, clock
) -> None:
    async def status(path: str, token: str) -> int:
        return (await get(path, token))[0]

    assert await status("/nodes", "anns") == 200
    clock.now += GRANTED_SECONDS / 2
    await status("/rules", "anns")  # a request for another path extends neither cached answer
    kubernetes.rights.clear()
    assert await status("/nodes", "anns") == 200
    clock.now += GRANTED_SECONDS / 2
    assert await status("/nodes", "anns") == 403
    kubernetes.rights |= {("ann", "/nodes")}
    assert await status("/nodes", "anns") == 200
    kubernetes.users.clear()
    assert await status("/nodes", "anns") == 200
    assert await status("/nodes", "bobs") == 401
    kubernetes.users |= {"bobs": "ann"}
    assert await status("/nodes", "bobs") == 200


async def test_cached_grants_outlast_the_api_server_and_its_errors_are_not_cached(
    get, kubernetes, clock, caplog
) -> None:
    assert (await get("/nodes", "anns"))[0] == 200
    kubernetes.away = ClusterError("https://10.0.0.1: refused: a review of anns-secret and bobs")
    assert (await get("/nodes", "anns"))[0] == 200
    for path, token in (("/nodes", "anns-secret"), ("/nodes", "bobs"), ("/rules", "anns")):
        status, body, headers = await get(path, token)
        assert status == 503
        assert headers["Retry-After"] == "5"
        assert "10.0.0.1" not in body["error"]
    assert "10.0.0.1: refused: a review of *** and bobs" in caplog.text
    assert "anns-secret" not in caplog.text
    clock.now += GRANTED_SECONDS
    assert (await get("/nodes", "anns"))[0] == 503
    assert (await get("/healthz"))[0] == 200
    kubernetes.away = None
    assert (await get("/nodes", "anns"))[0] == 200
