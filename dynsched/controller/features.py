"""The optional features. Each is imported and started once the rules configure it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from dynsched.controller.clients import Clients
from dynsched.controller.pod_tracking import PodTracking
from dynsched.controller.settings import Settings
from dynsched.core.evaluate import Evaluation
from dynsched.core.load.expected import KnownPods
from dynsched.core.tick import Tick
from dynsched.kube.client import bind_pod
from dynsched.kube.cluster import NodeCluster
from dynsched.kube.leader import Elector, NoElection
from dynsched.kube.transport import KubeApi
from dynsched.rules.file import RulesFile
from dynsched.util.latest import Latest
from dynsched.util.stopping import wait_for
from dynsched.web.ticks import TickStore

if TYPE_CHECKING:
    from dynsched.features.extender.answers import Extender

_POLL: Final = 1.0
"""Seconds between two checks whether the rules configure a feature."""
_BINDINGS: Final = 50
"""Maximum number of concurrent Bindings."""


@dataclass(eq=False, kw_only=True)
class Features:
    """The order and the scheduler extender. ``namespace``: that of the NodeOrder and the Lease."""

    settings: Settings
    rules_file: RulesFile
    clients: Clients
    cluster: NodeCluster
    pods: PodTracking
    leadership: Elector | NoElection
    namespace: str
    ticks: Latest[Tick]
    store: TickStore
    stop: asyncio.Event
    _extender: Extender | None = field(default=None, init=False)

    def extender(self) -> Extender | None:
        """The scheduler extender; None while the rules have no section ``extender``."""
        rule_set = self.rules_file.rule_set
        if rule_set is None or not rule_set.has_extender:
            return None
        if self._extender is None:
            from dynsched.features.extender.answers import Extender

            bind = None
            if self.settings.bind and not self.settings.dry_run:
                # Separate connections, so that no Binding waits behind patches.
                bind = partial(bind_pod, self.clients.open(partial(KubeApi, in_flight=_BINDINGS)))
            self._extender = Extender(
                nodes=self.cluster.nodes,
                synced=lambda: self.cluster.synced,
                rules=lambda: self.rules_file.in_force.extender,
                clock=time.monotonic,
                bound=self.pods.recent,
                watches_pods=self.pods.are_watched,
                bind_pod=bind,
            )
        return self._extender

    async def score(self, evaluation: Evaluation, pods: KnownPods) -> None:
        """Give an evaluation to the extender before any of its marks is written. A released mark
        makes the scheduler retry the pods that the extender refused; nothing makes it retry those
        that are refused again.
        """
        if (extender := self.extender()) is not None:
            await extender.prepare(evaluation, pods, time.time())

    async def keep_order(self) -> None:
        """Compute the order of each tick, and put it in force unless this is a dry run."""
        file = self.rules_file
        wants_order = lambda: file.rule_set is not None and file.rule_set.order is not None  # noqa: E731
        await wait_for(self.stop, wants_order, _POLL)
        if self.stop.is_set():
            return
        from dynsched.features.order.resource import NodeOrder
        from dynsched.features.order.status import OrderStatus
        from dynsched.features.order.writer import AnsweredOrder, NodeOrderWriter

        settings, by_webhook = self.settings, self.settings.webhook_cert_dir is not None
        status = OrderStatus(by="webhook" if by_webhook else "policy")
        self.store.show_order(status, with_metrics=not settings.dry_run)
        kept: NodeOrder | AnsweredOrder
        leads: Callable[[], bool]
        if by_webhook:  # every replica answers the webhook, so it needs no leader
            kept, leads = AnsweredOrder(), lambda: not settings.dry_run
        else:
            api, writer = self.clients.open(partial(KubeApi, in_flight=1)), self.leadership.writer
            kept, leads = NodeOrder(api, self.namespace, writer), writer.may_write
        await NodeOrderWriter(kept, status, leads, settings.interval).run(self.stop, self.ticks)
