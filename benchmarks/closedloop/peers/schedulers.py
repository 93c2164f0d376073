"""Koordinator, Volcano and crane-scheduler: separate schedulers with their own metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from closedloop.meters import Floats
from closedloop.peers import formulas as by
from closedloop.peers.base import RECORDED, Peer, Series
from closedloop.peers.formulas import Bools
from closedloop.workload import MIB, Pod
from closedloop.world import World


class Koordinator(Peer):
    """Koordinator with its plugin LoadAwareScheduling.

    koordlet samples its node every second. Every ``report`` seconds it reports the mean of the last
    ``window`` seconds, for the node and for each pod. A pod that was bound after the report, or
    within an interval before it, counts with the part of its estimate that exceeds its reported
    use. ``limits``: the filter's, in percent; the defaults are in pkg/scheduler/apis/config/v1.

    koordinator-sh/koordinator a7a1b76b (v1.8.0 and 61 commits),
    pkg/scheduler/plugins/loadaware/load_aware.go and pod_assign_cache.go; 60 and 300 s are in
    pkg/koordlet/statesinformer/impl/states_nodemetric.go.
    """

    def __init__(
        self,
        world: World,
        *,
        report: int = 60,
        window: float = 300.0,
        factors: tuple[float, float] = (85, 70),
        limits: tuple[float, float] = (65, 95),
        weights: tuple[int, int] = (1, 1),
        weight: float = 1.0,
    ) -> None:
        super().__init__(world, scrape=1.0, window=window, weight=weight)
        self._report, self._factors = report, factors
        self._limits, self._weights = limits, weights
        self._phase = 10 * np.arange(self.nodes) % report
        self._reported = np.full(self.nodes, -np.inf)
        self._known = ("", 0.0, (self.percent, self.percent))

    def renew(self, now: int) -> None:
        """Take the reports of the nodes that are due."""
        due = (now - self._phase) % self._report == 0
        self.percent = np.where(due, self.world.measured(), self.percent)
        self._reported = np.where(due, float(now), self._reported)

    def _used(self, pod: Pod) -> tuple[Floats, Floats]:
        """Per node, the shares of CPU and memory in use, including the pod."""
        now = self.world.clock()
        if self._known[:2] != (pod.uid, now):
            cpu, memory = self._estimate(pod)
            more = np.full(self.nodes, cpu)
            for at, node, other in self.bound_after(now - 2 * self._report):
                if at > self._reported[node] - self._report:
                    seen = other.uses if at <= self._reported[node] else 0.0
                    more[node] += max(self._estimate(other)[0] - seen, 0.0)
            used = self.percent / 100 + more / self.world.capacity
            with_pod = used, self.memory + memory / self.world.ledger.memory
            self._known = (pod.uid, now, with_pod)
        return self._known[2]

    def _estimate(self, pod: Pod) -> tuple[float, float]:
        cpu, memory = self._factors
        return (
            by.koordinator_estimate(pod.cpu, 0, cpu, 0.25),
            by.koordinator_estimate(pod.memory, 0, memory, 200 * MIB),
        )

    def score(self, pod: Pod) -> Floats:
        """See `Peer`; a node without a report gets 0."""
        return np.nan_to_num(by.koordinator_score(*self._used(pod), self._weights), nan=0.0)

    def passes(self, pod: Pod) -> Bools:
        """See `Peer`; a node without a report passes."""
        passed = by.koordinator_passes(*self._used(pod), self._limits)
        return passed | np.isnan(self.percent)


class Volcano(Peer):
    """Volcano with its plugins nodeorder, binpack and usage.

    The metric is a mean over 10 minutes (for CPU, of a rate over 5 minutes), queried every 30 s. A
    pod counts with its estimate for its first 30 s. The plugin's predicate, which rejects a node
    over 80 %, is off, as in its examples. ``adapted``: the user provides the metric, here a rate
    over 2 minutes (metrics_client_prometheus_adapt.go).

    volcano-sh/volcano ed72c7c8, pkg/scheduler/plugins/usage (the estimator and its shadow_cache.go
    are in the alphas of v1.16, and not in v1.15.1),
    pkg/scheduler/metrics/source/metrics_client_prometheus.go, plugins/binpack/binpack.go and
    installer/helm/chart/volcano/config/volcano-scheduler.conf.
    """

    def __init__(
        self,
        world: World,
        *,
        ratio: float = 0.7,
        weights: tuple[int, int] = (1, 1),
        weight: int = 5,
        adapted: bool = False,
        estimator: bool = True,
        binpack: bool = True,
    ) -> None:
        super().__init__(world, scrape=world.scenario.scrape, window=120.0 if adapted else 300.0)
        seconds = RECORDED if adapted else 600
        self._cpu, self._memory = Series(seconds), Series(seconds)
        self._used = np.zeros((2, self.nodes))
        self._weights, self._weight = weights, weight
        self._ratio, self._estimator, self._binpack = ratio, estimator, binpack

    def renew(self, now: int) -> None:
        """Query every 30 s."""
        if now % RECORDED == 0:
            self._cpu.add(self.world.measured())
            self._memory.add(100 * self.memory)
            self.percent = np.nan_to_num(self._cpu.mean(), nan=0.0)
            self._used = np.stack([self.percent, self._memory.mean()])

    def _composite(self) -> Floats:
        """The shares of CPU and memory in use, with the estimates of recently bound pods.

        The estimates are added in the order of binding: on a node above 60 % each further one is
        multiplied by 1.2.
        """
        room = np.stack([self.world.capacity, self.world.ledger.memory])
        estimated = np.zeros_like(room)
        since = self.world.clock() - RECORDED
        for _, at, pod in reversed(self.bound_after(since) if self._estimator else []):
            before = by.volcano_composite(self._used[:, at], estimated[:, at], room[:, at])
            risk = 1.2 if np.average(before, weights=self._weights) >= 0.6 else 1.0
            requests = pod.cpu, pod.memory
            estimated[:, at] += [
                by.volcano_estimate(each, 0, self._ratio, risk=risk) for each in requests
            ]
        return by.volcano_composite(self._used, estimated, room)

    def score(self, pod: Pod) -> Floats:
        """See `Peer`; includes the score of binpack."""
        ledger = self.world.ledger
        packed = (ledger.cpu_requested + pod.cpu) / ledger.cpu
        packed = 50 * (packed + (ledger.memory_requested + pod.memory) / ledger.memory)
        usage = by.volcano_score(*self._composite(), self._weights, self._weight)
        return usage + packed * self._binpack


class Crane(Peer):
    """crane-scheduler.

    Its annotator writes to nodes the mean over 5 minutes (of the last rate, every 30 s) and the
    largest such means of an hour and a day, each at its own interval. With each it writes a hot
    value, from the number of pods recently bound to the node. ``metrics``, by name: the range in
    seconds, the interval, the weight, and the filter's limit as a share (0: none). They are the
    same for CPU and memory.

    gocrane/crane-scheduler c2c05338 (the last commit, of October 2023), README.md (recording
    rules), deploy/manifests/dynamic/policy.yaml and scheduler-config.yaml (weight 3),
    pkg/controller/annotator.
    """

    SHIPPED: Final = {
        "avg_5m": (300, 180, 0.2, 0.65),
        "max_avg_1h": (3600, 900, 0.3, 0.75),
        "max_avg_1d": (86400, 10800, 0.5, 0.0),
    }
    TUNED: Final = {"avg_5m": (300, 30, 1.0, 0.0)}

    def __init__(
        self,
        world: World,
        *,
        metrics: Mapping[str, tuple[int, int, float, float]] = SHIPPED,
        hot: Mapping[float, int] | None = None,
        weight: float = 3.0,
    ) -> None:
        scrape = min(world.scenario.scrape, 15.0)
        super().__init__(world, scrape=scrape, window=2 * scrape, weight=weight)
        self._of = metrics
        self._hot = {300.0: 5, 60.0: 2} if hot is None else hot
        self._mean = Series(300)
        self._means = {name: Series(seconds) for name, (seconds, *_) in metrics.items()}
        self._shares = np.full((2 * len(metrics), self.nodes), np.nan)
        weights = [each[2] for each in metrics.values()]
        self._weights = np.array([*weights, *weights])
        self._hot_value = np.zeros(self.nodes)

    def renew(self, now: int) -> None:
        """Update the metrics that are due. The intervals are aligned so that each metric is updated
        at the end of the warm-up, because real clusters have run for days.
        """
        if now % RECORDED:
            return
        self._mean.add(self.world.measured() / 100)
        mean = self._mean.mean()
        for at, (name, (seconds, every, *_)) in enumerate(self._of.items()):
            self._means[name].add(mean)
            if (now - self.world.scenario.warm) % every == 0:
                found = mean if seconds == 300 else self._means[name].largest()
                self._shares[at], self._shares[at + len(self._of)] = found, self.memory
                bound = {each: self.expected(now - each, lambda _: 1.0) for each in self._hot}
                self._hot_value = by.crane_hot_value(bound, dict(self._hot))

    def score(self, _pod: Pod) -> Floats:
        """See `Peer`."""
        return by.crane_score(self._shares, self._weights, self._hot_value)

    def passes(self, _pod: Pod) -> Bools:
        """See `Peer`; unknown values pass."""
        limits = np.array([each[3] or np.inf for each in self._of.values()])
        over = self._shares > np.concatenate([limits, limits])[:, None]
        return np.logical_not(over.any(axis=0))
