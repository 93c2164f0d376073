"""Which pods were bound and ended a moment ago, and which wait for a node: two watches of our own,
for kopf would keep each pod. Of one that is bound a few numbers are kept until the metrics show it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import ClassVar, Final, NoReturn

import msgspec

from dynsched.core.load.pods import BoundPod, workload_of
from dynsched.core.load.recent import RecentPods
from dynsched.kube import failures
from dynsched.kube.cluster import is_older
from dynsched.kube.failures import Call, ExpiredError
from dynsched.kube.lists import METADATA_ONLY, Event, Named, first_item, pages, read_lines
from dynsched.kube.pod_account import NOTHING, Counted, PodAccount, node_name, requests
from dynsched.kube.pod_requests import RUNNING, PodMeta, PodSpec, PodStatus, requests_of
from dynsched.kube.transport import KubeApi
from dynsched.util.errors import ClusterError
from dynsched.util.logs import LoggedKinds
from dynsched.util.stopping import Backoff, jittered, run_until_stopped

logger = logging.getLogger(__name__)

WATCH_SECONDS: Final = 290
"""Seconds after which the server is asked to end a watch (timeoutSeconds)."""
MAX_PENDING: Final = 20_000
"""Uids of pods without a node that are kept, some 150 bytes each."""

_SILENCE: Final = 120.0
"""Seconds without a byte after which a watch ends. Bookmarks come about every minute."""
_GAP: Final = 70.0
"""Seconds without an event, more than between two bookmarks. What happened in a longer gap would
count as if it happened now, though the metrics show it by then."""
_FIRST_WAIT: Final = 1.0
_MAX_BACKOFF: Final = 30.0
_LIST: Final = Call("list", "pods", "/api/v1/pods")
_WATCH: Final = Call("watch", "pods", "/api/v1/pods")
_OF_A_POD: Final = {"ADDED", "MODIFIED", "DELETED"}


class _Spec(PodSpec, gc=False):
    node: str = msgspec.field(name="nodeName", default="")


class _Pod(Named, gc=False):
    metadata: PodMeta = msgspec.field(default_factory=PodMeta)
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: PodStatus = msgspec.field(default_factory=PodStatus)


_event = msgspec.json.Decoder(Event)
_pod = msgspec.json.Decoder(_Pod)


def _read(line: bytes) -> Event | None:
    """The event in a line; None for an odd one, which must not end the watch."""
    try:
        event = _event.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    if event.type != "ERROR":
        return event
    status = failures.status_in(event.object)
    code = status.code if status else 0
    if code == HTTPStatus.GONE:
        raise ExpiredError(_WATCH)
    raise ClusterError(f"cannot {_WATCH}: the API server ended it with code {code}")


@dataclass(eq=False)
class ListWatch(ABC):
    """A list, and a watch of what ``query`` selects from its version on, begun again whenever it
    ends. ``error`` is why it does not work at the moment. ``version`` is the one to go on from, for
    a subclass that does not list each time; empty where there is none.
    """

    query: ClassVar[Mapping[str, str]]
    api: KubeApi
    clock: Callable[[], float] = field(default=time.monotonic, kw_only=True)
    error: str | None = field(default=None, init=False)
    version: str = field(default="", init=False)
    _told: LoggedKinds = field(default_factory=LoggedKinds, init=False)

    @abstractmethod
    async def begin(self) -> str:
        """List; the version to watch from. Raises ClusterError."""

    @abstractmethod
    def observe(self, event: Event | None) -> None:
        """Take in one event; None where the server has begun to answer the watch."""

    def tell(self, error: ClusterError | None) -> None:
        """Log that the watch fails, or with None that it works again."""
        logger.debug("%s: %s", type(self).__name__, error or "works again")

    async def run(self, stop: asyncio.Event) -> None:
        """List and watch, again and again, until ``stop`` is set."""
        await run_until_stopped(stop, self._follow_on())

    async def follow(self, version: str) -> None:
        """Watch from ``version`` on until the server ends it or was silent for long. ExpiredError
        for a 410, as status or event; ClusterError.
        """
        where = {"resourceVersion": version, "allowWatchBookmarks": "true", "watch": "1"}
        query = {**self.query, **where, "timeoutSeconds": str(WATCH_SECONDS)}
        async with self.api.stream(_WATCH, query, _SILENCE) as response:
            self.take(None)
            with contextlib.suppress(TimeoutError):
                async for lines in read_lines(response.content.iter_any()):
                    for event in filter(None, map(_read, lines)):
                        self.take(event)

    def take(self, event: Event | None) -> None:
        """`observe`; an odd object must not end the watch."""
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
            self.observe(event)
        self._note(None)

    async def _follow_on(self) -> NoReturn:
        backoff = Backoff(_FIRST_WAIT, _MAX_BACKOFF)
        while True:
            began, failure = self.clock(), None
            try:
                await self.follow(await self.begin())
            except ExpiredError:
                self.version = ""
            except ClusterError as error:
                failure = error
                self._note(error)
            lasted = self.clock() - began
            if failure is None or lasted > _MAX_BACKOFF:
                backoff.reset()
            if failure is not None:  # a 403 too: an API server that has just started has no rights
                wait = backoff.next()
            else:  # a server may end each watch at once
                wait = 0.0 if lasted > _FIRST_WAIT else jittered(_FIRST_WAIT)
            await asyncio.sleep(wait)

    def _note(self, error: ClusterError | None) -> None:
        self.error = None if error is None else str(error)
        if self.error is None:
            is_news = self._told.forget("watch")
        else:
            is_news = self._told.is_new("watch", self.error)
        if is_news:
            self.tell(error)


@dataclass(eq=False)
class PodWatch(ListWatch):
    """Tells ``pods`` of every pod that is bound, and of every one that ends. ``account``: of those
    that have a node and have not ended; of each by itself only while ``wants_requests``.
    """

    query = RUNNING
    pods: RecentPods
    wants_requests: Callable[[], bool] = lambda: False
    account: PodAccount = field(default_factory=PodAccount, init=False)
    _is_listed: bool = field(default=False, init=False)
    _heard_at: float = field(default=-math.inf, init=False)
    _has_requests: bool = field(default=False, init=False)

    async def begin(self) -> str:
        """Where the last watch ended; or now, where that is too long ago."""
        is_cut_off = self.clock() - self._heard_at > _GAP
        # After a restore of etcd our version lies in the future, and a watch from there reports
        # nothing until it is reached.
        if (
            self.version
            and not is_cut_off
            and (self._has_requests or not self.wants_requests())
            and not is_older((await first_item(self.api, _LIST)).metadata.version, self.version)
        ):
            return self.version
        account, version = PodAccount(), ""
        self.version, self._has_requests = "", self.wants_requests()
        # Half a minute for 100,000 pods: less than the gap that is not made up for.
        headers = None if self._has_requests else METADATA_ONLY
        async for page in pages(self.api, _LIST, _Pod, query=RUNNING, headers=headers):
            for pod in page.items or ():
                account.put(pod.metadata.uid, self._counted(pod))
            version = page.metadata.version
            del page
        self.account, self._is_listed = account, True
        self.version, self._heard_at = version, self.clock()
        return version

    @property
    def running(self) -> int | None:
        """How many pods have a node and have not ended; None until they are listed."""
        return len(self.account) if self._is_listed else None

    def _counted(self, pod: _Pod) -> Counted:
        if not self._has_requests:
            return NOTHING
        annotations = pod.metadata.annotations
        has_order = annotations is not None and annotations.order is not None
        requested = requests(1, *requests_of(pod.spec, pod.status, least=(0.0, 0.0)))
        return Counted(node_name(pod.spec.node), requested, has_order)

    def observe(self, event: Event | None) -> None:
        """Count the pod, or no more, by what the event says of it."""
        self._heard_at = self.clock()
        if event is None:
            return
        pod = _pod.decode(event.object)
        self.version = pod.metadata.version or self.version
        if event.type not in _OF_A_POD or not pod.metadata.uid or not pod.spec.node:
            return
        if event.type != "DELETED":
            self.account.put(pod.metadata.uid, self._counted(pod))
            if event.type == "ADDED":
                self.pods.add(_bound(pod), self.clock())
            if pod.status.has_run:
                self.pods.start(pod.metadata.uid, self.clock())
            return
        # A pod that finishes leaves the selection of this watch: that comes as DELETED, once, with
        # the object as it was before.
        self.account.drop(pod.metadata.uid)
        if pod.status.has_run:
            self.pods.end(_bound(pod), self.clock())
        else:
            self.pods.never_ran(pod.metadata.uid)

    def tell(self, error: ClusterError | None) -> None:
        """As `ListWatch.tell`, in the words of what then does not count."""
        if error is None:
            logger.info("just-bound pods count again")
        else:
            logger.warning("just-bound pods are not counted: %s", error)


@dataclass(eq=False)
class PendingPods(ListWatch):
    """``uid in pending``: whether there is such a pod and it has no node, as far as is known. Only
    for these the extender assumes a node: who can only connect to its port cannot guess a uid.
    """

    query: ClassVar[Mapping[str, str]] = {"fieldSelector": "spec.nodeName="}
    """With it, a pod that is bound comes as DELETED."""
    _uids: set[str] = field(default_factory=set, init=False)

    def __contains__(self, uid: str) -> bool:
        return self.error is None and uid in self._uids

    async def begin(self) -> str:
        """Listed anew each time: what a watch has missed stays no longer than a watch lasts."""
        uids: set[str] = set()
        version = ""
        async for page in pages(self.api, _LIST, Named, query=self.query):
            uids.update(pod.metadata.uid for pod in page.items or ())
            version = page.metadata.version
            if len(uids) >= MAX_PENDING:
                break
            del page
        self._uids = uids
        return version

    def observe(self, event: Event | None) -> None:
        """Remember a pod without a node, at most MAX_PENDING of them."""
        if event is None:
            return
        uid = _pod.decode(event.object).metadata.uid
        if event.type == "ADDED" and len(self._uids) < MAX_PENDING:
            self._uids.add(uid)
        elif event.type == "DELETED":
            self._uids.discard(uid)


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
