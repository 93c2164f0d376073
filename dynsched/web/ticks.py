"""The state that responses are made from: the last tick, and a few facts that are not in it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import msgspec

from dynsched.core.health import overdue_after, why_unhealthy
from dynsched.core.tick import Tick
from dynsched.features.order.status import OrderStatus, for_the_page
from dynsched.web.metrics import Metrics
from dynsched.web.node_series import node_series
from dynsched.web.nodes import nodes_answer
from dynsched.web.page.data import About, encoded_page
from dynsched.web.page.past import Changes, Placements

_T = TypeVar("_T")

_MAX_CHANGES: Final = 60
"""The maximum number of writes and of cluster-wide changes, together, that the page lists."""


@dataclass(slots=True)
class TickStore:
    """The last tick, and the responses that were made from it.

    ``clock``: monotonic, in seconds. ``source``: a URL without user, password or token, because
    every client sees it. ``leader``: the replica that writes; None if unknown. ``graphs``: the URL
    of Prometheus's web interface; None: ``source``. ``cluster``: its name.
    """

    clock: Callable[[], float]
    interval: float
    source: str
    synced: Callable[[], bool]
    node_series: bool = True
    leader: Callable[[], str | None] = lambda: None
    graphs: str | None = None
    cluster: str | None = None
    rules_error: Callable[[], str | None] = lambda: None
    """Why no rules are in force, so that there are no ticks; None while there are rules."""
    metrics: Metrics = field(default_factory=Metrics, init=False)
    changes: Changes = field(default_factory=Changes, init=False)
    placements: Placements | None = field(default=None, init=False)
    """None while pods are not watched."""
    tick: Tick | None = field(default=None, init=False)
    """None before the first tick has finished."""
    order: OrderStatus = field(default_factory=OrderStatus, init=False)
    """Empty while the rules have no `order`."""
    _published_at: float = field(default=0.0, init=False)
    _made: dict[str, asyncio.Task[Any]] = field(default_factory=dict, init=False)
    """Responses from the last tick. Each is made at the first request, once for all clients."""

    def publish(self, tick: Tick, placed: Sequence[str] | None = None) -> None:
        """Answer from ``tick`` from now on. ``placed``: the node of each pod that was bound since
        the previous tick; None if pods are not watched.
        """
        if placed is not None:
            self.placements = self.placements or Placements()
            before = self.tick
            if before is None:  # the nodes' earlier state is unknown: do not count it as clean
                before, placed = tick, ()
            self.metrics.placed(self.placements.count(placed, before.evaluation, tick.taken_at))
        self.tick = tick
        self._published_at = self.clock()
        self._made = {}
        self.metrics.observe(tick)
        self.changes.observe(tick)

    def why_unhealthy(self) -> str | None:
        """Why `/status` is not ok, in one line; None if it is."""
        refused = self.rules_error()
        if refused is not None:
            return f"no rules are in force: {refused}"
        why = why_unhealthy(self.tick, self.age(), self.interval)
        if why is None and self.order.problem is not None:
            return f"the order of the nodes cannot be kept: {self.order.problem}"
        return why

    def why_not_ready(self) -> str | None:
        """Why `/readyz` is not ok; None if it is, also without rules: `/status` has the reason."""
        if not self.synced():
            return "the nodes are not listed yet"
        return None if self.tick or self.rules_error() else "no tick has finished yet"

    def age(self) -> float:
        """Seconds since the last tick."""
        return self.clock() - self._published_at

    def show_order(self, status: OrderStatus, *, with_metrics: bool = True) -> None:
        """Show the order in all responses, and ``with_metrics`` also in `/metrics`."""
        self.order = status
        if with_metrics:
            self.metrics.order = status

    async def encoded_page(self, tick: Tick) -> bytes:
        """The page's data, made once for all clients."""
        return await self._once(
            "page", lambda: asyncio.to_thread(encoded_page, tick, self._about(tick))
        )

    def _about(self, tick: Tick) -> About:
        return {
            "interval": self.interval,
            "overdue_after": overdue_after(self.interval),
            "graphs": self.graphs or self.source,
            # Without the tick's age, which the page computes itself.
            "error": why_unhealthy(tick, 0.0, self.interval),
            "leader": self.leader(),
            "order": self.order.order and for_the_page(self.order.order),
            "order_error": self.order.problem,
            "cluster": self.cluster,
            "changes": self.changes.of_all(_MAX_CHANGES),
            "placements": self.placements and self.placements.columns(),
        }

    async def encoded_nodes(self, tick: Tick) -> bytes:
        """The body of `/nodes`, made once for all clients."""

        def encode() -> bytes:
            return msgspec.json.encode(nodes_answer(tick, self.order.problem))

        return await self._once("nodes", lambda: asyncio.to_thread(encode))

    async def exposition(self) -> bytes:
        """The body of `/metrics`. While ticks are overdue, it has no series of nodes: programs that
        act on them must not rely on an old state.
        """
        common, tick = self.metrics.exposition(), self.tick
        if not self.node_series or tick is None or self.age() > overdue_after(self.interval):
            return common
        series = await self._once("series", lambda: asyncio.to_thread(node_series, tick))
        return common + series.encode()

    def _once(self, key: str, make: Callable[[], Coroutine[Any, Any, _T]]) -> Awaitable[_T]:
        task = self._made.get(key)
        if task is None:
            task = self._made[key] = asyncio.create_task(make())
        # A client that disconnects must not cancel the task that others wait for.
        return asyncio.shield(task)
