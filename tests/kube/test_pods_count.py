"""How many pods run: counted by a list of metadata, and kept up by a watch from its version on."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from dynsched.engine.load.recent import RecentPods
from dynsched.kube.failures import Call, ExpiredError
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


async def test_a_list_that_fails_is_told_and_tried_again(caplog: Any) -> None:
    """It is the longest list of all, and first to fail on an API server that has much to do."""
    api = Api(event("ADDED", "new"))
    api.failures = ["HTTP 500"] * 2
    watch = Watched(api)
    await watch.until(lambda: len(watch.recent) == 1)
    assert (watch.running, watch.error) == (6, None)
    assert caplog.text.count("cannot list pods: HTTP 500") == 1


@pytest.mark.parametrize(
    ("error", "gap", "versions"),
    [
        (ClusterError("down"), 20.0, ["7", "8"]),
        # Minutes later the metrics show what was bound and ended meanwhile: it counted twice.
        (ClusterError("down"), 3600.0, ["7", "99"]),
        (ExpiredError(Call("watch", "pods", "/api/v1/pods")), 1.0, ["7", "99"]),
    ],
    ids=["short-gap", "long-gap", "version-too-old"],
)
async def test_an_interrupted_watch_goes_on_where_it_was_or_begins_anew(
    error: Exception, gap: float, versions: list[str]
) -> None:
    api = Api()
    api.watches = [((event("ADDED", "before"),), error), ((), None)]
    watch = Watched(api)

    def ended() -> None:
        api.version, watch.now = "99", watch.now + gap

    api.ended = ended
    await watch.until(lambda: len(api.watched) == 2 and watch.running is not None)
    assert api.watched == versions
