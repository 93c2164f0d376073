"""Which pods were bound and ended a moment ago: a watch of our own, because kopf would keep each
pod. A bound pod is kept as a few numbers until the metrics show it.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

import msgspec

from dynsched.core.load.pods import BoundPod, PodRequestTotals, workload_of
from dynsched.core.load.recent import RecentPods
from dynsched.kube.failures import ApiRequest
from dynsched.kube.lists import Event, ListWatch, Named, pages
from dynsched.kube.pod_requests import (
    ASSIGNED_NOT_TERMINATED,
    PodMeta,
    PodSpec,
    PodStatus,
    requests_of,
)
from dynsched.util.errors import ClusterError

logger = logging.getLogger(__name__)

_GAP: Final = 70.0
"""Seconds without an event, more than between two bookmarks. What happened in a longer gap would
count as if it happened now, though the metrics show it by then."""
_LIST: Final = ApiRequest("list", "pods", "/api/v1/pods")
_WATCH: Final = ApiRequest("watch", "pods", "/api/v1/pods")


class _Spec(PodSpec, gc=False):
    node: str = msgspec.field(name="nodeName", default="")


class _Pod(Named, gc=False):
    metadata: PodMeta = msgspec.field(default_factory=PodMeta)
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: PodStatus = msgspec.field(default_factory=PodStatus)


_pod = msgspec.json.Decoder(_Pod)


class CountedPod(msgspec.Struct, frozen=True, gc=False):
    """What is kept of each pod that has a node."""

    node: str
    requests: PodRequestTotals
    has_order: bool


# Many pods share what they request, and their node. With `sys.intern`, Python 3.12 keeps a name for
# good, and a pod may name any node.
_requests = lru_cache(maxsize=4096)(PodRequestTotals)
_node_name = lru_cache(maxsize=16_384)(str)


class PodCounts:
    """Totals of the pods that have a node and have not ended. What an event says of a pod replaces
    what was counted for it before, so that the sums cannot drift. ``requested`` is by node. A pod
    takes some 230 bytes.
    """

    def __init__(self) -> None:
        self._pods: dict[str, CountedPod] = {}
        self.requested: dict[str, PodRequestTotals] = {}
        self.with_order = 0

    def __len__(self) -> int:
        return len(self._pods)

    def put(self, uid: str, pod: CountedPod) -> None:
        """Count a pod, in the place of its former state."""
        self.drop(uid)
        self._pods[uid] = pod
        self._add(pod, 1)

    def drop(self, uid: str) -> None:
        """Count a pod no more; nothing where it was not counted."""
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
class PodWatch(ListWatch):
    """Reports to ``pods`` every pod that is bound, and every one that ends."""

    call = _WATCH
    query = ASSIGNED_NOT_TERMINATED
    pods: RecentPods
    counts: PodCounts = field(default_factory=PodCounts, init=False)
    _is_listed: bool = field(default=False, init=False)
    _heard_at: float = field(default=-math.inf, init=False)

    async def begin(self) -> str:
        """Where the last watch ended; or now, where that is too long ago."""
        if self.version and self.clock() - self._heard_at <= _GAP:
            return self.version
        counts, version, self.version = PodCounts(), "", ""
        # Half a minute for 100,000 pods: less than the gap that is not made up for.
        async for page in pages(self.api, _LIST, _Pod, query=self.query):
            for pod in page.items or ():
                counts.put(pod.metadata.uid, _counted(pod))
            version = page.metadata.version
            del page
        self.counts, self._is_listed = counts, True
        self.version, self._heard_at = version, self.clock()
        return version

    @property
    def running(self) -> int | None:
        """How many pods have a node and have not ended; None until they are listed."""
        return len(self.counts) if self._is_listed else None

    def observe(self, event: Event | None) -> None:
        """Count the pod as the event has it, or no longer."""
        self._heard_at = self.clock()
        if event is None:
            return
        pod = _pod.decode(event.object)
        uid = pod.metadata.uid
        self.version = pod.metadata.version or self.version
        if event.type == "BOOKMARK" or not uid or not pod.spec.node:
            return
        if event.type != "DELETED":
            self.counts.put(uid, _counted(pod))
            if event.type == "ADDED":
                self.pods.add(_bound(pod), self.clock())
            if pod.status.has_run:
                self.pods.start(uid, self.clock())
            return
        # A pod that finishes leaves the selection of this watch: that comes as DELETED, once, with
        # the object as it was before.
        self.counts.drop(uid)
        if pod.status.has_run:
            self.pods.end(_bound(pod), self.clock())
        else:
            self.pods.never_ran(uid)

    def log(self, error: ClusterError | None) -> None:
        """In the words of what is then not counted."""
        if error is None:
            logger.info("the watch of pods has recovered; recently bound pods are counted again")
        else:
            logger.warning("recently bound pods are not counted: %s", error)


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
