"""The nodes of the cluster, kept up to date: kopf's watch, and a comparison that distrusts it
(`resync`). kopf does not say when a list is complete: the API server is asked how many nodes there
are, until we know as many (`NodeStore.synced`).
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from functools import partial
from typing import Final

from dynsched.engine.model import Node
from dynsched.kube.client import KubeClient
from dynsched.kube.cluster import NodeStore
from dynsched.kube.failures import SetupError
from dynsched.kube.kopf_operator import NodeOperator, WatchBrokenError
from dynsched.kube.resync import Part, Resync, Troubles
from dynsched.util.errors import ClusterError, ForbiddenError
from dynsched.util.stopping import Backoff, pause, unless_stopped, until_done

logger = logging.getLogger(__name__)

RESYNC: Final = 60.0
"""Seconds between two comparisons at the most. At 5,000 nodes one takes 0.06 s of our CPU and 0.1
to 0.3 s of the API server's."""
SETTLED: Final = 2.0
"""Seconds without a listed object after which kopf's list is taken to be complete."""
UNEXPLAINED: Final = 3
"""How often in a row the watch may end at once for a cause that we do not know."""
_POLL: Final = 0.05
_MAX_BACKOFF: Final = 30.0
_LASTED: Final = 60.0


class _Life:
    """One life of kopf. ``over``: it is to end, or has ended; what it still says does not count.
    ``follows``: its list was complete, and a watch has begun.
    """

    def __init__(self) -> None:
        self.over = asyncio.Event()
        self.follows = False


class NodeWatch:
    """Keeps ``store`` as the cluster is while `run` runs. ``begun``: how often a watch began."""

    def __init__(self, client: KubeClient, *, resync: float = RESYNC) -> None:
        self.store = NodeStore()
        self.begun = 0
        self._client = client
        self._troubles = Troubles()
        self._resync = Resync(client, self.store, self, self._troubles, every=resync)
        self._life = _Life()
        self._listed_at = -math.inf

    @property
    def error(self) -> str | None:
        """Why what we know of the nodes may be old; None while all is well."""
        return self._troubles.first

    @property
    def is_listing(self) -> bool:
        """As of `resync.Followed`; for some seconds after a list its events may still come in."""
        life = self._life
        is_following = life.follows and not life.over.is_set()
        return not is_following or time.monotonic() - self._listed_at <= SETTLED

    def begin_anew(self) -> None:
        """End the present watch; the next one begins with a list."""
        self._life.over.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Watch until ``stop`` is set; back within 5 s then. It ends the process, by raising, where
        waiting will not help: ForbiddenError, SetupError, and ClusterError where the watch ends
        again and again for a cause that is not known.
        """
        await self._count(stop)
        watching = asyncio.create_task(self._watch(stop), name="node watch")
        comparing = asyncio.create_task(self._sync_and_compare(stop), name="node comparison")
        try:
            await until_done(stop, watching, comparing)
            self._life.over.set()
            if comparing.done():
                comparing.result()
            await watching
        finally:
            for task in (watching, comparing):
                task.cancel()
            await asyncio.gather(watching, comparing, return_exceptions=True)

    async def _count(self, stop: asyncio.Event) -> int:
        """How many nodes there are, once the API server answers; 0 when ``stop`` came first."""
        backoff = Backoff(1.0, _MAX_BACKOFF)
        while not stop.is_set():
            try:
                count = await unless_stopped(stop, self._client.count())
            except (ForbiddenError, SetupError):
                raise
            except ClusterError as error:
                self._troubles.begin(Part.SERVER, error)
                await pause(stop, backoff.next())
            else:
                self._troubles.end(Part.SERVER)
                return count or 0
        return 0

    async def _watch(self, stop: asyncio.Event) -> None:
        backoff, unexplained = Backoff(0.5, _MAX_BACKOFF), 0
        while not stop.is_set():
            began, life = time.monotonic(), _Life()
            self._life, failure = life, None
            observe, follow = partial(self._observe, life), partial(self._follow, life)
            try:
                await NodeOperator(self._client.config, observe, follow).run(life.over)
            except (ForbiddenError, SetupError):
                raise
            except ClusterError as error:
                failure = error
            finally:
                life.over.set()
            if time.monotonic() - began > _LASTED:
                backoff.reset()
                unexplained = 0
            if failure is not None:
                unexplained += not isinstance(failure, WatchBrokenError)
                if unexplained > UNEXPLAINED:
                    raise failure
                self._troubles.begin(Part.WATCH, failure)
            self.store.forget_versions()
            await pause(stop, backoff.next())

    def _follow(self, life: _Life) -> None:
        """Called in kopf's thread, as `_observe` is."""
        life.follows = True
        self.begun += 1

    def _observe(self, life: _Life, kind: str | None, node: Node | None) -> None:
        """One event. Called in kopf's thread, which may be left behind when its life is over."""
        if life.over.is_set():
            return
        if node is None:
            logger.warning("the list of nodes contained an object without a name; it is ignored")
        elif kind == "DELETED":
            self.store.drop(node.name, node.uid)
        else:
            self.store.offer(node)
        if kind is None:
            self._listed_at = time.monotonic()
        else:
            self._troubles.end(Part.WATCH)

    async def _sync_and_compare(self, stop: asyncio.Event) -> None:
        """Wait until we know as many nodes as there are; that there are none is asked twice."""
        is_empty = False
        while not self.store.synced and not stop.is_set():
            expected = await self._count(stop)
            # The number may change while the list comes in: after a second it is asked again.
            asked = time.monotonic()
            while time.monotonic() - asked < 1.0 and not stop.is_set():
                if len(self.store) >= expected and (expected or is_empty):
                    self.store.synced = True
                    logger.info("watching %d nodes at %s", expected, self._client.config.server)
                    break
                await pause(stop, _POLL)
            is_empty = not expected
        await self._resync.run(stop)
