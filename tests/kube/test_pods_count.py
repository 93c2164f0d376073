"""How many pods run: counted by a list of metadata, and kept up by the watch."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Mapping
from types import SimpleNamespace
from typing import Any

import msgspec

from dynsched.core.errors import ClusterError
from dynsched.core.recent import RecentPods
from dynsched.kube.pods import PodWatch

NOW = 1_000.0


class Api:
    """Two pages of running pods, then the lines of a watch; ``failing``: the count fails."""

    def __init__(self, *lines: Mapping[str, Any], failing: bool = False) -> None:
        self.failing = failing
        self.queries: list[Mapping[str, str]] = []
        self._lines = lines
        self.done = asyncio.Event()

    async def call(self, _: Any, *, query: Any, shape: Any, headers: Any = None) -> Any:
        self.queries.append(query)
        if query["limit"] != "1":
            assert "PartialObjectMetadataList" in headers["Accept"]
            if self.failing:
                raise ClusterError("cannot list pods: HTTP 500")
        more = query["limit"] != "1" and "continue" not in query
        items = [{"metadata": {"name": f"p{n}"}} for n in range(3 if more else 2)]
        metadata = {"resourceVersion": "7", "continue": "next" if more else ""}
        body = json.dumps({"metadata": metadata, "items": items}).encode()
        return SimpleNamespace(body=msgspec.json.decode(body, type=shape))

    async def watch(self, *_: Any) -> AsyncIterator[bytes]:
        for line in self._lines:
            yield json.dumps(line).encode()
        self.done.set()
        await asyncio.Event().wait()


def event(kind: str, name: str, **status: Any) -> Mapping[str, Any]:
    metadata = {"uid": name, "namespace": "shop", "name": name, "resourceVersion": "8"}
    return {
        "type": kind,
        "object": {"metadata": metadata, "spec": {"nodeName": "a"}, "status": status},
    }


async def watched(api: Api, until: asyncio.Event | None = None, *, counts: bool = True) -> PodWatch:
    watch = PodWatch(api, RecentPods(), clock=lambda: NOW, counts=lambda: counts)  # type: ignore[arg-type]
    stop = asyncio.Event()
    task = asyncio.create_task(watch.run(stop))
    async with asyncio.timeout(5):
        if until is None:
            while watch.error is None:
                await asyncio.sleep(0.01)
        else:
            await until.wait()
        stop.set()
        await task
    return watch


async def test_running_pods_are_counted_by_pages_of_metadata() -> None:
    api = Api()
    assert (await watched(api, api.done)).running == 5
    assert [query.get("limit") for query in api.queries] == ["1", "500", "500"]
    assert "status.phase=Running" in api.queries[1]["fieldSelector"]
    assert api.queries[2]["continue"] == "next"


async def test_the_watch_keeps_the_number_up() -> None:
    finished = {"containerStatuses": [], "phase": "Running"}
    api = Api(event("ADDED", "new"), event("ADDED", "more"), event("DELETED", "old", **finished))
    assert (await watched(api, api.done)).running == 6


async def test_a_count_that_fails_does_not_keep_the_watch_from_beginning(caplog: Any) -> None:
    """It is the longest list of all, and first to fail on an API server that has much to do."""
    api = Api(event("ADDED", "new"), failing=True)
    with caplog.at_level(logging.INFO):
        watch = await watched(api, api.done)
    assert (watch.running, watch.error) == (None, None)
    assert "cannot list pods: HTTP 500" in caplog.text


async def test_where_no_expected_load_is_used_nothing_is_counted() -> None:
    api = Api(event("ADDED", "new"))
    assert (await watched(api, api.done, counts=False)).running is None
    assert [query.get("limit") for query in api.queries] == ["1"]
