"""Events on nodes, for `kubectl describe node`, and on dynsched itself. They are best effort:
posting them never delays a tick.

As client-go does it: one object per node and reason, whose count, time and message move on while
it happens again within a window; a bounded queue; a rate that a thousand marks do not exceed.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from dynsched.engine.message_kind import LoggedKinds
from dynsched.engine.model import Node
from dynsched.kube.client import EVENT_NAMESPACE, KubeClient
from dynsched.rules.keys import FIELD_MANAGER
from dynsched.util.errors import ClusterError
from dynsched.util.formatting import format_time

logger = logging.getLogger(__name__)

WINDOW: Final = 600.0
"""Seconds after its last time for which an Event is continued instead of begun anew."""

QUEUE: Final = 2000
"""Events that wait at most, and that are remembered for continuing. The oldest goes first."""

RATE: Final = 20.0
"""Average number of Events per second, at most."""

BURST: Final = 100
"""Events that may be sent at once after a period without Events."""

FLUSH: Final = 1.0
"""Seconds that `NodeEvents.close` waits for what is queued."""

_MESSAGE_BYTES: Final = 1024
_NAME_CHARACTERS: Final = 200


class Subject(NamedTuple):
    """The object that an Event is about; ``namespace`` is empty for a Node."""

    kind: str
    name: str
    uid: str
    api_version: str = "v1"
    namespace: str = ""


class _Key(NamedTuple):
    """Two Events are equal when these are."""

    about: Subject
    reason: str
    kind: str

    @property
    def namespace(self) -> str:
        """An Event must be where its object is, or, for one without a namespace, in ``default``."""
        return self.about.namespace or EVENT_NAMESPACE


@dataclass(frozen=True, slots=True)
class _EventSeries:
    """The Event of one key: its last message, its count, its first and its last time."""

    message: str
    count: int
    first: float
    last: float
    name: str = ""


class NodeEvents:
    """Posts Events in the background.

    ``own`` gives the object that stands for dynsched itself, None while there is none.
    ``clock`` gives Unix seconds.
    """

    def __init__(
        self,
        client: KubeClient,
        *,
        own: Callable[[], Subject | None] = lambda: None,
        instance: str = "",
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._own = own
        self._instance = instance or socket.gethostname()
        self._clock = clock
        self._queue: OrderedDict[_Key, _EventSeries] = OrderedDict()
        self._told: OrderedDict[_Key, _EventSeries] = OrderedDict()
        self._awake = asyncio.Event()
        self._worker: asyncio.Task[None] | None = None
        self._closed = False
        self._lost = LoggedKinds()

    def post(self, node: Node, *, reason: str, message: str, warning: bool = False) -> None:
        """Queue one Event on ``node``, of type Warning or Normal. Never blocks, never raises.

        One that still waits for the same node and reason takes the new message and counts twice.
        """
        self._post(Subject("Node", node.name, node.uid), reason, message, warning=warning)

    def post_own(self, *, reason: str, message: str, warning: bool = False) -> None:
        own = self._own()
        if own is not None:
            self._post(own, reason, message, warning=warning)

    def _post(self, about: Subject, reason: str, message: str, *, warning: bool) -> None:
        if self._closed:
            return
        now = self._clock()
        key = _Key(about, reason, "Warning" if warning else "Normal")
        waiting = self._queue.get(key)
        if waiting is not None:
            self._queue[key] = replace(
                waiting, message=message, count=waiting.count + 1, last=max(now, waiting.last)
            )
            return
        if len(self._queue) >= QUEUE:
            self._queue.popitem(last=False)
        self._queue[key] = _EventSeries(message, 1, now, now)
        self._awake.set()
        if self._worker is None:
            self._worker = asyncio.create_task(self._work(), name="node events")

    async def close(self) -> None:
        """Send what is queued, for FLUSH seconds at most; drop the rest."""
        self._closed = True
        self._awake.set()
        if self._worker is not None:
            await asyncio.wait({self._worker}, timeout=FLUSH)
            self._worker.cancel()
            await asyncio.gather(self._worker, return_exceptions=True)
        self._queue.clear()

    async def _work(self) -> None:
        allowed, filled = float(BURST), time.monotonic()
        while self._queue or not self._closed:
            if not self._queue:
                self._awake.clear()
                await self._awake.wait()
                continue
            now = time.monotonic()
            allowed, filled = min(float(BURST), allowed + (now - filled) * RATE), now
            if allowed < 1:
                await asyncio.sleep((1 - allowed) / RATE)
                continue
            allowed -= 1
            await self._tell(*self._queue.popitem(last=False))

    async def _tell(self, key: _Key, new: _EventSeries) -> None:
        try:
            told = await self._continued(key, new) or await self._begun(key, new)
        except ClusterError as error:
            if self._lost.is_new("events", str(error)):  # it names the Event, or the node
                logger.warning("some Events were not posted: %s", error)
        except Exception:
            logger.exception("an Event on %s could not be posted", key.about.name)
        else:
            self._lost.forget("events")
            self._told[key] = told
            self._told.move_to_end(key)
            self._forget(told.last)

    def _forget(self, now: float) -> None:
        """Drop what is too old to be continued, and what is too much."""
        while self._told:
            key, oldest = next(iter(self._told.items()))
            if len(self._told) <= QUEUE and now - oldest.last <= WINDOW:
                return
            del self._told[key]

    async def _continued(self, key: _Key, new: _EventSeries) -> _EventSeries | None:
        """The Event that is there already, moved on; None where there is none."""
        old = self._told.pop(key, None)
        if old is None or new.first - old.last > WINDOW:
            return None
        told = replace(old, message=new.message, count=old.count + new.count, last=new.last)
        is_there = await self._client.patch_event(key.namespace, told.name, _changing(told))
        return told if is_there else None

    async def _begun(self, key: _Key, new: _EventSeries) -> _EventSeries:
        stem = key.about.name[:_NAME_CHARACTERS].rstrip("-.")
        told = replace(new, name=f"{stem}.{uuid.uuid4().hex}")
        reference = {"apiVersion": key.about.api_version, **key.about._asdict()}
        del reference["api_version"]
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": told.name, "namespace": key.namespace},
            "involvedObject": {name: text for name, text in reference.items() if text},
            "type": key.kind,
            "reason": key.reason,
            "source": {"component": FIELD_MANAGER},
            "reportingComponent": FIELD_MANAGER,
            "reportingInstance": self._instance,
            "firstTimestamp": format_time(told.first),
            **_changing(told),
        }
        await self._client.create_event(key.namespace, body)
        return told


def _changing(told: _EventSeries) -> dict[str, Any]:
    """The fields of an Event that move on when the same happens again."""
    return {
        "count": told.count,
        "lastTimestamp": format_time(told.last),
        "message": _shortened(told.message),
    }


def _shortened(message: str) -> str:
    """The message within the API server's limit, which is one of bytes."""
    data = message.encode()
    if len(data) <= _MESSAGE_BYTES:
        return message
    return data[: _MESSAGE_BYTES - 3].decode(errors="ignore") + "…"
