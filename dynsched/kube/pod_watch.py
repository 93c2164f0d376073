"""Which pods were bound and ended a moment ago, and which wait for a node: two watches of our own.

Not kopf's: it would list and keep 150,000 pods at 0.6 ms each. Of the pods that have a node only
what happens from now on counts, and nothing is kept but a few numbers a pod, until the metrics show
it. What the watch misses is wrong for no longer than that. How many pods run is counted once, by a
list of their metadata as of the version at which the watch begins; from then on each pod that
enters or leaves the watch is one more or less.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable
from typing import Final

import msgspec

from dynsched.engine.pod_values import BoundPod
from dynsched.engine.recent import RecentPods
from dynsched.engine.workloads import workload_of
from dynsched.kube.comparison import is_older
from dynsched.kube.failures import Call
from dynsched.kube.list_watch import Event, ListWatch, StreamingApi
from dynsched.kube.pages import METADATA_ONLY, Named, Page, pages, require_list
from dynsched.kube.pod_requests import RUNNING, PodSpec, PodStatus, requests_of
from dynsched.util.errors import ClusterError

logger = logging.getLogger(__name__)

MAX_PENDING: Final = 20_000
"""Uids of pods without a node that are kept, some 150 bytes each; of further ones nothing is
assumed."""

_LIST: Final = Call("list", "pods", "GET", "/api/v1/pods")
_WATCH: Final = Call("watch", "pods", "GET", "/api/v1/pods")
_PENDING: Final = {"fieldSelector": "spec.nodeName="}
"""With it, a pod that is bound comes as DELETED."""
_GAP: Final = 70.0
"""Seconds without an event, more than between two bookmarks. What happened in a longer gap is not
made up for: it would count as if it happened now, though the metrics show it by then."""


class _Spec(PodSpec, gc=False):
    node: str = msgspec.field(name="nodeName", default="")


class _Pod(Named, gc=False):
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: msgspec.Raw = msgspec.field(default_factory=lambda: msgspec.Raw(b"{}"))


class _Nothing(msgspec.Struct, gc=False):
    """Of a pod that is only counted nothing is looked at."""


_named = msgspec.json.Decoder(Named)
_pod = msgspec.json.Decoder(_Pod)
_status = msgspec.json.Decoder(PodStatus)


class PodWatch(ListWatch):
    """Tells ``pods`` of every pod that is bound, and of every one that ends, from now on.

    Pods are counted where ``counts`` says that the number is used. Nothing depends on this watch:
    without it, load is known when the metrics show it.
    """

    resource = _WATCH
    query = RUNNING

    def __init__(
        self,
        api: StreamingApi,
        pods: RecentPods,
        *,
        clock: Callable[[], float] = time.monotonic,
        counts: Callable[[], bool] = lambda: True,
    ) -> None:
        super().__init__(api, clock=clock)
        self._pods = pods
        self._heard_at = -math.inf
        self._counts = counts
        self._counted: int | None = None
        self._since_counted = 0

    @property
    def running(self) -> int | None:
        """How many pods have a node and have not ended; None until they are counted."""
        return None if self._counted is None else max(0, self._counted + self._since_counted)

    async def begin(self) -> str:
        """Where the last watch ended; or now, where that is too long ago."""
        query = {"limit": "1"}
        answer = await self.api.call(_LIST, query=query, headers=METADATA_ONLY, shape=Page[Named])
        # Without a resourceVersion, a watch reports every existing pod as if it were bound now.
        page = require_list(_LIST, self.api.config.server, answer.body)
        listed: str = page.metadata.version
        # After a restore of etcd our version lies in the future, and a watch from there reports
        # nothing until it is reached.
        is_cut_off = self.clock() - self._heard_at > _GAP
        if not self.version or is_cut_off or is_older(listed, self.version):
            self.version, self._counted = listed, None
        return self.version

    async def follow(self, version: str) -> None:
        """The watch; beside it the pods are counted, unless they are."""
        counting = None
        if self._counted is None and self._counts():
            self._since_counted = 0
            counting = asyncio.create_task(self._count(version))
        try:
            await super().follow(version)
        finally:
            if counting is not None:
                counting.cancel()
                await asyncio.gather(counting, return_exceptions=True)

    async def _count(self, version: str) -> None:
        """Beside the watch from the same version: of 100,000 pods it takes half a minute. Without
        the number the watch goes on: what a pod uses on average is then not known.
        """
        count = 0
        listed = pages(
            self.api, _LIST, _Nothing, query=RUNNING, version=version, headers=METADATA_ONLY
        )
        try:
            async for page in listed:
                count += len(page.items or ())
                del page
        except ClusterError as error:
            logger.info("the running pods are not counted, until the watch starts again: %s", error)
        else:
            self._counted = count

    def observe(self, event: Event | None) -> None:
        """Count a pod that is bound, or has ended."""
        self._heard_at = self.clock()
        if event is None:
            return
        pod = _pod.decode(event.object)
        self.version = pod.metadata.version or self.version
        if event.type not in {"ADDED", "DELETED"} or not pod.metadata.uid or not pod.spec.node:
            return
        status = _status.decode(pod.status)
        # A pod that finishes leaves the selection of this watch: that comes as DELETED, once, with
        # the object as it was before.
        if event.type == "ADDED":
            self._since_counted += 1
            self._pods.add(_bound(pod, status), self.clock())
            return
        self._since_counted -= 1
        if status.has_run:
            self._pods.end(_bound(pod, status), self.clock())
        else:
            self._pods.never_ran(pod.metadata.uid)

    def tell(self, error: ClusterError | None) -> None:
        if error is None:
            logger.info("just-bound pods count again")
        else:
            logger.warning("just-bound pods are not counted: %s", error)


class PendingPods(ListWatch):
    """``uid in pending``: whether there is such a pod and it has no node, as far as is known.

    The extender assumes a pod on the node that it scored best, until the watch of bound pods tells.
    It may do so only for pods that there are: a uid is known only to clients that may read the pod,
    and cannot be guessed by one that can only connect to the port.
    """

    resource = _WATCH
    query = _PENDING

    def __init__(self, api: StreamingApi) -> None:
        super().__init__(api)
        self._uids: set[str] = set()

    def __contains__(self, uid: str) -> bool:
        return self.error is None and uid in self._uids

    async def begin(self) -> str:
        """List them each time anew, so that nothing that a watch has missed stays for longer than
        a watch lasts.
        """
        uids: set[str] = set()
        version = ""
        async for page in pages(self.api, _LIST, Named, query=self.query):
            uids.update(pod.metadata.uid for pod in page.items or ())
            version = version or page.metadata.version
            if len(uids) >= MAX_PENDING:
                break
            del page
        self._uids = uids
        return version

    def observe(self, event: Event | None) -> None:
        """Keep the uid of a pod until it has a node or is gone."""
        if event is None:
            return
        uid = _named.decode(event.object).metadata.uid
        if event.type == "ADDED" and len(self._uids) < MAX_PENDING:
            self._uids.add(uid)
        elif event.type == "DELETED":
            self._uids.discard(uid)


def _bound(pod: _Pod, status: PodStatus) -> BoundPod:
    cpu, memory = requests_of(pod.spec, status)
    return BoundPod(
        uid=pod.metadata.uid,
        node=pod.spec.node,
        cpu=cpu,
        memory=memory,
        workload=workload_of(pod.metadata.namespace, pod.metadata.name),
        name=f"{pod.metadata.namespace}/{pod.metadata.name}",
    )
