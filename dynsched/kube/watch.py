"""The nodes of the cluster, kept up to date: kopf's watch, and a comparison that distrusts it.

After a gap that the API server cannot bridge (410) kopf lists again and says what there is; it
does not say what has gone in between, and it does not say when a list is complete. So this module
asks the API server itself: how many nodes there are, until we know as many (`synced`); again
every ``resync`` seconds; and, when the numbers differ or kopf has listed again, which.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Coroutine, Mapping
from typing import Any, Final, TypeVar

from dynsched.core.errors import ClusterError, ForbiddenError
from dynsched.core.model import Node
from dynsched.kube.client import KubeClient
from dynsched.kube.failures import SetupError
from dynsched.kube.kopf_operator import NodeOperator, WatchBrokenError
from dynsched.kube.projection import project
from dynsched.kube.store import NodeStore
from dynsched.kube.transport import jittered

logger = logging.getLogger(__name__)

_T = TypeVar("_T")

RESYNC: Final = 60.0

PATIENCE: Final = 300.0
"""Seconds for which refused credentials are tried again, once all had been well. Then the process
ends: a new one reads all of its configuration anew (a renewed CA, say)."""

SETTLED: Final = 2.0
"""Seconds without a listed object after which kopf's list is taken to be complete."""

STEADY: Final = 20.0
"""Seconds after which a watch that was begun again is taken to be well (kopf gives one up that is
refused after half of that); an event tells it at once."""

UNEXPLAINED: Final = 3
"""How often in a row the watch may end at once for a cause that we do not know."""

_POLL: Final = 0.05
_LONGEST_WAIT: Final = 30.0
_LASTED: Final = 60.0


