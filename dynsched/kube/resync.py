"""Compares the known nodes with those that the API server lists, every ``every`` seconds and each
time the watch was restarted: a watch can miss changes without any error. When they differ for
longer than an event may be on its way (LAG), or one of several API servers may lag behind the
others (OLD), all nodes are listed again: docs/decisions/0016-a-list-that-distrusts-the-watch.md.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple, Protocol

from dynsched.engine.model import Node
from dynsched.engine.wording import named_nodes
from dynsched.kube.client import KubeClient, Listing, Seen
from dynsched.kube.cluster import NodeStore, is_older
from dynsched.kube.failures import SetupError
from dynsched.util.errors import ClusterError, ForbiddenError
from dynsched.util.logs import LoggedKinds
from dynsched.util.stopping import Backoff, jittered, pause

logger = logging.getLogger(__name__)

PATIENCE: Final = 300.0
"""Seconds for which refused credentials are tried again. Then the process ends: a new one reads its
whole configuration again (for example a renewed CA)."""
LAG: Final = 10.0
"""Seconds after which a listed change counts as missed by the watch."""
OLD: Final = 15.0
"""Seconds for which every list must be older than the known nodes before the API server counts as
restored from a backup."""
LOOK_AGAIN: Final = 3.0
"""Seconds until a list is asked for again, where one is not enough."""
GAP: Final = 10.0
"""Minimum of seconds between two comparisons that are made because the watch was restarted."""
MAX_HOLD: Final = 600.0
"""Seconds, at most, until all nodes are listed again when the previous list changed nothing."""
_POLL: Final = 0.1


class Part(Enum):
    """What can fail; the value is the log message when it works again."""

    SERVER = "the API server answers again"
    WATCH = "the watch of nodes works again"
    NODES = "the nodes are known as the API server lists them again"
    NONE_LEFT = "the cluster has nodes again"


class Troubles:
    """The present trouble of each part, logged once. Every method may be called from any thread."""

    def __init__(self) -> None:
        self._found: dict[Part, str] = {}
        self._told = LoggedKinds()

    @property
    def first(self) -> str | None:
        """The one that has lasted longest; None while all is well."""
        return next(iter(tuple(self._found.values())), None)

    def begin(self, part: Part, why: ClusterError | str) -> None:
        """``part`` does not work, and why; it is logged where it is new."""
        self._found[part] = str(why)
        if self._told.is_new(part, str(why)):
            logger.warning("%s; trying again" if isinstance(why, ClusterError) else "%s", why)

    def end(self, part: Part) -> None:
        """``part`` works; it is logged where it did not before."""
        self._told.forget(part)
        if part in self._found and self._found.pop(part, ""):
            logger.info(part.value)


class Comparison(NamedTuple):
    """What differs, by the node's name. ``gone``: known, and not there any more; with the known
    uid. ``late``: listed in a newer state than the known one, or not known. ``impossible``: known
    in a state that the listed history never had.
    """

    gone: Mapping[str, str]
    late: Mapping[str, Seen]
    impossible: tuple[str, ...]


def compare(
    known: Mapping[str, Node], listing: Listing, undated: Collection[str] = ()
) -> Comparison:
    """Compare ``known``, as it was before the list was asked for, with the list.

    Within one history of etcd, a list of resourceVersion R shows every node in its last state up to
    R. What we know of a node in a state up to R is what the list shows, or older. If it is newer,
    the list is of another history: etcd was restored from a backup. What we know in a state after R
    says nothing. ``undated``: nodes whose known versions may be of another history.
    """
    gone: dict[str, str] = {}
    impossible: list[str] = []
    late = {name: seen for name, seen in listing.nodes.items() if name not in known}
    for name, node in known.items():
        seen, version = listing.nodes.get(name), node.resource_version
        is_dated = name not in undated
        if is_dated and seen == (node.uid, version):
            continue  # as nearly all: the versions as numbers take ten times as long
        if is_dated and is_older(listing.version, version):
            continue
        if seen is None or seen.uid != node.uid:
            gone[name] = node.uid
        if seen is None:
            continue
        if is_dated and is_older(seen.version, version):
            impossible.append(name)
        elif not is_dated or name in gone or not has_reached(node, seen):
            late[name] = seen
    return Comparison(gone, late, tuple(impossible))


def has_reached(node: Node | None, seen: Seen) -> bool:
    """Whether what we know of a node is at least as new as what a list has ``seen``."""
    return node is not None and not is_older(node.resource_version, seen.version)


class Followed(Protocol):
    """A watch: ``begun``, how often it has begun so far, after each list and when one has ended;
    ``is_listing``, whether a list is coming in, or a watch is yet to follow it.
    """

    begun: int

    @property
    def is_listing(self) -> bool:
        """Whether a list is coming in, or a watch is yet to follow it."""

    def begin_anew(self) -> None:
        """List all nodes again, and take them as they come, whatever their versions."""


@dataclass(eq=False)
class Resync:
    """Compares what is known with a list, ``every`` so many seconds, and cures the watch."""

    client: KubeClient
    store: NodeStore
    watch: Followed
    troubles: Troubles
    every: float
    _checked: int = field(default=0, init=False)
    _most: int = field(default=0, init=False)
    _last_seen: float = field(default_factory=time.monotonic, init=False)
    # Grows with each cure in a row that did not help; the first may be followed by another after
    # twice the least gap.
    _hold: Backoff = field(default_factory=lambda: Backoff(2 * GAP, MAX_HOLD), init=False)
    _next_cure: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self._server = f"the API server {self.client.config.server}"

    async def run(self, stop: asyncio.Event) -> None:
        """Raises ForbiddenError or SetupError when it has refused us for PATIENCE seconds."""
        due, earliest = time.monotonic() + jittered(self.every), 0.0
        refused_since: float | None = None
        while not stop.is_set():
            await pause(stop, min(1.0, self.every))
            self._tell_whether_none_is_left()
            is_doubtful = self.watch.begun != self._checked and not self.watch.is_listing
            if time.monotonic() < due and not (is_doubtful and time.monotonic() > earliest):
                continue
            try:
                await self._compare(stop)
            except ClusterError as error:
                self.troubles.begin(Part.SERVER, error)
                refused = isinstance(error, ForbiddenError | SetupError)
                refused_since = (refused_since or time.monotonic()) if refused else None
                if refused_since and time.monotonic() - refused_since > PATIENCE:
                    raise
                await pause(stop, jittered(min(self.every, 10.0)))
            else:
                refused_since = None
                due = time.monotonic() + jittered(self.every)
                gap = min(self.every, self._hold.seconds / 2)
                earliest = time.monotonic() + jittered(gap)

    async def _compare(self, stop: asyncio.Event) -> None:
        begun, is_listing = self.watch.begun, self.watch.is_listing
        found = await self._look_until_recent(stop)
        if stop.is_set():
            return
        if found is None or found.impossible:
            self._begin_anew(
                f"{self._server} went back to an older state, as after a restore of etcd"
            )
            return
        missed = await self._missed(found.late, stop)
        if missed and not self.watch.is_listing:
            self._begin_anew(f"the watch missed what became of {named_nodes(sorted(missed))}")
        elif not missed:
            self.troubles.end(Part.SERVER)
            if not is_listing:  # or versions that are yet to come in would have told more
                self._checked, self._next_cure = begun, 0.0
                self._hold.reset()
                self.troubles.end(Part.NODES)
                self.troubles.end(Part.WATCH)

    def _begin_anew(self, why: str) -> None:
        now = time.monotonic()
        if now < self._next_cure:
            why += (
                ", and a new list of all nodes did not cure it; is one of several API servers "
                f"behind the others for good? Listing anew again in {self._next_cure - now:.0f} s"
            )
            self.troubles.begin(Part.NODES, why)
            return
        self.troubles.begin(Part.NODES, f"{why}; all nodes are listed anew")
        self.troubles.end(Part.SERVER)
        self._next_cure = now + self._hold.next()
        self.watch.begin_anew()

    def _tell_whether_none_is_left(self) -> None:
        """Not at once: a single node may be replaced by another."""
        count, now = len(self.store), time.monotonic()
        if count:
            self._most, self._last_seen = max(self._most, count), now
            self.troubles.end(Part.NONE_LEFT)
        elif self._most and now - self._last_seen > LAG:
            self.troubles.begin(
                Part.NONE_LEFT,
                f"{self._server} has no node any more, of up to {self._most} before; "
                "is it still the right cluster?",
            )

    async def _look_until_recent(self, stop: asyncio.Event) -> Comparison | None:
        """What a list shows that is not older than what we knew before it; None if all are."""
        undated = self.store.undated()
        nodes = self.store.nodes().items()
        dated = [node.resource_version for name, node in nodes if name not in undated]
        known = await asyncio.to_thread(newest, dated)
        for looks in range(1 + math.ceil(OLD / LOOK_AGAIN)):
            version, found = await self._look(stop)
            if found.impossible or not is_older(version, known):
                return found
            if looks > 0:  # the next one may come from another API server
                self.troubles.begin(
                    Part.NODES,
                    f"{self._server} lists the nodes as of version {version}, although it "
                    f"reported version {known} before: etcd was restored, or one of several API "
                    "servers is behind; looking again",
                )
            await pause(stop, LOOK_AGAIN)
            if stop.is_set():
                break
        return None

    async def _look(self, stop: asyncio.Event) -> tuple[str, Comparison]:
        """The version of a new list, and what differs from it. The nodes that a second one lacks
        too are forgotten: one may be wrong (of an API server that has only just begun, say).
        """
        version, found = await self._compared()
        if gone := found.gone.items():
            await pause(stop, LOOK_AGAIN)
            version, found = await self._compared()
            lacked = gone & found.gone.items()
            if dropped := [name for name, uid in lacked if self.store.drop(name, uid)]:
                logger.info(
                    "deleted while the watch was interrupted: %s", named_nodes(sorted(dropped))
                )
        return version, found

    async def _compared(self) -> tuple[str, Comparison]:
        undated = self.store.undated()  # first: what comes in between is dated, and is known
        known = self.store.nodes()
        listing = await self.client.listing()
        # In a thread, for at 65,000 nodes it takes longer than an HTTP answer should wait.
        return listing.version, await asyncio.to_thread(compare, known, listing, undated)

    async def _missed(self, late: Mapping[str, Seen], stop: asyncio.Event) -> list[str]:
        """Which of the ``late`` nodes do not come, though a second list shows them too."""
        # Counted in turns, not in seconds: a process that was stopped received nothing meanwhile.
        for _ in range(math.ceil(LAG / _POLL)):
            late = self._outstanding(late)
            if not late or stop.is_set():
                return []
            await pause(stop, _POLL)
        again = (await self._look(stop))[1].late
        return [
            name
            for name, seen in self._outstanding(late).items()
            if name in again and again[name].uid == seen.uid
        ]

    def _outstanding(self, late: Mapping[str, Seen]) -> Mapping[str, Seen]:
        undated, find = self.store.undated(), self.store.find
        return {
            name: seen
            for name, seen in late.items()
            if name in undated or not has_reached(find(name), seen)
        }


def newest(versions: Collection[str]) -> str:
    """The newest version; empty when none can be compared."""
    return max(filter(str.isdecimal, versions), key=int, default="")
