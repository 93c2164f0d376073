"""Whether what we know of the nodes is what the API server lists; where it is not, all are listed
anew.

A watch can miss changes without any error. After a restore of etcd from a backup it is taken up
at a version that is yet to come, and is told nothing until then. A connection can be dead on one
side, and an API server can be cut off from etcd. So this module asks for a list of names, uids
and versions: every ``every`` seconds, and whenever the watch was begun again.

Two things look like a missed change, and are none. A change may be under way to us: then it is
here LAG seconds later. And of several API servers behind one address, one may be behind the
others: then its lists are not older than what we know for longer than OLD seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Collection, Mapping
from typing import Final, Protocol

from dynsched.core.errors import ClusterError, ForbiddenError
from dynsched.kube.client import KubeClient
from dynsched.kube.comparison import Comparison, Listing, Seen, compare, has_reached
from dynsched.kube.failures import SetupError
from dynsched.kube.store import NodeStore
from dynsched.kube.transport import jittered
from dynsched.kube.troubles import Part, Troubles
from dynsched.kube.versions import is_older, newest

logger = logging.getLogger(__name__)

PATIENCE: Final = 300.0
"""Seconds for which refused credentials are tried again, once all had been well. Then the process
ends: a new one reads all of its configuration anew (a renewed CA, say)."""

LAG: Final = 10.0
"""Seconds after which a listed change counts as missed by the watch."""

TOLD: Final = 3.0
"""Seconds after which it is told that a listed change has not come yet."""

OLD: Final = 15.0
"""Seconds for which every list must be older than what we know, until the API server is taken to
have gone back for good."""

LOOK_AGAIN: Final = 3.0
"""Seconds between two lists in this time."""

GAP: Final = 10.0
"""Seconds, at least, between two comparisons because the watch was begun again."""

_POLL: Final = 0.1
_NAMED: Final = 5
"""Nodes that a message names at most."""


class Followed(Protocol):
    """The watch, as far as it matters here."""

    @property
    def begun(self) -> int:
        """How often a watch was asked for so far."""

    @property
    def is_listing(self) -> bool:
        """Whether a list is coming in, or a watch is yet to follow it."""

    def begin_anew(self) -> None:
        """List all nodes again, and take them as they come, whatever their versions."""


class Resync:
    """Compares, and has ``watch`` begin anew where that is needed."""

    def __init__(
        self,
        client: KubeClient,
        store: NodeStore,
        watch: Followed,
        troubles: Troubles,
        *,
        every: float,
    ) -> None:
        self._client = client
        self._store = store
        self._watch = watch
        self._troubles = troubles
        self._every = every
        self._newest = ""
        self._checked = 0

    async def run(self, stop: asyncio.Event) -> None:
        """Until ``stop`` is set. Raises ForbiddenError or SetupError when the API server has
        refused us for PATIENCE seconds.
        """
        due, earliest = time.monotonic() + jittered(self._every), 0.0
        refused_since: float | None = None
        while not stop.is_set():
            await pause(stop, min(1.0, self._every))
            if time.monotonic() < due and not (self._is_doubtful and time.monotonic() > earliest):
                continue
            try:
                await self._compare(stop)
            except ClusterError as error:
                self._troubles.begin(Part.SERVER, error)
                refused = isinstance(error, ForbiddenError | SetupError)
                refused_since = (refused_since or time.monotonic()) if refused else None
                if refused_since and time.monotonic() - refused_since > PATIENCE:
                    raise
                await pause(stop, jittered(min(self._every, 10.0)))
            else:
                refused_since = None
                due = time.monotonic() + jittered(self._every)
                earliest = time.monotonic() + jittered(GAP)

    @property
    def _is_doubtful(self) -> bool:
        return self._watch.begun != self._checked and not self._watch.is_listing

    async def _compare(self, stop: asyncio.Event) -> None:
        begun = self._watch.begun
        found = await self._look_until_recent(stop)
        if stop.is_set():
            return
        if found is None or found.impossible:
            self._newest = ""
            self._begin_anew(
                f"the API server {self._client.config.server} went back to an older state, as "
                "after a restore of etcd; all nodes are listed anew"
            )
            return
        missed = await self._missed(found.late, stop)
        if missed and not self._watch.is_listing:
            self._begin_anew(
                f"the watch missed what became of {_named(missed)}; all nodes are listed anew"
            )
        elif not missed:
            self._checked = begun
            self._troubles.end(Part.SERVER)
            self._troubles.end(Part.NODES)

    def _begin_anew(self, why: str) -> None:
        self._troubles.begin(Part.NODES, why)
        self._troubles.end(Part.SERVER)
        self._watch.begin_anew()

    async def _look_until_recent(self, stop: asyncio.Event) -> Comparison | None:
        """What a list shows that is not older than what we know now; None if all lists are."""
        undated = self._store.undated()
        nodes = self._store.nodes().items()
        dated = (node.resource_version for name, node in nodes if name not in undated)
        known = newest(self._newest, *dated)
        for looks in range(1 + math.ceil(OLD / LOOK_AGAIN)):
            listing, found = await self._look()
            if found.impossible or not is_older(listing.version, known):
                self._newest = newest(self._newest, listing.version)
                return found
            if looks > 0:  # the next one may come from another API server
                self._troubles.begin(
                    Part.NODES,
                    f"the API server {self._client.config.server} lists the nodes as of version "
                    f"{listing.version}, though it told of version {known} before: etcd was "
                    "restored, or one of several API servers is behind; looking again",
                )
            await pause(stop, LOOK_AGAIN)
            if stop.is_set():
                break
        return None

    async def _look(self) -> tuple[Listing, Comparison]:
        """Compare with a new list, and forget the nodes that are gone."""
        undated = self._store.undated()  # first: what comes in between is dated, and is known
        known = self._store.nodes()
        listing = await self._client.listing()
        found = compare(known, listing, undated)
        dropped = [name for name, uid in found.gone.items() if self._store.drop(name, uid)]
        if dropped:
            logger.info("deleted while the watch was away: %s", _named(dropped))
        return listing, found

    async def _missed(self, late: Mapping[str, Seen], stop: asyncio.Event) -> list[str]:
        """Which of the ``late`` nodes do not come, though a second list shows them too."""
        # Counted by turns: in a process that was stopped for a while, nothing came meanwhile.
        for turn in range(math.ceil(LAG / _POLL)):
            late = self._outstanding(late)
            if not late or stop.is_set():
                return []
            if turn == math.ceil(TOLD / _POLL):
                self._troubles.begin(
                    Part.NODES,
                    f"the watch has yet to tell what became of {_named(late)}",
                )
            await pause(stop, _POLL)
        again = (await self._look())[1].late
        return [
            name
            for name, seen in self._outstanding(late).items()
            if name in again and again[name].uid == seen.uid
        ]

    def _outstanding(self, late: Mapping[str, Seen]) -> Mapping[str, Seen]:
        undated, known = self._store.undated(), self._store.nodes()
        return {
            name: seen
            for name, seen in late.items()
            if name in undated or not has_reached(known.get(name), seen)
        }


def _named(names: Collection[str]) -> str:
    """``3 nodes (a, b, c)``, of many the first few."""
    first = ", ".join(sorted(names)[:_NAMED]) + (", ..." if len(names) > _NAMED else "")
    return f"{len(names)} {'node' if len(names) == 1 else 'nodes'} ({first})"


async def pause(stop: asyncio.Event, seconds: float) -> None:
    """Sleep, but no longer than until ``stop``."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), seconds)
