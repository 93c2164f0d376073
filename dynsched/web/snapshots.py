"""What the answers are made from: the last Snapshot, and the few facts that are not in it."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final

import msgspec

from dynsched.core.health import is_overdue, overdue_after, why_unhealthy
from dynsched.core.model import Snapshot
from dynsched.web.metrics import Metrics
from dynsched.web.node_series import NodeSeries
from dynsched.web.nodes import encode_each, encode_nodes
from dynsched.web.page.board import Board
from dynsched.web.page.columns import About
from dynsched.web.page.feed import Feed

_BATCH: Final = 50
"""Nodes that are encoded in one go: about a millisecond in which no other request is answered."""


def _no_leader() -> str | None:
    return None


@dataclass(slots=True)
class SnapshotStore:
    """Holds the last Snapshot, from which all answers are made.

    ``clock`` gives seconds and is never set. ``source`` is shown to every client: a URL
    without user, password or token. ``synced``: whether the first list of nodes is complete.
    ``node_series``: whether `/metrics` has series for each node.
    ``leader``: which replica writes; None where that is not known, or there is no election.
    ``graphs``: where people reach Prometheus's own pages, for links; None: at ``source``.
    """

    clock: Callable[[], float]
    interval: float
    source: str
    synced: Callable[[], bool]
    metrics: Metrics
    node_series: bool = True
    leader: Callable[[], str | None] = _no_leader
    graphs: str | None = None
    feed: Feed = field(init=False)
    """What the page at `/` is answered from."""
    board: Board = field(init=False)
    """What it shows beside the Snapshot."""
    _snapshot: Snapshot | None = field(default=None, init=False)
    _published_at: float = field(default=0.0, init=False)
    _encoded: dict[bool | None, asyncio.Task[bytes]] = field(default_factory=dict, init=False)
    _series: asyncio.Task[bytes] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        """The page's step in time follows the interval."""
        self.feed = Feed(self.interval)
        self.board = Board(self.clock)

    @property
    def snapshot(self) -> Snapshot | None:
        """The last one published; None before the first tick is done."""
        return self._snapshot

    def publish(self, snapshot: Snapshot, placed: Sequence[str] | None = None) -> None:
        """Replace the Snapshot and count its tick. It is encoded at the first request only.

        ``placed``: the node of each pod that was bound since the one before; None where pods are
        not watched. Those before the first Snapshot do not count.
        """
        counted = self.board.observe(snapshot, placed)
        if counted is not None:
            self.metrics.placed(counted)
        self._snapshot = snapshot
        self._published_at = self.clock()
        self._encoded = {}
        self._series = None
        self.metrics.observe(snapshot)
        self.feed.publish(snapshot, self._about(snapshot), self.board.requested)

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
            **self.board.shown(snapshot.taken_at),
        )

    def why_not_ready(self) -> str | None:
        """What is missing before readings can be answered, in one line; None when nothing is."""
        if not self.synced():
            return "the nodes are not listed yet"
        return None if self._snapshot else "no tick has finished yet"

    async def encoded_nodes(self, *, marked: bool | None) -> bytes | None:
        """The body of `/nodes`, made once a Snapshot; None before the first tick is done.

        ``marked`` narrows the list of nodes, never the names and the number of the marked.
        """
        if self._snapshot is None:
            return None
        task = self._encoded.get(marked)
        if task is None:
            task = asyncio.create_task(_encode(self._snapshot, marked=marked))
            self._encoded[marked] = task
        # Shielded: one caller that hangs up must not take the answer from the others.
        return await asyncio.shield(task)

    async def encoded_page(self, *, marked: bool | None, limit: int, after: str) -> bytes | None:
        """As `encoded_nodes`, with at most ``limit`` nodes, by name, that come after ``after``."""
        if self._snapshot is None:
            return None
        return await _encode(self._snapshot, marked=marked, limit=limit, after=after)

    async def exposition(self) -> bytes:
        """The body of `/metrics`. While ticks are overdue, there are no series of nodes: a program
        that acts on them must not go by a state that nobody looks after.
        """
        common = self.metrics.exposition()
        if not self.node_series or self._snapshot is None or is_overdue(self.age(), self.interval):
            return common
        if self._series is None:
            self._series = asyncio.create_task(_series_of(self._snapshot))
        return common + await asyncio.shield(self._series)


async def _series_of(snapshot: Snapshot) -> bytes:
    # On the loop, by batches, as `_encode` does.
    views = sorted(snapshot.nodes.values(), key=lambda view: view.name)
    series = NodeSeries(snapshot)
    for start in range(0, len(views), _BATCH):
        series.add(views[start : start + _BATCH])
        await asyncio.sleep(0)
    return series.text()


async def _encode(
    snapshot: Snapshot, *, marked: bool | None, limit: int | None = None, after: str = ""
) -> bytes:
    # On the loop, by batches. In a thread the interpreter's lock would hold up other requests
    # for 5 ms at a time; and the threads may all be waiting for a Prometheus that hangs.
    found = (
        view
        for view in snapshot.nodes.values()
        if view.name > after and (marked is None or view.marked is marked)
    )
    by_name = attrgetter("name")
    if limit is None:
        views, more = sorted(found, key=by_name), None
    else:
        views = heapq.nsmallest(limit + 1, found, key=by_name)
        more = views[limit - 1].name if len(views) > limit else None
        views = views[:limit]
    encoded: list[msgspec.Raw] = []
    for start in range(0, len(views), _BATCH):
        encoded += encode_each(snapshot, views[start : start + _BATCH])
        await asyncio.sleep(0)
    return encode_nodes(snapshot, encoded, more)