class NodeWatch:
    """Keeps ``store`` as the cluster is while `run` runs. kopf lives in a thread of its own: no
    signal handler is touched, and no task of the caller's is ever cancelled by it.
    """

    def __init__(
        self, client: KubeClient, store: NodeStore | None = None, *, resync: float = RESYNC
    ) -> None:
        self.store = NodeStore() if store is None else store
        self._client = client
        self._resync = resync
        self._synced = False
        self._troubles: dict[str, str] = {}
        self._relisted: float | None = None
        self._watch_began = math.inf

    @property
    def synced(self) -> bool:
        """Whether the first list is complete. Stays True: an outage makes nodes old, not gone."""
        return self._synced

    @property
    def error(self) -> str | None:
        """Why what we know of the nodes may be old, in one line; None while all is well."""
        return next(iter(tuple(self._troubles.values())), None)

    def nodes(self) -> Mapping[str, Node]:
        """All nodes by name; the mapping does not change after it was handed out."""
        return self.store.nodes()

    async def run(self, stop: asyncio.Event) -> None:
        """Watch until ``stop`` is set; back within 5 s then.

        While the API server cannot be reached, at the start too, this waits, logs the cause once,
        and tries again with back-off. It ends the process, by raising, where waiting will not
        help: ForbiddenError (a verb is missing), SetupError (credentials, certificates, address),
        ClusterError (the watch ends again and again for a cause that is not known).
        """
        if not await self._reach(stop):
            return
        watching = asyncio.create_task(self._watch(stop), name="node watch")
        comparing = asyncio.create_task(self._compare(stop), name="node comparison")
        try:
            await asyncio.wait({watching, comparing}, return_when=asyncio.FIRST_COMPLETED)
            if comparing.done():
                comparing.result()
            await watching
        finally:
            for task in (watching, comparing):
                task.cancel()
            await asyncio.gather(watching, comparing, return_exceptions=True)

    async def _reach(self, stop: asyncio.Event) -> bool:
        """Wait for the API server; False when ``stop`` came first."""
        wait = 1.0
        while not stop.is_set():
            try:
                reached = await _unless(stop, self._client.count()) is not None
            except (ForbiddenError, SetupError):
                raise
            except ClusterError as error:
                self._trouble("server", error)
                await _pause(stop, jittered(wait))
                wait = min(2 * wait, _LONGEST_WAIT)
            else:
                self._well("server")
                return reached
        return False

    async def _watch(self, stop: asyncio.Event) -> None:
        """One life of kopf after the other; the next waits longer, unless the last one lasted."""
        wait, unexplained = 0.5, 0
        while not stop.is_set():
            began = self._watch_began = time.monotonic()
            try:
                await NodeOperator(self._client.config, self._observe).run(stop)
            except (ForbiddenError, SetupError):
                raise
            except ClusterError as error:
                if time.monotonic() - began > _LASTED:
                    wait, unexplained = 0.5, 0
                unexplained += not isinstance(error, WatchBrokenError)
                if unexplained > UNEXPLAINED:
                    raise
                self._watch_began = math.inf
                self._trouble("watch", error)
                await _pause(stop, jittered(wait))
                wait = min(2 * wait, _LONGEST_WAIT)
                self.store.forget_versions()

    def _observe(self, kind: str | None, raw: Mapping[str, Any]) -> None:
        """One event. Called in kopf's thread."""
        node = project(raw)
        if node is None:
            logger.warning("an object without a name came with the nodes and is left out")
        elif kind == "DELETED":
            self.store.drop(node.name, node.uid)
        else:
            self.store.offer(node)
        if kind is None:
            self._relisted = time.monotonic()
        else:
            self._well("watch")

    async def _compare(self, stop: asyncio.Event) -> None:
        await self._sync(stop)
        due = time.monotonic() + jittered(self._resync)
        refused_since: float | None = None
        while not stop.is_set():
            await _pause(stop, min(1.0, self._resync))
            if time.monotonic() - self._watch_began > STEADY:
                self._well("watch")
            relisted = self._relisted
            settled = relisted is not None and time.monotonic() - relisted > SETTLED
            if not settled and time.monotonic() < due:
                continue
            try:
                if settled or await self._client.count() != len(self.store):
                    await self._drop_vanished()
            except ClusterError as error:
                self._trouble("server", error)
                refused = isinstance(error, ForbiddenError | SetupError)
                refused_since = (refused_since or time.monotonic()) if refused else None
                if refused_since and time.monotonic() - refused_since > PATIENCE:
                    raise
                await _pause(stop, jittered(min(self._resync, 10.0)))
            else:
                self._well("server")
                refused_since = None
                if self._relisted == relisted:
                    self._relisted = None
                due = time.monotonic() + jittered(self._resync)

    async def _sync(self, stop: asyncio.Event) -> None:
        """Wait until we know as many nodes as there are."""
        while not stop.is_set():
            try:
                expected = await self._client.count()
            except ClusterError as error:
                self._trouble("server", error)
                await _pause(stop, jittered(2.0))
                continue
            self._well("server")
            # The number may change while the list comes in: after a second it is asked again.
            asked = time.monotonic()
            while time.monotonic() - asked < 1.0 and not stop.is_set():
                if len(self.store) >= expected:
                    self._synced, self._relisted = True, None
                    logger.info("watching %d nodes at %s", expected, self._client.config.server)
                    return
                await _pause(stop, _POLL)

    async def _drop_vanished(self) -> None:
        """Forget the nodes that we knew before a fresh list began and that are not in it."""
        before = {name: node.uid for name, node in self.store.nodes().items()}
        listed = await self._client.uids()
        vanished = [name for name, uid in before.items() if listed.get(name) != uid]
        dropped = [name for name in vanished if self.store.drop(name, before[name])]
        if dropped:
            logger.info(
                "%d deleted while the watch was away: %s", len(dropped), ", ".join(dropped[:5])
            )

    def _trouble(self, part: str, error: ClusterError) -> None:
        if self._troubles.get(part) != str(error):
            self._troubles[part] = str(error)
            logger.warning("%s; trying again", error)

    def _well(self, part: str) -> None:
        if part in self._troubles and self._troubles.pop(part, ""):
            logger.info("the API server answers again (%s)", part)


async def _unless(stop: asyncio.Event, awaited: Coroutine[Any, Any, _T]) -> _T | None:
    """What ``awaited`` gives; None when ``stop`` is set before."""
    task = asyncio.ensure_future(awaited)
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        task.cancel()
        stopping.cancel()


async def _pause(stop: asyncio.Event, seconds: float) -> None:
    """Sleep, but no longer than until ``stop``."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), seconds)
