"""Computes the order of each tick, and keeps it in the cluster: written, renewed and withdrawn."""

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
"""Seconds for which an order is in force that is not renewed: after a crash of dynsched it ends
within 30 s, a write that was under way included."""
RENEW: Final = 10.0
"""Seconds after which an order that has not changed is written again."""
RETRY: Final = 5.0
"""Seconds after a call that failed."""
APART: Final = 1.0
"""Seconds between two writes at least."""
WRITE_SHARE: Final = 10
"""Writes may take one part in this many of the time; else the next one comes later: a large order,
or a slow API server."""
_LEAST_WAIT: Final = 0.001
"""Seconds; a timer may go off a moment early."""


class AnsweredOrder:
    """In place of the object in the cluster (`NodeOrder`): nothing is written, and pods get the
    order that is in force when the API server calls the webhook. ``until`` is by this process's
    clock.
    """

    async def write(self, _order: Order, lasts: float) -> float:
        return time.time() + lasts

    async def withdraw(self) -> None:
        return


class NodeOrderWriter:
    """Keeps ``status.order`` up to date, and ``kept`` equal to it while ``leads()``. ``interval``:
    seconds between two ticks.
    """

    def __init__(
        self,
        kept: NodeOrder | AnsweredOrder,
        status: OrderStatus,
        leads: Callable[[], bool],
        interval: float,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._object = kept
        self._status = status
        self._leads = leads
        self._interval = interval
        self._clock = clock
        self._logged = LoggedKinds()
        self._tried_at, self._took = -math.inf, 0.0
        self._overdue_at = math.inf

    async def run(self, stop: asyncio.Event, ticks: Latest[Tick]) -> None:
        """Until ``stop`` is set; then the order is withdrawn."""
        status, last = self._status, None
        while not stop.is_set():
            tick = await self._next_tick(stop, ticks, last)
            if tick is not None:
                last, self._overdue_at = tick, self._clock() + overdue_after(self._interval)
                # In a thread: HTTP should not wait for it.
                order = await asyncio.to_thread(compute_order, tick.evaluation, tick.pods)
                status.order, status.pods = order, tick.pods
                status.unknown = why_unknown(tick) if order is None else None
            elif self._clock() >= self._overdue_at:  # nobody looks at the load
                status.order, self._overdue_at = None, math.inf
            await self._write_if_due()
        if status.in_force is not None:
            await self._call(None)

    async def _next_tick(
        self, stop: asyncio.Event, ticks: Latest[Tick], last: Tick | None
    ) -> Tick | None:
        """None where something else is to be done before there is one."""
        rest = min(self._due_at(), self._overdue_at) - self._clock()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(max(_LEAST_WAIT, rest), RENEW)):
                return await run_until_stopped(stop, ticks.after(last))
        return None

    async def _write_if_due(self) -> None:
        status = self._status
        if not self._leads():  # the new leader writes its own; without one, this one ends by itself
            status.in_force = status.error = None
            self._logged.forget("order")
        elif status.order is None and status.in_force is None:
            status.error = None  # it is about an order that is not wanted any more
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
                await self._object.withdraw()
            else:
                until = await self._object.write(order, LASTS)
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
