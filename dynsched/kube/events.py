"""Posts Events on nodes, for `kubectl describe node`, and on dynsched itself. No tick waits for
them.

As in client-go, there is one object per node and reason. Its count, time and message are updated if
it happens again within a window. The queue is bounded, and sent one Event after the other.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from dynsched.core.nodes import Node
from dynsched.kube.client import EVENT_NAMESPACE, KubeClient
from dynsched.kube.transport import HOST
from dynsched.rules.keys import FIELD_MANAGER
from dynsched.util.errors import ClusterError
from dynsched.util.formatting import format_time
from dynsched.util.logs import LoggedKinds

logger = logging.getLogger(__name__)

WINDOW: Final = 600.0
"""Seconds after its last occurrence in which an Event is updated instead of created anew."""
QUEUE: Final = 2000
"""Maximum Events in the queue, and Events remembered for updates. The oldest is dropped first."""
FLUSH: Final = 1.0
"""Seconds that `NodeEvents.close` waits for the queue."""
_MESSAGE_BYTES: Final = 1024
_NAME_CHARACTERS: Final = 200


class Subject(NamedTuple):
    """The object that an Event is about; ``namespace`` is empty for a Node."""

    kind: str
    name: str
    uid: str
    apiVersion: str = "v1"  # noqa: N815 (Kubernetes's own spelling)
    namespace: str = ""


class _Key(NamedTuple):
    about: Subject
    reason: str
    kind: str

    @property
    def namespace(self) -> str:
        """An Event must be in the namespace of its object; ``default`` if that has none."""
        return self.about.namespace or EVENT_NAMESPACE


class _EventSeries(NamedTuple):
    message: str
    times: int
    first: float
    last: float
    name: str = ""

    def updated(self, new: _EventSeries) -> _EventSeries:
        """The Event after another occurrence, with the ``new`` message."""
        times, last = self.times + new.times, max(self.last, new.last)
        return self._replace(message=new.message, times=times, last=last)

    def changing_fields(self) -> dict[str, Any]:
        """The fields that change with each occurrence. The message is cut to what is accepted."""
        data = self.message.encode()
        message = self.message
        if len(data) > _MESSAGE_BYTES:  # the API server limits the bytes
            message = data[: _MESSAGE_BYTES - 3].decode(errors="ignore") + "…"
        return {"count": self.times, "lastTimestamp": format_time(self.last), "message": message}


@dataclass(eq=False)
class NodeEvents:
    """``own`` returns the object that represents dynsched; ``clock`` returns Unix seconds."""

    client: KubeClient
    own: Callable[[], Subject | None] = lambda: None
    clock: Callable[[], float] = time.time
    _queue: OrderedDict[_Key, _EventSeries] = field(default_factory=OrderedDict, init=False)
    _posted: OrderedDict[_Key, _EventSeries] = field(default_factory=OrderedDict, init=False)
    _worker: asyncio.Task[None] | None = field(default=None, init=False)
    _closed: bool = field(default=False, init=False)
    _lost: LoggedKinds = field(default_factory=LoggedKinds, init=False)

    def post(self, node: Node, *, reason: str, message: str, warning: bool = False) -> None:
        """Queue one Event on ``node``. Never blocks, never raises."""
        self._post(Subject("Node", node.name, node.uid), reason, message, warning=warning)

    def post_own(self, *, reason: str, message: str, warning: bool = False) -> None:
        """Queue one Event on the object from ``own``; nothing is posted if that is None."""
        own = self.own()
        if own is not None:
            self._post(own, reason, message, warning=warning)

    def _post(self, about: Subject, reason: str, message: str, *, warning: bool) -> None:
        if self._closed:
            return
        now = self.clock()
        new = _EventSeries(message, 1, now, now)
        key = _Key(about, reason, "Warning" if warning else "Normal")
        if key in self._queue:
            self._queue[key] = self._queue[key].updated(new)
            return
        if len(self._queue) >= QUEUE:
            self._queue.popitem(last=False)
        self._queue[key] = new
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work(), name="node events")

    async def close(self) -> None:
        """Send the queue for at most FLUSH seconds; drop the rest."""
        self._closed = True
        if self._worker is not None:
            await asyncio.wait({self._worker}, timeout=FLUSH)
            self._worker.cancel()
            await asyncio.gather(self._worker, return_exceptions=True)
        self._queue.clear()

    async def _work(self) -> None:
        while self._queue:
            await self._post_queued(*self._queue.popitem(last=False))

    async def _post_queued(self, key: _Key, new: _EventSeries) -> None:
        try:
            posted = await self._sent(key, new)
        except ClusterError as error:
            if self._lost.is_new("events", str(error)):  # the error names the Event or the node
                logger.warning("some Events were not posted: %s", error)
        else:
            self._lost.forget("events")
            self._posted[key] = posted
            self._posted.move_to_end(key)
            since = posted.last - WINDOW
            while len(self._posted) > QUEUE or next(iter(self._posted.values())).last < since:
                self._posted.popitem(last=False)

    async def _sent(self, key: _Key, new: _EventSeries) -> _EventSeries:
        """Update the existing Event or create one; returns it as sent."""
        old = self._posted.get(key)
        if old is not None and new.first - old.last <= WINDOW:
            posted = old.updated(new)
            if await self.client.patch_event(key.namespace, posted.name, posted.changing_fields()):
                return posted
        stem = key.about.name[:_NAME_CHARACTERS].rstrip("-.")
        posted = new._replace(name=f"{stem}.{uuid.uuid4().hex}")
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": posted.name, "namespace": key.namespace},
            "involvedObject": {name: text for name, text in key.about._asdict().items() if text},
            "type": key.kind,
            "reason": key.reason,
            "source": {"component": FIELD_MANAGER},
            "reportingComponent": FIELD_MANAGER,
            "reportingInstance": HOST,
            "firstTimestamp": format_time(posted.first),
            **posted.changing_fields(),
        }
        await self.client.create_event(key.namespace, body)
        return posted
