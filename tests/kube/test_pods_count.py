"""How many pods run: counted by a list of metadata, and kept up by a watch from its version on."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import msgspec

from dynsched.engine.load.recent import RecentPods
from dynsched.kube import pod_watch
from dynsched.kube.failures import ExpiredError
from dynsched.kube.pod_watch import PodWatch
from dynsched.util.errors import ClusterError


class Api:
    """Lists five pods in two pages; each watch is lines and an error, and the last stays open."""

    def __init__(self, *lines: Mapping[str, Any]) -> None:
        self.failures: list[str] = []
        self.config = SimpleNamespace(server="https://api")
        self.version = "7"
        self.lists: list[Mapping[str, str]] = []
        self.watched: list[str] = []
        self.watches: list[tuple[tuple[Mapping[str, Any], ...], Exception | None]] = [(lines, None)]
        self.ended: Callable[[], None] = lambda: None

    async def call(
        self, _: Any, *, query: Any, shape: Any, headers: Any = None, **_more: Any
    ) -> Any:
        self.lists.append(query)
        if query["limit"] != "1":
            assert "PartialObjectMetadataList" in headers["Accept"]
            if self.failures:
                raise ClusterError(f"cannot list pods: {self.failures.pop()}")
        more = query["limit"] != "1" and "continue" not in query
        items = [{"metadata": {"uid": f"{more}-{n}"}} for n in range(3 if more else 2)]
        metadata = {"resourceVersion": self.version, "continue": "next" if more else ""}
        body = json.dumps({"metadata": metadata, "items": items}).encode()
        return SimpleNamespace(status=200, body=msgspec.json.decode(body, type=shape))

    @asynccontextmanager
    async def stream(self, _: Any, query: Mapping[str, str], __: float) -> AsyncIterator[Any]:
        self.watched.append(query["resourceVersion"])
        lines, error = self.watches.pop(0)

        async def parts() -> AsyncIterator[bytes]:
            for line in lines:
                yield json.dumps(line).encode() + b"\n"
            if error is not None:
                self.ended()
                raise error
            await asyncio.Event().wait()

        yield SimpleNamespace(content=SimpleNamespace(iter_any=parts))


def event(kind: str, name: str) -> Mapping[str, Any]:
    metadata = {"uid": name, "namespace": "shop", "name": name, "resourceVersion": "8"}
    return {"type": kind, "object": {"metadata": metadata, "spec": {"nodeName": "a"}}}


class Watched(PodWatch):
    """A watch of pods that runs until something is so, at a time that stands still."""

    def __init__(self, api: Api) -> None:
        self.now = 1_000.0
        self.recent = RecentPods()
        super().__init__(api, self.recent, clock=lambda: self.now)  # type: ignore[arg-type]

    async def until(self, is_so: Callable[[], bool]) -> None:
        stop = asyncio.Event()
        task = asyncio.create_task(self.run(stop))
        async with asyncio.timeout(60):
            while not is_so():
                await asyncio.sleep(0.01)
            stop.set()
            await task


async def test_a_list_that_fails_is_told_and_tried_again(caplog: Any, monkeypatch: Any) -> None:
    """It is the longest list of all, and first to fail on an API server that has much to do."""
    monkeypatch.setattr("dynsched.kube.pod_watch._FIRST_WAIT", 0.01)
    api = Api(event("ADDED", "new"))
    api.failures = ["HTTP 500", "no answer"] * 2
    watch = Watched(api)
    await watch.until(lambda: len(watch.recent) == 1)
    assert (watch.running, watch.error) == (6, None)
    for why in ("HTTP 500", "no answer"):  # once each, though they take turns
        assert caplog.text.count(f"just-bound pods are not counted: cannot list pods: {why}") == 1


async def interrupted(error: Exception, gap: float, monkeypatch: Any) -> tuple[Watched, Api]:
    """A watch that ended by the error, and is taken up after the gap, at the version 99."""
    monkeypatch.setattr("dynsched.kube.pod_watch._FIRST_WAIT", 0.01)
    api = Api()
    api.watches = [((event("ADDED", "before"),), error), ((), None)]
    watch = Watched(api)

    def ended() -> None:
        api.version, watch.now = "99", watch.now + gap

    api.ended = ended
    await watch.until(lambda: len(api.watched) == 2 and watch.running is not None)
    return watch, api


async def test_after_a_short_gap_it_goes_on_where_it_was(monkeypatch: Any) -> None:
    _, api = await interrupted(ClusterError("down"), 20.0, monkeypatch)
    assert api.watched == ["7", "8"]


async def test_after_a_long_gap_it_begins_anew(monkeypatch: Any) -> None:
    """Minutes later the metrics show what was bound and ended meanwhile: it counted twice."""
    watch, api = await interrupted(ClusterError("down"), pod_watch._GAP + 1, monkeypatch)
    assert api.watched == ["7", "99"]
    assert watch.running == 5


async def test_where_its_version_is_too_old_it_begins_anew(monkeypatch: Any) -> None:
    _, api = await interrupted(ExpiredError(pod_watch._WATCH), 1.0, monkeypatch)
    assert api.watched == ["7", "99"]
