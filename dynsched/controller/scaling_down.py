"""The deletion costs of pods on hot nodes, kept as the ticks have them (docs/scale-down.md)."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge

from dynsched.engine.alerting.guard import Allowance
from dynsched.engine.placing.scale_down import CostedPod, arrivals, due_on
from dynsched.engine.snapshot import Snapshot
from dynsched.kube.pod_costs import on_node, write_cost
from dynsched.kube.transport import KubeApi
from dynsched.util.errors import ClusterError, ConflictError, NotFoundError, NotPermittedError
from dynsched.util.stopping import pause, unless_stopped

logger = logging.getLogger(__name__)

LINGER: Final = 60.0
"""Seconds for which costs stay on a node that is hot no more: one that is hot now and then is not
written each time, and no pod more than twice a minute."""
RETRY: Final = 30.0
"""Seconds until the next pass after one in which calls failed."""
MOST_FAILURES: Final = 5
"""After so many a pass ends: most often a right is missing."""
POLL: Final = 0.25


class ScalingDown:
    """Writes the costs by the last ``snapshot``, once each, while it ``leads``: where ticks are
    overdue, nothing is known of the load, and nothing is written. ``costed``: by uid, the pods that
    have a cost of dynsched's.
    """

    def __init__(
        self,
        api: KubeApi,
        *,
        snapshot: Callable[[], Snapshot | None],
        costed: Callable[[], Mapping[str, CostedPod]],
        leads: Callable[[], bool],
        registry: CollectorRegistry,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._list = partial(on_node, api)
        self._write = partial(write_cost, api, may_write=leads)
        self._snapshot = snapshot
        self._costed = costed
        self._leads = leads
        self._clock = clock
        self._allowance, self._passed = Allowance(), -math.inf
        """What is left of the bound on writes; and when the last pass was."""
        self._hot: dict[str, float] = {}
        """Until when the pods on a node have costs."""
        self._done: dict[str, set[str]] = {}
        """Of each hot node whose pods have theirs: the uids that were new then."""
        self._failures = 0
        self._error: str | None = None
        name = "dynsched_scale_down"
        text = "Writes of deletion costs to pods, by result."
        self._writes = Counter(f"{name}_writes", text, ["result"], registry=registry)
        text = "Pods that have a deletion cost of dynsched's."
        number = Gauge(f"{name}_pods", text, registry=registry)
        number.set_function(lambda: len(costed()))

    def status(self) -> Mapping[str, Any]:
        """For `/status`."""
        pods = self._costed().values()
        return {"pods": len(pods), "nodes": len({pod.node for pod in pods}), "error": self._error}

    async def run(self, stop: asyncio.Event) -> None:
        last: Snapshot | None = None
        while not stop.is_set():
            snapshot = self._snapshot()
            if not self._leads():  # what another leader does meanwhile is not known
                self._done, self._error = {}, None
            elif snapshot is not None and snapshot is not last:
                last = snapshot
                await unless_stopped(stop, self.follow(snapshot))
            await pause(stop, POLL)

    async def follow(self, snapshot: Snapshot) -> None:
        """One pass: what is due by this Snapshot, as far as the pace allows."""
        now, new = self._clock(), arrivals(snapshot)
        rule_set = snapshot.rule_set
        self._hot |= dict.fromkeys(new, now + LINGER)
        self._hot = {n: end for n, end in self._hot.items() if rule_set.scale_down and end > now}
        self._done = {name: uids for name, uids in self._done.items() if name in new}
        if self._failures and now - self._passed < RETRY:
            return
        self._allowance.refill(rule_set.guard.max_writes_per_minute, now)
        self._passed, self._failures = now, 0
        with suppress(NotPermittedError):  # the Lease was lost
            for node, uids in sorted(new.items()):
                is_done = node in self._done and uids <= self._done[node]
                if not is_done and await self._put_on(snapshot, node, uids):
                    self._done[node] = uids
            for pod in list(self._costed().values()):
                # One whose node is not known yet may be on a hot one.
                if pod.node not in self._hot and (pod.node or not rule_set.scale_down):
                    await self._send(pod, None)
        if not self._failures:
            self._error = None

    async def _put_on(self, snapshot: Snapshot, node: str, new: set[str]) -> bool:
        """Whether all pods on a hot node, the ``new`` ones among them, have their costs now."""
        if not self._may_send:
            return False
        try:
            pods, listed = await self._list(node)
        except ClusterError as error:
            self._failed(error)
            return False
        sent = [await self._send(pod, cost) for pod, cost in due_on(snapshot, node, pods)]
        return new <= listed and all(sent)

    async def _send(self, pod: CostedPod, cost: int | None) -> bool:
        """Whether nothing more is to be done about this pod. NotPermittedError."""
        if not self._may_send:
            return False
        self._allowance.left -= 1
        try:
            await self._write(pod, cost)
        except NotPermittedError:
            raise
        except NotFoundError:
            return True
        except ConflictError:
            return False  # it is planned again in the next pass
        except ClusterError as error:
            self._failed(error)
            return False
        self._writes.labels("ok").inc()
        return True

    @property
    def _may_send(self) -> bool:
        return self._allowance.left >= 1 and self._failures < MOST_FAILURES

    def _failed(self, error: ClusterError) -> None:
        self._failures += 1
        self._writes.labels("failed").inc()
        if self._error is None:
            logger.warning("a deletion cost cannot be written: %s", error)
        self._error = str(error)
