"""Computes the order of each tick, and writes, renews and withdraws it in the cluster."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Callable
from typing import Final

from dynsched.core.health import overdue_after
from dynsched.core.tick import Tick
from dynsched.features.order.ranks import Order, compute_order
from dynsched.features.order.resource import NodeOrder
from dynsched.features.order.status import LastOrder, OrderStatus, why_unknown
from dynsched.util.errors import ClusterError
from dynsched.util.latest import Latest
from dynsched.util.logs import LoggedKinds
from dynsched.util.stopping import run_until_stopped

logger = logging.getLogger(__name__)

LASTS: Final = 28.0
"""Seconds for which an order is in force if it is not renewed. After a crash of dynsched, the order
ends within 30 s, even if a write was in progress."""
RENEW: Final = 10.0
"""Seconds after which an unchanged order is written again."""
RETRY: Final = 5.0
"""Seconds after which a failed call is repeated."""
APART: Final = 1.0
"""Minimum seconds between two writes."""
WRITE_SHARE: Final = 10
"""After a slow write (a large order, or a slow API server) the next one starts this many times its
duration later, so that writes take a tenth of the time."""
_LEAST_WAIT: Final = 0.001
"""Minimum wait in seconds, because a timer may fire slightly early."""


class AnsweredOrder:
    """Replaces `NodeOrder` if pods get the order from the webhook: nothing is written.

    The webhook answers with the order that is in force. ``until`` is by this process's clock.
    """

    async def write(self, _order: Order, lasts: float) -> float:
        return time.time() + lasts

    async def withdraw(self) -> None:
        return


class NodeOrderWriter:
    """Keeps ``status.order`` up to date, and writes it to ``target`` while ``leads()``.

    ``interval``: seconds between two ticks.
    """

    def __init__(
        self,
        target: NodeOrder | AnsweredOrder,
        status: OrderStatus,
        leads: Callable[[], bool],
        interval: float,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._target = target
        self._status = status
        self._leads = leads
        self._interval = interval
        self._clock = clock
        self._logged = LoggedKinds()
        self._tried_at, self._took = -math.inf, 0.0
        self._overdue_at = math.inf

    async def run(self, stop: asyncio.Event, ticks: Latest[Tick]) -> None:
        """Run until ``stop`` is set, then withdraw the order."""
        status, last = self._status, None
        while not stop.is_set():
            tick = await self._next_tick(stop, ticks, last)
            if tick is not None:
                last, self._overdue_at = tick, self._clock() + overdue_after(self._interval)
                # In a thread, so that HTTP requests do not wait.
                order = await asyncio.to_thread(compute_order, tick.evaluation, tick.pods)
                status.order, status.pods = order, tick.pods
                status.unknown = why_unknown(tick) if order is None else None
            elif self._clock() >= self._overdue_at:  # the loads are outdated
                status.order, self._overdue_at = None, math.inf
            await self._write_if_due()
        if status.in_force is not None:
            await self._call(None)

    async def _next_tick(
        self, stop: asyncio.Event, ticks: Latest[Tick], last: Tick | None
    ) -> Tick | None:
        """The next tick; None if a write is due or ticks are overdue before it comes."""
        rest = min(self._due_at(), self._overdue_at) - self._clock()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(max(_LEAST_WAIT, rest), RENEW)):
                return await run_until_stopped(stop, ticks.after(last))
        return None

    async def _write_if_due(self) -> None:
        status = self._status
        if not self._leads():  # a new leader writes its own order; without one, this order expires
            status.in_force = status.error = None
            self._logged.forget("order")
        elif status.order is None and status.in_force is None:
            status.error = None  # it was about an order that is no longer wanted
        elif self._clock() >= self._due_at():
            await self._call(status.order)

    def _due_at(self) -> float:
        """When the next call is due, by the clock."""
        wanted, in_force = self._status.order, self._status.in_force
        if not self._leads() or (wanted is None and in_force is None):
            return math.inf
        if self._status.error is not None:
            rest = RETRY
        elif in_force is not None and wanted == in_force.order:
            rest = RENEW
        elif wanted is None:
            rest = 0.0
        else:
            rest = min(RENEW, max(APART, WRITE_SHARE * self._took))
        return self._tried_at + rest

    async def _call(self, order: Order | None) -> None:
        status, written, self._tried_at = self._status, None, self._clock()
        try:
            if order is None:
                await self._target.withdraw()
            else:
                until = await self._target.write(order, LASTS)
                written = LastOrder(order, time.time(), until)
        except ClusterError as error:
            status.error = str(error)
            status.calls["failed"] += 1
            if self._logged.is_new("order", status.error):
                logger.warning("the order of the nodes cannot be kept: %s", error)
            return
        self._took = self._clock() - self._tried_at
        status.in_force = written
        status.calls["ok"] += 1
        status.error = None
        if self._logged.forget("order"):
            logger.info("the order of the nodes is kept again")
