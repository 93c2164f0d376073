"""`/nodes` is sent once a tick to a client that says what it has."""

from __future__ import annotations

import pytest
from aiohttp.test_utils import TestClient, TestServer
from snapshots import NOON, example
from store_support import Clock, make_store

from dynsched.web.api import make_app


@pytest.mark.parametrize("path", ["/nodes", "/nodes?marked=true"])
async def test_what_a_client_has_is_not_sent_again_until_the_next_tick(path) -> None:
    snapshots = make_store(Clock(NOON))
    async with TestClient(TestServer(make_app(snapshots))) as client:
        async with client.get(path) as early:
            assert (early.status, "ETag" in early.headers) == (503, False)
        snapshots.publish(example())
        async with client.get(path) as first:
            assert first.status == 200
            known = {"If-None-Match": first.headers["ETag"]}
        async with client.get(path, headers=known) as same:
            assert (same.status, await same.read()) == (304, b"")
            assert same.headers["Cache-Control"] == "no-store"
        snapshots.publish(example())
        async with client.get(path, headers=known) as news:
            assert news.status == 200
            assert news.headers["ETag"] != known["If-None-Match"]


async def test_another_process_has_other_etags() -> None:
    found = set()
    for _ in range(2):
        snapshots = make_store(Clock(NOON))
        async with TestClient(TestServer(make_app(snapshots))) as client:
            snapshots.publish(example())
            async with client.get("/nodes") as answer:
                found.add(answer.headers["ETag"])
    assert len(found) == 2
