"""The security headers that every response has, whichever handler sends it."""

import asyncio
import logging
from dataclasses import replace
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer
from extender_support import World
from reader_support import bearer
from web_support import PATHS, Kubernetes, application

from dynsched.web.auth import require_token
from dynsched.web.extender import EXTENDER_ENDPOINTS, make_extender_app
from dynsched.web.server import WebServer, parse_address

EXPECTED = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Server": "dynsched",
}


async def check(client: TestClient[Any, Any], status: int, path: str, **ask: Any) -> Any:
    """The JSON body; asserts the status and all security headers."""
    async with client.request(ask.pop("method", "GET"), path, **ask) as response:
        assert response.status == status, path
        assert {name: response.headers.getall(name) for name in EXPECTED} == {
            name: [value] for name, value in EXPECTED.items()
        }, path
        policy = response.headers["Content-Security-Policy"]
        for rule in ("default-src 'none'", "base-uri 'none'", "frame-ancestors 'none'"):
            assert rule in policy
        assert "unsafe" not in policy
        assert response.headers["Cache-Control"] in ("no-store", "no-cache")
        assert "Access-Control-Allow-Origin" not in response.headers
        # It would apply to other ports too.
        assert "Strict-Transport-Security" not in response.headers
        return await response.json() if response.content_type == "application/json" else None


async def test_refusals_and_errors_have_the_security_headers_too() -> None:
    api_server = Kubernetes()
    guard = require_token(api_server.user_of, api_server.may_get, ("/filter",))
    app, ticks = application(guards=[guard])
    ann = bearer("anns")
    async with TestClient(TestServer(app)) as client:
        for path in PATHS:
            await check(client, 200, path, headers={"Accept": "text/html", **ann})
        await check(client, 404, "/nothing")
        for headers, status in (({}, 401), (bearer("nobodys"), 401), (bearer("bobs"), 403)):
            await check(client, status, "/nodes", headers=headers)
        ticks.tick = replace(ticks.tick, rules=None)
        for method, path, status in (
            ("HEAD", "/nodes", 200),
            ("PUT", "/nodes", 405),
            ("GET", "/rules", 500),
            ("POST", "/filter", 400),
        ):
            await check(client, status, path, method=method, headers=ann)


async def test_the_extenders_own_address_has_the_headers_and_serves_nothing_else() -> None:
    app = make_extender_app(World().tick().asked, lambda _: None)
    async with TestClient(TestServer(app)) as client:
        asked = {"NodeNames": ["a", "d"]}
        found = await check(client, 200, "/filter", method="POST", json=asked)
        assert found["NodeNames"] == ["a"]
        for path in PATHS:
            assert (await check(client, 404, path))["endpoints"] == list(EXTENDER_ENDPOINTS)


@pytest.mark.parametrize("line", [b"Authorization Bearer s3cret", b"Content-Length: s3cret"])
async def test_the_log_does_not_quote_invalid_http(line: bytes, caplog: Any) -> None:
    """A malformed header can contain a token."""
    with caplog.at_level(logging.DEBUG):
        async with WebServer(application()[0], parse_address("127.0.0.1:0")) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n%b\r\n\r\n" % line)
            assert (await reader.read()).split()[1] == b"400"
            writer.close()
    assert "s3cret" not in caplog.text
