"""What follows pods, put together: the expected load, and the scheduler extender. Both are imported
when the rules first ask for them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import msgspec

from dynsched.engine.load.expected import NO_PODS, KnownPods
from dynsched.engine.load.lag import longest_lag
from dynsched.engine.load.recent import WINDOW, BoundOnNode, RecentPods, just_bound
from dynsched.engine.placing.placements import newly_bound
from dynsched.engine.snapshot import Snapshot
from dynsched.kube.cluster import NodeCluster
from dynsched.kube.transport import KubeApi
from dynsched.rules.rule_set import RuleSet
from dynsched.sources.pod_use import PodUseSource
from dynsched.util.stopping import until_so

if TYPE_CHECKING:
    from dynsched.api.extender.answers import Extender
    from dynsched.api.extender.wire import Binding
    from dynsched.kube.binder import Binder
    from dynsched.kube.pod_watch import PendingPods, PodWatch

_TO_SPARE: Final = 60.0
"""Seconds for which pods are remembered beyond the longest lag: a value may be some ticks old."""
_POLL: Final = 5.0
"""Seconds between two checks whether a reloaded rules file wants pods to be counted."""


@dataclass(eq=False)
class PodTracking:
    """``binder`` None: `/bind` is off. Pods are watched only when the rules ask for it: it needs
    rights that marking does not.
    """

    api: KubeApi
    rule_set: Callable[[], RuleSet]
    cluster: NodeCluster
    binder: Binder | None
    pod_use: PodUseSource
    _pods: RecentPods = field(default_factory=RecentPods, init=False)
    _told: int = field(default=0, init=False)
    _watch: PodWatch | None = field(default=None, init=False)
    _pending: PendingPods | None = field(default=None, init=False)
    _extender: Extender | None = field(default=None, init=False)

    def extender(self) -> Extender | None:
        """Answers the scheduler; None while the rules have no section `extender`."""
        if not self.rule_set().has_extender:
            return None
        if self._extender is None:
            from dynsched.api.extender.answers import Extender

            self._extender = Extender(
                nodes=self.cluster.nodes,
                synced=lambda: self.cluster.synced,
                rules=lambda: self.rule_set().extender,
                clock=time.monotonic,
                bound=self._pods,
                waits=self._waits,
                bind_pod=None if self.binder is None else self._bind,
            )
        return self._extender

    async def run(self, stop: asyncio.Event) -> None:
        """Count just-bound pods until ``stop`` is set, once the rules ask for it."""
        await until_so(stop, lambda: self.rule_set().uses_expected_load, _POLL)
        if stop.is_set():
            return
        from dynsched.kube.pod_watch import PendingPods, PodWatch

        self._pending = PendingPods(self.api)
        wants = lambda: self.rule_set().order is not None  # noqa: E731
        self._watch = PodWatch(self.api, self._pods, wants_requests=wants)
        await asyncio.gather(
            self._watch.run(stop),
            self._pending.run(stop),
            self._ask_what_pods_use(stop, self._watch),
        )

    async def _ask_what_pods_use(self, stop: asyncio.Event, watch: PodWatch) -> None:
        """Once nodes and pods are known: by their numbers it is decided what may be asked."""
        await until_so(stop, lambda: self.cluster.synced)
        await until_so(stop, lambda: watch.running is not None or watch.error is not None)
        await self.pod_use.run(stop, lambda: watch.running, self._pods)

    @property
    def sequence(self) -> int:
        return self._pods.sequence

    def publish(self, snapshot: Snapshot) -> list[str] | None:
        """Answer by ``snapshot``. The nodes of pods bound since the last one; None if unwatched."""
        changes = self._pods.changes_after(self._told)
        self._told = self._pods.sequence
        extender = self.extender()
        if extender is None:
            self._pods.forget_changes(self._told)
        else:
            extender.publish_soon(snapshot)
        return None if self._watch is None else newly_bound(changes)

    def bound(self, node: str) -> BoundOnNode | None:
        """The pods that were just bound to a node; None where pods are not watched."""
        return None if self._watch is None else just_bound(self._pods.pods(time.monotonic()), node)

    def known(self, ago: float = 0.0) -> KnownPods:
        """What is known; ages are as of ``ago`` seconds ago. NO_PODS while pods are not watched."""
        if self._watch is None:
            return NO_PODS
        rule_set = self.rule_set()
        # The load of a new machine is without the old one's pods.
        self._pods.follow(self.cluster.nodes())
        scrapes = self.pod_use.scrape_intervals
        self._pods.window = max(WINDOW, longest_lag(rule_set, scrapes)) + _TO_SPARE
        return KnownPods(
            recent=self._pods.pods(time.monotonic(), ago=ago),
            running=self._watch.running,
            with_order=self._watch.account.with_order,
            use_of_workloads=self.pod_use.of_workloads,
            use_of_pods=self.pod_use.of_pods,
            use_of_ended=self.pod_use.of_ended,
            cpu_by_age=self.pod_use.cpu_by_age,
            start_factor=self.pod_use.start_factor,
            scrape_intervals=scrapes,
            sequence=self._pods.sequence,
            requested=self._watch.account.requested,
            error=self._watch.error,
        )

    def _waits(self, uid: str) -> bool:
        """Whether a pod waits for a node, and the watch of pods works and will report its node."""
        watch, pending = self._watch, self._pending
        return watch is not None and watch.error is None and pending is not None and uid in pending

    async def _bind(self, binding: Binding) -> None:
        assert self.binder is not None  # noqa: S101 (otherwise this method is not passed on)
        await self.binder.bind(**msgspec.structs.asdict(binding))
