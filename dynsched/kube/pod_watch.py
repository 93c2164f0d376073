"""Which pods were bound and ended a moment ago: a watch of our own, of pods that have a node.

Not kopf's: it would list and keep 150,000 pods at 0.6 ms each. Only what happens from now on
counts, and nothing is kept but a few numbers a pod, until the metrics show it. What the watch
misses is wrong for no longer than that. How many pods run is counted once, by a list of their
metadata as of the version at which the watch begins; from then on each pod that enters or leaves
the watch is one more or less.
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

from dynsched.engine.pod_values import BoundPod
from dynsched.engine.recent import RecentPods
from dynsched.engine.workloads import workload_of
from dynsched.kube.failures import Call
from dynsched.kube.following import keep_following
from dynsched.kube.pages import PAGE, ListMeta
from dynsched.kube.pod_requests import RUNNING, PodSpec, PodStatus, requests_of
from dynsched.kube.stream import ExpiredError, StreamingApi
from dynsched.kube.versions import is_older
from dynsched.util.errors import ClusterError

logger = logging.getLogger(__name__)

_PATH: Final = "/api/v1/pods"
_LIST: Final = Call("list", "pods", "GET", _PATH)
_WATCH: Final = Call("watch", "pods", "GET", _PATH)
_ODD: Final = "an event about a pod could not be read and is ignored"
"""An odd object must not end the watch; it counts as no pod."""
_GAP: Final = 70.0
"""Seconds without a line, more than between two bookmarks. What happened in a longer gap is not
made up for: it would count as if it happened now, though the metrics show it by then."""
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


class _Item(msgspec.Struct, gc=False):
    """Of a listed pod nothing is looked at."""


class _List(msgspec.Struct, gc=False):
    metadata: ListMeta
    items: list[_Item] | None = None


_event = msgspec.json.Decoder(_Event)
_pod = msgspec.json.Decoder(_Pod)
_status = msgspec.json.Decoder(PodStatus)


class PodWatch:
    """Tells ``pods`` of every pod that is bound, and of every one that ends, from now on.

    Pods are counted where ``counts`` says that the number is used. ``error`` is why the watch does
    not work at the moment; None while all is well. Nothing depends on it: without it, load is known
    when the metrics show it.
    """

    def __init__(
        self,
        api: StreamingApi,
        pods: RecentPods,
        *,
        clock: Callable[[], float] = time.monotonic,
        counts: Callable[[], bool] = lambda: True,
    ) -> None:
        self._api = api
        self._pods = pods
        self._clock = clock
        self._version = ""
        self._heard_at = -math.inf
        self._counts = counts
        self._counted: int | None = None
        self._since_counted = 0
        self.error: str | None = None

    @property
    def running(self) -> int | None:
        """How many pods have a node and have not ended; None until they are counted."""
        return None if self._counted is None else max(0, self._counted + self._since_counted)

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
        # nothing until it is reached.
        is_cut_off = self._clock() - self._heard_at > _GAP
        if not self._version or is_cut_off or is_older(listed, self._version):
            self._version, self._counted = listed, None
        counting = None
        if self._counted is None and self._counts():
            self._since_counted = 0
            counting = asyncio.create_task(self._count(self._version))
        try:
            await self._watch()
        except ExpiredError:
            self._version = ""
        finally:
            if counting is not None:
                counting.cancel()
                await asyncio.gather(counting, return_exceptions=True)

    async def _watch(self) -> None:
        query = {**RUNNING, "resourceVersion": self._version, "allowWatchBookmarks": "true"}
        async with contextlib.aclosing(self._api.watch(_WATCH, query)) as lines:
            async for line in lines:
                self._heard_at = self._clock()
                if line:
                    self._observe(line)
                self._well()

    async def _count(self, version: str) -> None:
        """Beside the watch from the same version: of 100,000 pods it takes half a minute. Without
        the number the watch goes on: what a pod uses on average is then not known.
        """
        count, where = 0, {"resourceVersion": version, "resourceVersionMatch": "Exact"}
        try:
            while where:
                answer = await self._api.call(
                    _LIST,
                    query={**RUNNING, "limit": str(PAGE), **where},
                    headers=_METADATA_ONLY,
                    shape=_List,
                )
                count += len(answer.body.items or ())
                after = answer.body.metadata.after
                where = {"continue": after} if after else {}
        except ClusterError as error:
            logger.info("the running pods are not counted, until the watch starts again: %s", error)
        else:
            self._counted = count

    def _observe(self, line: bytes) -> None:
        try:
            event = _event.decode(line)
            pod = _pod.decode(event.object)
        except (msgspec.DecodeError, UnicodeDecodeError):
            logger.debug(_ODD)
            return
        if event.type == "ERROR":
            if pod.code == _GONE:
                raise ExpiredError(_WATCH)
            raise ClusterError(f"cannot {_WATCH}: the API server ended it with code {pod.code}")
        self._version = pod.metadata.version or self._version
        if event.type not in {"ADDED", "DELETED"} or not pod.metadata.uid or not pod.spec.node:
            return
        try:
            status = _status.decode(pod.status)
        except msgspec.DecodeError:
            logger.debug(_ODD)
            return
        # A pod that finishes leaves the selection of this watch: that comes as DELETED, once, with
        # the object as it was before.
        if event.type == "ADDED":
            self._since_counted += 1
            self._pods.add(_bound(pod, status), self._clock())
            return
        self._since_counted -= 1
        if status.has_run:
            self._pods.end(_bound(pod, status), self._clock())
        else:
            self._pods.never_ran(pod.metadata.uid)

    def _trouble(self, error: ClusterError) -> None:
        if self.error != str(error):
            self.error = str(error)
            logger.warning("just-bound pods are not counted: %s", error)

    def _well(self) -> None:
        if self.error is not None:
            self.error = None
            logger.info("just-bound pods count again")


def _bound(pod: _Pod, status: PodStatus) -> BoundPod:
    """The pod with what it requests."""
    cpu, memory = requests_of(pod.spec, status)
    return BoundPod(
        uid=pod.metadata.uid,
        node=pod.spec.node,
        cpu=cpu,
        memory=memory,
        workload=workload_of(pod.metadata.namespace, pod.metadata.name),
        name=f"{pod.metadata.namespace}/{pod.metadata.name}",
    )
