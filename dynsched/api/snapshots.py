"""What the answers are made from: the last Snapshot, and the few facts that are not in it."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

from dynsched.api.metrics import Metrics
from dynsched.api.node_series import NodeSeries
from dynsched.api.nodes import around_nodes, encode_each
from dynsched.api.page.data import About
from dynsched.api.page.facts import PageFacts
from dynsched.api.page.feed import Feed
from dynsched.api.totals import Totals, count
from dynsched.api.transport.answering import Pieces
from dynsched.engine.health import is_overdue, overdue_after, why_unhealthy
from dynsched.engine.pod_facts import BoundOnNode
from dynsched.engine.snapshot import Snapshot

_T = TypeVar("_T")

_BATCH: Final = 50
"""Nodes that are encoded in one go: about a millisecond in which no other request is answered."""
_IN_COLUMNS: Final = 150
"""The same, where they are taken from the columns. In operations on more than 500 elements (here
of three rules) numpy lets other threads have a turn, and each turn is another millisecond."""


@dataclass(slots=True)
class SnapshotStore:
    """Holds the last Snapshot, from which all answers are made.

    ``clock`` gives seconds and is never set. ``source`` is shown to every client: a URL
    without user, password or token. ``synced``: whether the first list of nodes is complete.
    ``node_series``: whether `/metrics` has series for each node.
    ``leader``: which replica writes; None where that is not known, or there is no election.
    ``graphs``: where people reach Prometheus's own pages, for links; None: at ``source``.
    ``bound``: the pods that were just bound to a node; None where pods are not watched.
    """

    clock: Callable[[], float]
    interval: float
    source: str
    synced: Callable[[], bool]
    metrics: Metrics
    node_series: bool = True
    leader: Callable[[], str | None] = lambda: None
    graphs: str | None = None
    bound: Callable[[str], BoundOnNode | None] = lambda _: None
    feed: Feed = field(init=False)
    """What the page at `/` is answered from."""
    facts: PageFacts = field(init=False)
    """What it shows beside the Snapshot."""
    _snapshot: Snapshot | None = field(default=None, init=False)
    _published_at: float = field(default=0.0, init=False)
    _made: dict[Hashable, asyncio.Task[Any]] = field(default_factory=dict, init=False)
    """What was made of the last Snapshot, or is being made."""

    def __post_init__(self) -> None:
        """The page's step in time follows the interval."""
        self.feed = Feed(self.interval)
        self.facts = PageFacts(self.clock, self.bound)

    @property
    def snapshot(self) -> Snapshot | None:
        """The last one published; None before the first tick is done."""
        return self._snapshot

    def publish(self, snapshot: Snapshot, placed: Sequence[str] | None = None) -> None:
        """Replace the Snapshot and count its tick. It is encoded at the first request only.

        ``placed``: the node of each pod that was bound since the one before; None where pods are
        not watched. Those before the first Snapshot do not count.
        """
        found = self.facts.observe(snapshot, placed)
        if found is not None:
            self.metrics.placed(found)
        self._snapshot = snapshot
        self._published_at = self.clock()
        self._made = {}
        self.metrics.observe(snapshot)
        self.feed.publish(snapshot, self._about(snapshot), self.facts.requested)

    async def totals(self) -> Totals | None:
        """Of the last Snapshot; None before the first tick is done."""
        return None if self._snapshot is None else await self._counted(self._snapshot)

    def _counted(self, snapshot: Snapshot) -> Awaitable[Totals]:
        return self._once("totals", partial(count, snapshot))

    def _once(self, key: Hashable, make: Callable[[], Coroutine[Any, Any, _T]]) -> Awaitable[_T]:
        """What ``make`` comes to, once a Snapshot."""
        task = self._made.get(key)
        if task is None:
            task = self._made[key] = asyncio.create_task(make())
        # Shielded: one caller that hangs up must not take it from the others.
        return asyncio.shield(task)

    def why_unhealthy(self) -> str | None:
        """One line with the reason why `/status` is not ok; None when it is."""
        return why_unhealthy(self._snapshot, self.age(), self.interval)

    def age(self) -> float:
        """Seconds since the last Snapshot."""
        return self.clock() - self._published_at

    def _about(self, snapshot: Snapshot) -> About:
        return About(
            interval=self.interval,
            overdue_after=overdue_after(self.interval),
            source=self.source,
            graphs=self.graphs or self.source,
            # Of the Snapshot itself: how old it is, the page sees for itself.
            error=why_unhealthy(snapshot, 0.0, self.interval),
            leader=self.leader(),
            **self.facts.shown(snapshot.taken_at),
        )

    def why_not_ready(self) -> str | None:
        """What is missing before readings can be answered, in one line; None when nothing is."""
        if not self.synced():
            return "the nodes are not listed yet"
        return None if self._snapshot else "no tick has finished yet"

    async def encoded_nodes(self, *, marked: bool | None) -> Pieces | None:
        """The body of `/nodes` in pieces, made once a Snapshot; None before the first tick is done.

        ``marked`` narrows the list of nodes, never the names and the number of the marked.
        """
        if self._snapshot is None:
            return None
        counted = self._counted(self._snapshot)
        return await self._once(marked, partial(_encode_all, counted, marked=marked))

    async def encoded_page(self, *, marked: bool | None, limit: int, after: str) -> bytes | None:
        """As `encoded_nodes`, with at most ``limit`` nodes, by name, that come after ``after``."""
        totals = await self.totals()
        if totals is None:
            return None
        names = totals.narrowed(marked=marked)
        start = bisect_right(names, after)
        page = names[start : start + limit]
        more = page[-1] if start + limit < len(names) else None
        before, behind = around_nodes(totals.snapshot, totals.named, more)
        return b"".join([before, *await _encode(totals.snapshot, page), behind])

    async def exposition(self) -> Pieces:
        """The body of `/metrics`, in pieces. While ticks are overdue, there are no series of nodes:
        a program that acts on them must not go by a state that nobody looks after.
        """
        totals = await self.totals()
        common = self.metrics.exposition(totals)
        if not self.node_series or totals is None or is_overdue(self.age(), self.interval):
            return [common]
        return [common, *await self._once("series", partial(_series_of, totals))]


async def _series_of(totals: Totals) -> Pieces:
    series = NodeSeries(totals.snapshot)
    for start in range(0, len(totals.names), _IN_COLUMNS):
        series.add(totals.names[start : start + _IN_COLUMNS])
        await asyncio.sleep(0)
    return series.pieces()


async def _encode_all(counted: Awaitable[Totals], *, marked: bool | None) -> Pieces:
    totals = await counted
    nodes = await _encode(totals.snapshot, totals.narrowed(marked=marked))
    before, behind = around_nodes(totals.snapshot, totals.named)
    return [before, *nodes, behind]


async def _encode(snapshot: Snapshot, names: Sequence[str]) -> Pieces:
    """The nodes of these names, with commas between them."""
    # On the loop, by batches. In a thread the interpreter's lock would hold up other requests
    # for 5 ms at a time; and the threads may all be waiting for a Prometheus that hangs.
    pieces: list[bytes] = []
    for start in range(0, len(names), _BATCH):
        views = snapshot.nodes.of(names[start : start + _BATCH])
        comma = b"," if pieces else b""
        pieces.append(comma + b",".join(encode_each(snapshot, views)))
        await asyncio.sleep(0)
    return pieces
