"""The order in the cluster, kept as the ticks have it: written, renewed and withdrawn."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from dynsched.api.order_status import LastOrder, OrderStatus
from dynsched.engine.model import Order
from dynsched.kube.leader_writer import LeaderWriter
from dynsched.kube.node_order import NodeOrder
from dynsched.kube.transport import KubeApi
from dynsched.util.errors import ClusterError
from dynsched.util.logs import LoggedKinds
from dynsched.util.stopping import pause

logger = logging.getLogger(__name__)

LASTS: Final = 28.0
"""Seconds for which an order is in force that is not renewed: after a crash of dynsched it ends
within 30 s, a write that was under way included."""
RENEW: Final = 10.0
"""Seconds after which it is written again, though it has not changed."""
RETRY: Final = 5.0
"""Seconds after a call that failed."""
APART: Final = 1.0
"""Seconds between two writes at least."""
WRITE_SHARE: Final = 10
"""A write may take one such part of the time; else the next one comes later: a large order, or a
slow API server."""
POLL: Final = 0.25
_DISPUTED: Final = (
    "somebody else wrote or deleted it meanwhile. A second dynsched without leader election "
    "(--no-leader-elect) must have another --lease-namespace"
)


class Ordering:
    """Writes the order that is ``wanted`` to ``namespace``, and keeps the result in ``status``."""

    def __init__(
        self,
        api: KubeApi,
        namespace: str,
        wanted: Callable[[], Order | None],
        status: OrderStatus,
        writer: LeaderWriter,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster = NodeOrder(api, namespace, writer)
        self._wanted = wanted
        self._status = status
        self._leads = writer.may_write
        self._clock = clock
        self._told = LoggedKinds()
        self._tried_at, self._took = -RENEW, 0.0

    async def run(self, stop: asyncio.Event) -> None:
        """Until ``stop`` is set; then it is withdrawn. A call that fails is made again later."""
        while not stop.is_set():
            if self._leads():
                await self._follow()
            else:  # the new leader writes its own; if there is none, this one ends by itself
                self._status.in_force = self._status.error = None
                self._told.forget("order")
                self._cluster.forget()
            await pause(stop, POLL)
        if self._status.in_force is not None:
            await self._call(None)

    async def _follow(self) -> None:
        wanted, status = self._wanted(), self._status
        if wanted is None and status.in_force is None:
            status.error = None  # of one that is not wanted any more
            return
        if status.error is not None:
            rest = RETRY
        elif status.in_force and wanted == status.in_force.order:
            rest = RENEW
        else:
            rest = 0.0 if wanted is None else min(RENEW, max(APART, WRITE_SHARE * self._took))
        if self._clock() - self._tried_at >= rest:
            await self._call(wanted)

    async def _call(self, order: Order | None) -> None:
        self._tried_at = self._clock()
        status, written = self._status, None
        try:
            if order is None:
                await self._cluster.withdraw()
            else:
                until = await self._cluster.write(order, LASTS)
                written = LastOrder(order, time.time(), until)
        except ClusterError as error:
            self._failed(str(error))
            self._cluster.forget()  # what failed may have been done
            status.calls["failed"] += 1
            return
        self._took = self._clock() - self._tried_at
        status.in_force = written
        status.calls["ok"] += 1
        if order is not None and self._cluster.is_disputed:
            self._failed(_DISPUTED)
            return
        status.error = None
        if self._told.forget("order"):
            logger.info("the order of the nodes is kept again")

    def _failed(self, error: str) -> None:
        if self._told.is_new("order", error):
            logger.warning("the order of the nodes cannot be kept: %s", error)
        self._status.error = error
