"""What the answers are made from: the last Snapshot, and the few facts that are not in it."""

from __future__ import annotations

import asyncio
import os
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, TypeVar

from dynsched.api.metrics import Metrics
from dynsched.api.node_series import NodeSeries
from dynsched.api.nodes import around_nodes, encode_each
from dynsched.api.order_status import OrderStatus
from dynsched.api.page.data import About, Encoded, encoded_page
from dynsched.api.page.facts import PageFacts
from dynsched.api.page.history import Changes, History
from dynsched.engine.health import overdue_after, why_unhealthy
from dynsched.engine.model import Order
from dynsched.engine.snapshot import Snapshot

_T = TypeVar("_T")

_BATCH: Final = 50
"""Nodes that are encoded in one go: about a millisecond in which no other request is answered."""
_IN_COLUMNS: Final = 150
"""The same, from the columns. In operations on more than 500 elements (here of three rules) numpy
lets other threads have a turn, and each is another millisecond."""


_MAX_CHANGES: Final = 60
"""What was written, and what concerns all nodes, that the page lists."""


@dataclass(slots=True)
class SnapshotStore:
    """``clock`` gives seconds and is never set. ``source`` is shown to every client: a URL without
    user, password or token. ``leader``: which replica writes; None where that is not known.
    ``graphs``: where people reach Prometheus's own pages; None: at ``source``. ``cluster``: its
    name.
    """

    clock: Callable[[], float]
    interval: float
    source: str
    synced: Callable[[], bool]
    metrics: Metrics
    node_series: bool = True
    leader: Callable[[], str | None] = lambda: None
    graphs: str | None = None
    cluster: str | None = None
    history: History = field(init=False)
    changes: Changes = field(default_factory=Changes, init=False)
    facts: PageFacts = field(init=False)
    snapshot: Snapshot | None = field(default=None, init=False)
    """None before the first tick is done."""
    order_status: OrderStatus | None = field(default=None, init=False)
    """None where no order is written: the rules have none, or it is a dry run."""
    _published_at: float = field(default=0.0, init=False)
    _published: int = field(default=0, init=False)
    # Another process counts from 1 as well: its bytes must not pass for this one's.
    _process: str = field(default_factory=lambda: os.urandom(4).hex(), init=False)
    _made: dict[Hashable, asyncio.Task[Any]] = field(default_factory=dict, init=False)
    """What was made of the last Snapshot, or is being made."""
    _page: Encoded | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.history = History(self.interval)
        self.facts = PageFacts(self.clock)

    def publish(self, snapshot: Snapshot, placed: Sequence[str] | None = None) -> None:
        """It is encoded at the first request only. ``placed``: the node of each pod that was bound
        since the one before; None where pods are not watched.
        """
        if self.order_status is not None:
            snapshot = replace(snapshot, order_error=self.order_status.error)
        found = self.facts.observe(snapshot, placed)
        if found is not None:
            self.metrics.placed(found)
        self.snapshot = snapshot
        self._published_at = self.clock()
        self._published += 1
        self._made, self._page = {}, None
        self.metrics.observe(snapshot)
        self.changes.observe(snapshot)
        self.history.observe(snapshot)

    @property
    def etag(self) -> str:
        """The ETag of everything that is answered from the last Snapshot alone, with quotes."""
        return f'"{self._process}-{self._published}"'

    def _once(self, key: Hashable, make: Callable[[], Coroutine[Any, Any, _T]]) -> Awaitable[_T]:
        task = self._made.get(key)
        if task is None:
            task = self._made[key] = asyncio.create_task(make())
        # Shielded: one caller that hangs up must not take it from the others.
        return asyncio.shield(task)

    def why_unhealthy(self) -> str | None:
        why = why_unhealthy(self.snapshot, self.age(), self.interval)
        if why is None and self.order_status is not None and self.order_status.error is not None:
            why = f"the order of the nodes cannot be kept: {self.order_status.error}"
        return why

    def age(self) -> float:
        return self.clock() - self._published_at

    def order(self) -> Order | None:
        """Of the last tick; None while ticks are overdue: nobody looks at the load."""
        if self.snapshot is None or self.age() > overdue_after(self.interval):
            return None
        return self.snapshot.order

    def tell_of_order(self, status: OrderStatus) -> None:
        """What came of its writes, in all answers and in `/metrics`."""
        self.order_status = status
        self.metrics.registry.register(status)

    def _about(self, snapshot: Snapshot) -> About:
        return {
            "interval": self.interval,
            "overdue_after": overdue_after(self.interval),
            "graphs": self.graphs or self.source,
            # Of the Snapshot itself: how old it is, the page sees for itself.
            "error": why_unhealthy(snapshot, 0.0, self.interval),
            "leader": self.leader(),
            "order_error": self.order_status and self.order_status.error,
            "cluster": self.cluster,
            "changes": self.changes.of_all(_MAX_CHANGES),
            "placements": self.facts.placements and self.facts.placements.columns(),
        }

    def encoded_page(self, snapshot: Snapshot) -> Encoded:
        """Made once for all pages that are open."""
        if self._page is None:
            self._page = encoded_page(snapshot, self._about(snapshot), self.etag)
        return self._page

    def why_not_ready(self) -> str | None:
        if not self.synced():
            return "the nodes are not listed yet"
        return None if self.snapshot else "no tick has finished yet"

    async def encoded_nodes(
        self, snapshot: Snapshot, *, marked: bool | None, limit: int | None = None, after: str = ""
    ) -> bytes:
        """The body of `/nodes`. That of all nodes is made once; with a ``limit`` it has so many, by
        name, after ``after``. ``marked`` narrows the nodes, never names and number of the marked.
        """
        if limit is None:
            return await self._once(marked, partial(_encode, snapshot, marked=marked))
        return await _encode(snapshot, marked=marked, limit=limit, after=after)

    async def exposition(self) -> bytes:
        """`/metrics`. While ticks are overdue, there are no series of nodes: a program that acts on
        them must not go by an old state.
        """
        common, snapshot = self.metrics.exposition(), self.snapshot
        if not self.node_series or snapshot is None or self.age() > overdue_after(self.interval):
            return common
        return common + await self._once("series", partial(_series_of, snapshot))


async def _series_of(snapshot: Snapshot) -> bytes:
    series, names = NodeSeries(snapshot), sorted(snapshot.nodes)
    for start in range(0, len(names), _IN_COLUMNS):
        series.add(names[start : start + _IN_COLUMNS])
        await asyncio.sleep(0)
    return series.encoded()


async def _encode(
    snapshot: Snapshot, *, marked: bool | None, limit: int | None = None, after: str = ""
) -> bytes:
    nodes, carry = snapshot.nodes, snapshot.nodes.marked
    names = sorted(name for name in nodes if marked is None or (name in carry) is marked)
    start, more = bisect_right(names, after), None
    if limit is not None and start + limit < len(names):
        more = names[start + limit - 1]
    names = names[start:] if limit is None else names[start : start + limit]
    # On the loop, by batches. In a thread the interpreter's lock would hold up other requests
    # for 5 ms at a time; and the threads may all be waiting for a Prometheus that hangs.
    before, behind = around_nodes(snapshot, more)
    pieces = [before]
    for first in range(0, len(names), _BATCH):
        views = snapshot.nodes.of(names[first : first + _BATCH])
        pieces += (b"," if first else b""), b",".join(encode_each(snapshot, views))
        await asyncio.sleep(0)
    return b"".join([*pieces, behind])
