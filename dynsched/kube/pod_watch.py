"""Watches which pods were just bound or have just ended. It does not use kopf, which would keep
every pod. A bound pod is kept as a few numbers until the metrics show it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from functools import lru_cache
from http import HTTPStatus
from typing import Final, NoReturn

import msgspec

from dynsched.core.load.pods import BoundPod, PodRequestTotals, workload_of
from dynsched.core.load.recent import RecentPods
from dynsched.kube import failures
from dynsched.kube.failures import ApiRequest, ExpiredError
from dynsched.kube.lists import pages
from dynsched.kube.pod_requests import (
    ASSIGNED_NOT_TERMINATED,
    PodMeta,
    PodSpec,
    PodStatus,
    requests_of,
)
from dynsched.kube.transport import KubeApi
from dynsched.util.errors import ClusterError
from dynsched.util.logs import LoggedKinds
from dynsched.util.stopping import Backoff, jittered, run_until_stopped

logger = logging.getLogger(__name__)

_GAP: Final = 70.0
"""Maximum seconds without an event after which a watch is continued; more than between two
bookmarks. Events of a longer gap would count as of now, although the metrics already show them."""
_WATCH_SECONDS: Final = 290
"""Seconds after which the server is asked to end a watch (timeoutSeconds)."""
_SILENCE: Final = 120.0
"""Seconds without a byte after which a watch ends. Bookmarks come about every minute."""
_FIRST_WAIT: Final = 1.0
_MAX_BACKOFF: Final = 30.0
_LIST: Final = ApiRequest("list", "pods", "/api/v1/pods")
_WATCH: Final = ApiRequest("watch", "pods", "/api/v1/pods")


class _Pod(msgspec.Struct, gc=False):
    metadata: PodMeta = msgspec.field(default_factory=PodMeta)
    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: PodStatus = msgspec.field(default_factory=PodStatus)


class _Event(msgspec.Struct, gc=False):
    """One line of a watch."""

    type: str
    object: msgspec.Raw


_pod = msgspec.json.Decoder(_Pod)
_event = msgspec.json.Decoder(_Event)


class CountedPod(msgspec.Struct, frozen=True, gc=False):
    """The data that is kept for each pod with a node."""

    node: str
    requests: PodRequestTotals
    has_order: bool


# Many pods have the same requests and node, and share these objects. Python 3.12 would never free a
# name from `sys.intern`, and a pod may name any node.
_requests = lru_cache(maxsize=4096)(PodRequestTotals)
_node_name = lru_cache(maxsize=16_384)(str)


class PodCounts:
    """Totals of the pods that have a node and have not ended. An event replaces what was counted
    for its pod before, so that the sums cannot drift. ``requested`` is by node. A pod takes about
    230 bytes.
    """

    def __init__(self) -> None:
        self._pods: dict[str, CountedPod] = {}
        self.requested: dict[str, PodRequestTotals] = {}
        self.with_order = 0

    def __len__(self) -> int:
        return len(self._pods)

    def put(self, uid: str, pod: CountedPod) -> None:
        """Count a pod, instead of its previous state."""
        self.drop(uid)
        self._pods[uid] = pod
        self._add(pod, 1)

    def drop(self, uid: str) -> None:
        """Stop counting a pod, if it was counted."""
        before = self._pods.pop(uid, None)
        if before is not None:
            self._add(before, -1)

    def _add(self, pod: CountedPod, sign: int) -> None:
        self.with_order += sign * pod.has_order
        pods, cpu, memory = self.requested.get(pod.node, PodRequestTotals())
        if pods + sign:
            self.requested[pod.node] = PodRequestTotals(
                pods + sign, cpu + sign * pod.requests.cpu, memory + sign * pod.requests.memory
            )
        else:
            del self.requested[pod.node]


@dataclass(eq=False)
class PodWatch:
    """Reports every bound and every ended pod to ``pods``. ``error``: why this does not work at the
    moment; None if it does.
    """

    api: KubeApi
    pods: RecentPods
    clock: Callable[[], float] = time.monotonic
    counts: PodCounts = field(default_factory=PodCounts, init=False)
    error: str | None = field(default=None, init=False)
    _is_listed: bool = field(default=False, init=False)
    _version: str = field(default="", init=False)
    """The resourceVersion to continue the watch from; empty to start again with a list."""
    _heard_at: float = field(default=-math.inf, init=False)
    _logged: LoggedKinds = field(default_factory=LoggedKinds, init=False)

    @property
    def running(self) -> int | None:
        """Number of pods that have a node and have not ended; None until they are listed."""
        return len(self.counts) if self._is_listed else None

    async def run(self, stop: asyncio.Event) -> None:
        """List and watch, again and again, until ``stop`` is set."""
        await run_until_stopped(stop, self._run())

    async def _run(self) -> NoReturn:
        backoff = Backoff(_FIRST_WAIT, _MAX_BACKOFF)
        while True:
            began, failure = self.clock(), None
            try:
                await self.follow(await self.begin())
            except ExpiredError:
                self._version = ""
            except ClusterError as error:
                failure = error
                self._fail(str(error))
            lasted = self.clock() - began
            if failure is None or lasted > _MAX_BACKOFF:
                backoff.reset()
            if failure is not None:  # also a 403: an API server that just started knows no roles
                wait = backoff.next()
            else:  # a server may end each watch at once
                wait = 0.0 if lasted > _FIRST_WAIT else jittered(_FIRST_WAIT)
            await asyncio.sleep(wait)

    async def begin(self) -> str:
        """The resourceVersion to watch from: where the last watch ended or, if that is too long
        ago, that of a new list. Raises ClusterError.
        """
        if self._version and self.clock() - self._heard_at <= _GAP:
            return self._version
        counts, version, self._version = PodCounts(), "", ""
        # This takes half a minute for 100,000 pods, which is less than _GAP.
        async for page in pages(self.api, _LIST, _Pod, query=ASSIGNED_NOT_TERMINATED):
            for pod in page.items or ():
                counts.put(pod.metadata.uid, _counted(pod))
            version = page.metadata.version
            del page
        self.counts, self._is_listed = counts, True
        self._version, self._heard_at = version, self.clock()
        return version

    async def follow(self, version: str) -> None:
        """Watch from ``version`` until the server ends the watch or is silent for too long.
        ExpiredError for a 410, as status or event; else ClusterError.
        """
        where = {"resourceVersion": version, "allowWatchBookmarks": "true", "watch": "1"}
        query = {**ASSIGNED_NOT_TERMINATED, **where, "timeoutSeconds": str(_WATCH_SECONDS)}
        async with self.api.stream(_WATCH, query, _SILENCE) as response:
            self._recover()
            with contextlib.suppress(TimeoutError):
                async for line in _lines(response.content.iter_any()):
                    self.take(line)

    def take(self, line: bytes) -> None:
        """Process the event in a line. A malformed one is ignored and does not end the watch."""
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
            event = _event.decode(line)
            if event.type == "ERROR":
                status = failures.status_in(event.object)
                code = status.code if status else 0
                if code == HTTPStatus.GONE:
                    raise ExpiredError(_WATCH)
                raise ClusterError(f"cannot {_WATCH}: the API server ended it with code {code}")
            self._recover()
            self._observe(event.type, _pod.decode(event.object))

    def _observe(self, kind: str, pod: _Pod) -> None:
        uid = pod.metadata.uid
        self._version = pod.metadata.version or self._version
        if kind == "BOOKMARK" or not uid or not pod.spec.node:
            return
        if kind != "DELETED":
            self.counts.put(uid, _counted(pod))
            if kind == "ADDED":
                self.pods.add(_bound(pod), self.clock())
            if pod.status.has_run:
                self.pods.start(uid, self.clock())
            return
        # A pod that finishes no longer matches the watch's selector. The server reports that
        # once, as DELETED, with the object as it was before.
        self.counts.drop(uid)
        if pod.status.has_run:
            self.pods.end(_bound(pod), self.clock())
        else:
            self.pods.never_ran(uid)

    def _recover(self) -> None:
        self._heard_at, self.error = self.clock(), None
        if self._logged.forget("watch"):
            logger.info("the watch of pods has recovered; recently bound pods are counted again")

    def _fail(self, error: str) -> None:
        self.error = error
        if self._logged.is_new("watch", error):
            logger.warning("recently bound pods are not counted: %s", error)


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    rest = b""
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line
    if rest:
        yield rest


def _counted(pod: _Pod) -> CountedPod:
    annotations = pod.metadata.annotations
    has_order = annotations is not None and annotations.order is not None
    requested = _requests(1, *requests_of(pod.spec, pod.status, least=(0.0, 0.0)))
    return CountedPod(_node_name(pod.spec.node), requested, has_order)


def _bound(pod: _Pod) -> BoundPod:
    cpu, memory = requests_of(pod.spec, pod.status)
    return BoundPod(
        uid=pod.metadata.uid,
        node=pod.spec.node,
        cpu=cpu,
        memory=memory,
        workload=workload_of(pod.metadata.namespace, pod.metadata.name),
        name=f"{pod.metadata.namespace}/{pod.metadata.name}",
    )
