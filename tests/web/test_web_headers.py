"""What every answer tells a browser that it must not do, whoever answers."""

import asyncio
import logging
from dataclasses import replace
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer
from extender_support import World
from reader_support import bearer
from web_support import PATHS, Kubernetes, application

from dynsched.web.app import make_extender_app
from dynsched.web.auth import require_token
from dynsched.web.extender import EXTENDER_ENDPOINTS
from dynsched.web.server import WebServer, parse_address

EXPECTED = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Server": "dynsched",
}


def check(response: Any) -> None:
    for name, value in EXPECTED.items():
        assert response.headers.getall(name) == [value], (response.url, response.status, name)
    policy = response.headers["Content-Security-Policy"]
    for rule in ("default-src 'none'", "base-uri 'none'", "frame-ancestors 'none'"):
        assert rule in policy
    assert "unsafe" not in policy
    assert response.headers["Cache-Control"] in ("no-store", "no-cache")
    assert "Access-Control-Allow-Origin" not in response.headers
    assert "Strict-Transport-Security" not in response.headers  # it would hold for other ports too


async def test_every_answer_has_them_also_refusals_and_faults() -> None:
    app, ticks = application()
    async with TestClient(TestServer(app)) as client:
        for path in [*PATHS, "/page/page.js", "/page/nothing.js", "/nothing"]:
            async with client.get(path, headers={"Accept": "text/html"}) as response:
                check(response)
        async with client.get("/page/page.js") as response:
            known = {"If-None-Match": response.headers["ETag"]}
        ticks.tick = replace(ticks.tick, rules=None)
        for method, path, status in (
            ("GET", "/page/page.js", 304),
            ("HEAD", "/nodes", 200),
            ("PUT", "/nodes", 405),
            ("GET", "/rules", 500),
            ("POST", "/filter", 400),
        ):
            async with client.request(method, path, headers=known) as response:
                assert response.status == status
                check(response)


async def test_who_is_not_let_in_gets_them_too() -> None:
    api_server = Kubernetes()
    guard = require_token(api_server.user_of, api_server.may_get, ())
    async with TestClient(TestServer(application(guards=[guard])[0])) as client:
        for headers, status in (({}, 401), (bearer("nobodys"), 401), (bearer("bobs"), 403)):
            async with client.get("/nodes", headers=headers) as response:
                assert response.status == status
                check(response)


@pytest.mark.parametrize("line", [b"Authorization Bearer s3cret", b"Content-Length: s3cret"])
async def test_the_log_does_not_quote_what_is_no_http(line: bytes, caplog: Any) -> None:
    """A damaged header field can be a token."""
    with caplog.at_level(logging.DEBUG):
        async with WebServer(application()[0], parse_address("127.0.0.1:0")) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n%b\r\n\r\n" % line)
            assert (await reader.read()).split()[1] == b"400"
            writer.close()
    assert "s3cret" not in caplog.text


async def test_the_extender_on_its_own_address_has_them_and_answers_nothing_else() -> None:
    app = make_extender_app(application()[1], World().tick().asked)
    async with TestClient(TestServer(app)) as client:
        async with client.post("/filter", json={"NodeNames": ["a", "d"]}) as response:
            assert (await response.json())["NodeNames"] == ["a"]
            check(response)
        for path in PATHS:
            async with client.get(path) as response:
                assert response.status == 404
                assert (await response.json())["endpoints"] == list(EXTENDER_ENDPOINTS)
                check(response)
