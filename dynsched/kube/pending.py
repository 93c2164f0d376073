"""Which pods have no node yet: their uids, by a list and a watch of such pods.

The extender assumes a pod on the node that it scored best, until the watch of bound pods tells. It
may do so only for pods that there are: a uid is known only to clients that may read the pod,
and cannot be guessed by one that can only connect to the port.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from typing import Final

import msgspec

from dynsched.kube.failures import Call
from dynsched.kube.following import keep_following
from dynsched.kube.stream import StreamingApi
from dynsched.util.errors import ClusterError

logger = logging.getLogger(__name__)

MAX_PODS: Final = 20_000
"""Uids that are kept, some 150 bytes each; of further pods nothing is assumed."""

_PATH: Final = "/api/v1/pods"
_LIST: Final = Call("list", "pods", "GET", _PATH)
_WATCH: Final = Call("watch", "pods", "GET", _PATH)
_WITHOUT_NODE: Final = {"fieldSelector": "spec.nodeName="}
"""With it, a pod that is bound comes as DELETED."""
_PAGE: Final = 500


class _Metadata(msgspec.Struct, gc=False):
    uid: str = ""


class _Pod(msgspec.Struct, gc=False):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


class _Event(msgspec.Struct, gc=False):
    type: str
    object: _Pod


class _ListMeta(msgspec.Struct, gc=False):
    version: str = msgspec.field(name="resourceVersion", default="")
    more: str = msgspec.field(name="continue", default="")


class _List(msgspec.Struct, gc=False):
    metadata: _ListMeta
    items: list[_Pod] | None = None


_event = msgspec.json.Decoder(_Event)


class PendingPods:
    """``uid in pending``: whether there is such a pod and it has no node, as far as is known.

    ``error`` is why nothing is known at the moment; None while all is well.
    """

    def __init__(self, api: StreamingApi, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._api = api
        self._clock = clock
        self._uids: set[str] = set()
        self.error: str | None = None

    def __contains__(self, uid: str) -> bool:
        return self.error is None and uid in self._uids

    async def run(self, stop: asyncio.Event) -> None:
        """Follow the pods until ``stop`` is set; it never ends before."""
        await keep_following(stop, self._follow, self._trouble, clock=self._clock)

    async def _follow(self) -> None:
        """List, then watch until the server ends it. Each time anew, so that nothing that a watch
        has missed stays for longer than a watch lasts.
        """
        uids, version = await self._list()
        self._uids = uids
        self.error = None
        query = {**_WITHOUT_NODE, "resourceVersion": version, "allowWatchBookmarks": "true"}
        async with contextlib.aclosing(self._api.watch(_WATCH, query)) as lines:
            async for line in lines:
                if line and not self._observe(line):
                    return

    async def _list(self) -> tuple[set[str], str]:
        uids: set[str] = set()
        more = version = ""
        while True:
            query = {**_WITHOUT_NODE, "limit": str(_PAGE)} | ({"continue": more} if more else {})
            found: _List = (await self._api.call(_LIST, query=query, shape=_List)).body
            uids.update(pod.metadata.uid for pod in found.items or ())
            version = version or found.metadata.version
            more = found.metadata.more
            if not more or len(uids) >= MAX_PODS:
                return uids, version

    def _observe(self, line: bytes) -> bool:
        """Take in one event; False where the watch is over."""
        try:
            event = _event.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            logger.debug("an event about a pod could not be read and is ignored")
            return True
        uid = event.object.metadata.uid
        if event.type == "ADDED" and len(self._uids) < MAX_PODS:
            self._uids.add(uid)
        elif event.type == "DELETED":
            self._uids.discard(uid)
        return event.type != "ERROR"

    def _trouble(self, error: ClusterError) -> None:
        if self.error != str(error):
            self.error = str(error)
            # The watch of bound pods needs the same rights and server, and has warned of it.
            logger.debug("nothing is assumed of pods that are being placed: %s", error)
