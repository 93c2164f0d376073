"""Which pods were bound and ended a moment ago: a watch of our own, of pods that have a node.

Not kopf's: it would list and keep 150,000 pods at 0.6 ms each. Only what happens from now on
counts, and nothing is kept but a few numbers a pod, until the metrics show it. What the watch
misses is wrong for no longer than that. How many pods run is counted by a list of their metadata,
once an hour, and kept up by the watch.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Callable
from typing import Final

import msgspec

from dynsched.core.errors import ClusterError
from dynsched.core.formatting import parse_time
from dynsched.core.pods import BoundPod
from dynsched.core.recent import WINDOW, RecentPods
from dynsched.core.workloads import workload_of
from dynsched.kube.failures import Call
from dynsched.kube.following import keep_following
from dynsched.kube.pod_requests import PodSpec, requests_of
from dynsched.kube.stream import StreamingApi
from dynsched.kube.versions import is_older

logger = logging.getLogger(__name__)

_PATH: Final = "/api/v1/pods"
_LIST: Final = Call("list", "pods", "GET", _PATH)
_WATCH: Final = Call("watch", "pods", "GET", _PATH)
_WITH_NODE: Final = {"fieldSelector": "spec.nodeName!="}
"""With it, a pod that is bound comes as ADDED; those that have a node already never do."""
_RUNNING: Final = {"fieldSelector": "spec.nodeName!=,status.phase=Running"}
_FINISHED: Final = frozenset({"Succeeded", "Failed"})
_PAGE: Final = 500
_ODD: Final = "an event about a pod could not be read and is ignored"
"""An odd object must not end the watch; it counts as no pod."""
_COUNT_AGAIN: Final = 3600.0
"""Seconds. Not every end of a pod is seen; a new watch, which begins every half hour or so, then
counts anew."""
_METADATA_ONLY: Final = {
    "Accept": "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1, application/json"
}

_GONE: Final = 410


class _Spec(PodSpec, gc=False):
    node: str = msgspec.field(name="nodeName", default="")


class _Metadata(msgspec.Struct, gc=False):
    uid: str = ""
    namespace: str = ""
    name: str = ""
    version: str = msgspec.field(name="resourceVersion", default="")
    deleted: str | None = msgspec.field(name="deletionTimestamp", default=None)


class _Terminated(msgspec.Struct, gc=False):
    finished: str | None = msgspec.field(name="finishedAt", default=None)


class _State(msgspec.Struct, gc=False):
    terminated: _Terminated | None = None


class _ContainerStatus(msgspec.Struct, gc=False):
    state: _State = msgspec.field(default_factory=_State)


class _Status(msgspec.Struct, gc=False):
    phase: str = ""
    containers: list[_ContainerStatus] | None = msgspec.field(
        name="containerStatuses", default=None
    )


class _Pod(msgspec.Struct, gc=False):
    """What is looked at of a Pod. In an event ERROR this is a Status: ``code`` tells, and
    ``status`` is a text.
    """

    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: msgspec.Raw = msgspec.field(default_factory=lambda: msgspec.Raw(b"{}"))
    code: int = 0


class _Event(msgspec.Struct, gc=False):
    type: str
    object: msgspec.Raw


class _ListMeta(msgspec.Struct, gc=False):
    version: str = msgspec.field(name="resourceVersion", default="")
    more: str = msgspec.field(name="continue", default="")


class _Item(msgspec.Struct, gc=False):
    """Of a listed pod nothing is looked at."""


class _List(msgspec.Struct, gc=False):
    metadata: _ListMeta
    items: list[_Item] | None = None


_event = msgspec.json.Decoder(_Event)
_pod = msgspec.json.Decoder(_Pod)
_status = msgspec.json.Decoder(_Status)


class _ExpiredError(ClusterError):
    """The resourceVersion is too old: begin again with the present one."""


class PodWatch:
    """Tells ``pods`` of every pod that is bound, and of every one that ends, from now on.

    ``running`` is how many pods run; None until they are counted, which is done where ``counts``
    says that the number is used. ``error`` is why the watch does
    not work at the moment; None while all is well. Nothing depends on it: without it, load is known
    when the metrics show it.
    """

    def __init__(
        self,
        api: StreamingApi,
        pods: RecentPods,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
        counts: Callable[[], bool] = lambda: True,
    ) -> None:
        self._api = api
        self._pods = pods
        self._clock = clock
        self._wall_clock = wall_clock
        self._version = ""
        self._counts = counts
        self._counted_at = -math.inf
        self.running: int | None = None
        self.error: str | None = None

    async def run(self, stop: asyncio.Event) -> None:
        """Watch until ``stop`` is set; it never ends before, whatever the API server says."""
        await keep_following(stop, self._follow, self._trouble, clock=self._clock)

    async def _follow(self) -> None:
        """One watch, from where the last one ended, or from now on."""
        answer = await self._api.call(_LIST, query={"limit": "1"}, shape=_List)
        listed = answer.body.metadata.version
        if not listed:
            # Without a resourceVersion, a watch reports every existing pod as if it were bound now.
            raise ClusterError(f"cannot {_LIST}: the API server answered no list")
        # After a restore of etcd our version lies in the future, and a watch from there reports
        # nothing until it is reached. An event that is reported twice counts once.
        if not self._version or is_older(listed, self._version):
            self.running = None
            self._version = listed
        if self.running is None or self._clock() - self._counted_at > _COUNT_AGAIN:
            await self._count_running()
        query = {
            **_WITH_NODE,
            "resourceVersion": self._version,
            "allowWatchBookmarks": "true",
        }
        try:
            async with contextlib.aclosing(self._api.watch(_WATCH, query)) as lines:
                async for line in lines:
                    if line:
                        self._observe(line)
                        self._well()
        except _ExpiredError:
            self._version = ""

    async def _count_running(self) -> None:
        """Without the number the watch goes on: what a pod uses on average is then not known."""
        if not self._counts():
            return
        try:
            self.running = await self._count()
            self._counted_at = self._clock()
        except ClusterError as error:
            logger.info("the running pods are not counted, until the watch starts again: %s", error)

    async def _count(self) -> int:
        """How many pods run. What happens while they are counted is counted too, or not: that is
        some of thousands.
        """
        count, query = 0, {**_RUNNING, "limit": str(_PAGE)}
        while True:
            answer = await self._api.call(_LIST, query=query, headers=_METADATA_ONLY, shape=_List)
            count += len(answer.body.items or ())
            if not answer.body.metadata.more:
                return count
            query = {**query, "continue": answer.body.metadata.more}

    def _observe(self, line: bytes) -> None:
        try:
            event = _event.decode(line)
            pod = _pod.decode(event.object)
        except (msgspec.DecodeError, UnicodeDecodeError):
            logger.debug(_ODD)
            return
        if event.type == "ERROR":
            if pod.code == _GONE:
                raise _ExpiredError(
                    "the watch of pods starts again: its resourceVersion is too old"
                )
            raise ClusterError(f"cannot {_WATCH}: the API server ended it with code {pod.code}")
        self._version = pod.metadata.version or self._version
        if event.type == "BOOKMARK" or not pod.metadata.uid or not pod.spec.node:
            return
        try:
            status = _status.decode(pod.status)
        except msgspec.DecodeError:
            logger.debug(_ODD)
            return
        finished = status.phase in _FINISHED
        change = 0
        if event.type == "ADDED" and not finished and not pod.metadata.deleted:
            change = self._pods.add(_bound(pod), self._clock())
        # The object of a finished pod may change, and be deleted, days later.
        elif (
            self._has_just_ended(pod.metadata.uid, event.type, status)
            if finished
            else event.type == "DELETED"
        ):
            change = -self._pods.end(_bound(pod), self._clock())
        if self.running is not None:
            self.running = max(0, self.running + change)

    def _has_just_ended(self, uid: str, event: str, status: _Status) -> bool:
        """Whether a finished pod ended a moment ago, and not days before this event."""
        containers = status.containers or ()
        terminated = [found.state.terminated for found in containers if found.state.terminated]
        if len(terminated) < len(containers):
            # Its node is gone, and nobody can say when its containers ended.
            return event == "DELETED"
        ends = [end for found in terminated if (end := parse_time(found.finished)) is not None]
        if not ends:  # the kubelet refused it, or does not know when it ended
            return self._pods.is_bound(uid)
        return self._wall_clock() - max(ends) < WINDOW

    def _trouble(self, error: ClusterError) -> None:
        if self.error != str(error):
            self.error = str(error)
            logger.warning("just-bound pods are not counted: %s", error)

    def _well(self) -> None:
        if self.error is not None:
            self.error = None
            logger.info("just-bound pods count again")


def _bound(pod: _Pod) -> BoundPod:
    """The pod with what it requests."""
    cpu, memory = requests_of(pod.spec)
    return BoundPod(
        uid=pod.metadata.uid,
        node=pod.spec.node,
        cpu=cpu,
        memory=memory,
        workload=workload_of(pod.metadata.namespace, pod.metadata.name),
        name=f"{pod.metadata.namespace}/{pod.metadata.name}",
    )
