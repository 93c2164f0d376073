"""Pod data for the expected load, combined from the pod watch and Prometheus."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from dynsched.core.load.expected import NO_PODS, KnownPods
from dynsched.core.load.lag import longest_lag
from dynsched.core.load.recent import WINDOW, RecentPods, newly_bound
from dynsched.kube.cluster import NodeCluster
from dynsched.kube.transport import KubeApi
from dynsched.rules.file import FixedRules, RulesFile
from dynsched.sources.prometheus import PrometheusSource
from dynsched.util.stopping import wait_for

if TYPE_CHECKING:
    from dynsched.kube.pod_watch import PodWatch
    from dynsched.sources.pod_use import PodUseSource

_TO_SPARE: Final = 60.0
"""Seconds for which pods are kept beyond the longest lag: a value may be several ticks old."""
_POLL: Final = 5.0
"""Seconds between two checks whether a reloaded rules file needs the pod watch."""


class _Tracked(NamedTuple):
    watch: PodWatch
    use: PodUseSource


@dataclass(eq=False)
class PodTracking:
    """Watches pods once the rules need it: the watch needs permissions that marking does not."""

    api: KubeApi
    rules_file: RulesFile | FixedRules
    cluster: NodeCluster
    prometheus: PrometheusSource
    recent: RecentPods = field(default_factory=RecentPods, init=False)
    _placed: int = field(default=0, init=False)
    _tracked: _Tracked | None = field(default=None, init=False)

    async def run(self, stop: asyncio.Event) -> None:
        """Wait until the rules need pods, then track them until ``stop`` is set."""
        file = self.rules_file
        needs_pods = lambda: file.rule_set is not None and file.rule_set.uses_expected_load  # noqa: E731
        await wait_for(stop, needs_pods, _POLL)
        if stop.is_set():
            return
        from dynsched.kube.pod_watch import PodWatch
        from dynsched.sources.pod_use import PodUseSource

        self._tracked = watch, use = _Tracked(
            PodWatch(self.api, self.recent),
            PodUseSource(self.prometheus, lambda: file.in_force),
        )

        async def query_use() -> None:
            """Start once nodes and pods are counted: their numbers limit the queries."""
            await wait_for(stop, lambda: self.cluster.synced)
            await wait_for(stop, lambda: watch.running is not None or watch.error is not None)
            await use.run(stop, lambda: watch.running, self.recent)

        await asyncio.gather(watch.run(stop), query_use())

    @property
    def sequence(self) -> int:
        """The number of the last change (`RecentPods.sequence`)."""
        return self.recent.sequence

    def placed(self) -> list[str] | None:
        """The nodes of pods that were bound since the last call; None if pods are not watched."""
        changes = self.recent.changes_after(self._placed)
        self._placed = self.recent.sequence
        if not self.rules_file.in_force.has_extender:  # the extender reads and forgets them itself
            self.recent.forget_changes(self._placed)
        return None if self._tracked is None else newly_bound(changes)

    def known(self, ago: float = 0.0) -> KnownPods:
        """The pod data, with ages as of ``ago`` seconds ago; NO_PODS if pods are not watched."""
        if self._tracked is None:
            return NO_PODS
        watch, use = self._tracked
        rule_set = self.rules_file.in_force
        # The load of a replaced node does not include the pods of the old machine.
        self.recent.follow(self.cluster.nodes())
        scrapes, reaches = use.scrape_intervals, use.reaches
        self.recent.window = max(WINDOW, longest_lag(rule_set, scrapes, reaches)) + _TO_SPARE
        return KnownPods(
            recent=self.recent.pods(time.monotonic(), ago=ago),
            running=watch.running,
            with_order=watch.counts.with_order,
            use_of_workloads=use.of_workloads,
            use_of_pods=use.of_pods,
            use_of_ended=use.of_ended,
            cpu_by_age=use.cpu_by_age,
            start_factor=use.start_factor,
            scrape_intervals=scrapes,
            reaches=reaches,
            sequence=self.recent.sequence,
            requested=watch.counts.requested,
            error=watch.error,
        )

    def are_watched(self) -> bool:
        """Whether the pod watch works, so that it will report bindings."""
        return self._tracked is not None and self._tracked.watch.error is None
