"""Other load-aware schedulers as players: each sees the load through its own metrics, as late as it
does in life, and adds its own score (`closedloop.peers_formulas`) to that of kube-scheduler.

What all have in common here: pods have requests and no limits; memory is used as it is requested; a
pod that no node passes the filter for waits (`world`). `ways` has each as shipped and, where a
setting is plain, tuned: chosen on seeds 41 and 42 of "40 % used" and "60 % used".
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from closedloop import peers_formulas as by
from closedloop.descheduler import Running
from closedloop.meters import Floats, Meters
from closedloop.peers_formulas import Bools
from closedloop.players import Default
from closedloop.scheduler import Scheduler
from closedloop.workload import MIB, Pod
from closedloop.world import World

RECORDED: Final = 30
"""Seconds between two evaluations of Prometheus' recording rules, and two steps of a subquery."""
METRICS_SERVER: Final = 15.0
"""Seconds between two scrapes of metrics-server; its value is the rate between the last two."""
_KEPT: Final = 310.0
"""Seconds for which just-bound pods are kept; the longest that a peer looks back."""


@dataclass(frozen=True, slots=True)
class Descheduling:
    """LowNodeUtilization: the lines in per cent (``relative`` to the mean), seconds between two
    cycles, and the limits of one cycle. ``knows_uses``: what each pod uses is known (by
    metrics-server); by a query of Prometheus it is not, and as many pods go as the limits let.
    """

    low: float
    high: float
    relative: bool = True
    every: int = 300
    per_node: int = 5
    total: int = 1_000_000
    knows_uses: bool = True


def low_node_utilization(
    load: Floats, capacity: Floats, running: Mapping[str, Running], how: Descheduling
) -> list[Running]:
    """The pods that one cycle evicts: from the most used of the over-used nodes on, until each is
    at the line, or the under-used ones are full. ``load`` in per cent.

    kubernetes-sigs/descheduler 7d2b28bf,
    pkg/framework/plugins/nodeutilization/lownodeutilization.go.
    """
    under, over = by.bands(load, how.low, how.high, relative=how.relative)
    if np.isnan(load).any() or not under.any() or under.all() or not over.any():
        return []
    line = min(load.mean() + how.high, 100) if how.relative else how.high
    room = float(((line - load) * capacity)[under].sum())
    beyond = (load - line) * capacity
    chosen: list[Running] = []
    of_node: dict[int, list[Running]] = {int(node): [] for node in np.flatnonzero(over)}
    for each in running.values():
        if each.node in of_node:
            of_node[each.node].append(each)
    for node in sorted(of_node, key=lambda node: -load[node]):
        for each in of_node[node][: how.per_node]:
            if beyond[node] <= 0 or room <= 0 or len(chosen) == how.total:
                break
            chosen.append(each)
            if how.knows_uses:
                beyond[node] -= 100 * each.uses
                room -= 100 * each.uses
    return chosen


class Series:
    """The last values of all nodes, one each RECORDED seconds, over so many seconds."""

    def __init__(self, seconds: float) -> None:
        self._values: deque[Floats] = deque(maxlen=max(1, round(seconds / RECORDED)))

    def add(self, values: Floats) -> None:
        """The values of this moment; NaN: none."""
        self._values.append(values)

    def mean(self) -> Floats:
        """The mean of what is known; NaN where nothing is."""
        values = np.array(self._values)
        known = (~np.isnan(values)).sum(axis=0)
        return np.where(known, np.nansum(values, axis=0) / np.maximum(known, 1), np.nan)

    def deviation(self) -> Floats:
        """The standard deviation of what is known; 0 where nothing is."""
        values = np.array(self._values)
        return np.sqrt(np.nan_to_num(_mean_of((values - self.mean()) ** 2)))

    def largest(self) -> Floats:
        """The largest of what is known; NaN where nothing is."""
        largest = np.nan_to_num(np.array(self._values), nan=-1.0).max(axis=0)
        return np.where(largest < 0, np.nan, largest)


def _mean_of(values: Floats) -> Floats:
    known = (~np.isnan(values)).sum(axis=0)
    return np.nansum(values, axis=0) / np.maximum(known, 1)


class Peer(Default):
    """kube-scheduler with one plugin more. ``scrape`` and ``window``: how the peer's metric of a
    node comes about, in place of the scenario's. ``weight``: of the plugin. ``by_requests`` False:
    the plugins of kube-scheduler that go by requests are off.
    """

    def __init__(
        self,
        world: World,
        *,
        scrape: float,
        window: float,
        weight: float = 1.0,
        by_requests: bool = True,
        descheduling: Descheduling | None = None,
    ) -> None:
        super().__init__(world)
        self.nodes = len(world.capacity)
        range_of = window if world.scenario.window else 0.0
        world.meters = Meters(self.nodes, scrape, range_of, world.seed)
        self.scheduler = Scheduler(
            world.ledger,
            world.seed,
            asked=lambda pod, found: weight * self.score(pod)[found],
            passes=lambda pod, found: self.passes(pod)[found],
            by_requests=by_requests,
        )
        self.recent: dict[str, tuple[float, int, Pod]] = {}
        self.percent: Floats = np.full(self.nodes, np.nan)
        """What the peer knows of each node's CPU now; NaN: nothing."""
        self._descheduling = descheduling
        self._smoothed: Floats | None = None

    def score(self, pod: Pod) -> Floats:
        """What the plugin says of every node, without its weight."""
        raise NotImplementedError

    def passes(self, _pod: Pod) -> Bools:
        """Which nodes the plugin lets the pod go to."""
        return np.ones(self.nodes, dtype=np.bool_)

    def renew(self, now: int) -> None:
        """Takes new metrics, where it is time to."""
        raise NotImplementedError

    @property
    def memory(self) -> Floats:
        """The share of each node's memory that is in use."""
        return self.world.ledger.memory_requested / self.world.ledger.memory

    async def tick(self) -> None:
        """As `world.Player`."""
        now = int(self.world.clock())
        self.recent = {uid: it for uid, it in self.recent.items() if it[0] > now - _KEPT}
        self.renew(now)

    def bound(self, pod: Pod, node: int) -> None:
        """As `world.Player`."""
        self.recent[pod.uid] = (self.world.clock(), node, pod)

    def gone(self, pod: Pod, node: int) -> None:  # noqa: ARG002
        """As `world.Player`."""
        self.recent.pop(pod.uid, None)

    def expected(self, since: Floats | float, of: Callable[[Pod], float]) -> Floats:
        """By node, the sum of what ``of`` says of the pods that were bound after ``since``."""
        after, total = np.broadcast_to(since, self.nodes), np.zeros(self.nodes)
        for at, node, pod in self.recent.values():
            if at > after[node]:
                total[node] += of(pod)
        return total

    def evicts(self, running: Mapping[str, Running]) -> list[Running]:
        """As the descheduler beside it does."""
        how, now = self._descheduling, int(self.world.clock())
        if how is None:
            return []
        load = self.judged()
        if now % how.every:
            return []
        return low_node_utilization(load, self.world.capacity, running, how)

    def judged(self) -> Floats:
        """What the descheduler beside it judges nodes by, per cent: metrics-server's value,
        smoothed as its collector does (every 5 s, nine tenths of the value before).
        """
        now = self.world.measured()
        before = now if self._smoothed is None else self._smoothed
        self._smoothed = np.where(np.isnan(before), now, 0.81 * before + 0.19 * now)
        return self._smoothed


class Descheduled(Peer):
    """kube-scheduler as it is, and the descheduler beside it, by real load."""

    def __init__(self, world: World, descheduling: Descheduling) -> None:
        scrape = METRICS_SERVER
        super().__init__(world, scrape=scrape, window=2 * scrape, descheduling=descheduling)

    def renew(self, now: int) -> None:
        """The descheduler asks by itself."""

    def score(self, _pod: Pod) -> Floats:
        """No plugin."""
        return np.zeros(self.nodes)


class Trimaran(Peer):
    """What Trimaran's plugins share: load-watcher asks once a minute, the plugin takes its answer
    every 30 s. From Prometheus, that is mean and deviation over 15 minutes of a recorded rate over
    5; from metrics-server the last value, without a deviation.

    paypal/load-watcher 17df8f96 (v0.2.4), pkg/watcher/watcher.go, api/client.go (always the window
    of 15 minutes) and internal/metricsprovider/prometheus.go; pkg/trimaran/collector.go of
    scheduler-plugins. The recorded metric is kubernetes-mixin's instance:node_cpu:ratio.
    """

    def __init__(
        self, world: World, *, latest: bool = False, weight: float = 1.0, by_requests: bool = True
    ) -> None:
        scrape, window = (METRICS_SERVER, 30.0) if latest else (world.scenario.scrape, 300.0)
        super().__init__(
            world, scrape=scrape, window=window, weight=weight, by_requests=by_requests
        )
        self._series = Series(RECORDED if latest else 900)
        self._fetched = (self.percent, np.zeros(self.nodes), 0.0)
        self.deviation, self.end = np.zeros(self.nodes), 0.0

    def renew(self, now: int) -> None:
        """load-watcher's minute, and 10 s later the plugin's."""
        if now % RECORDED == 0:
            self._series.add(self.world.measured())
        if now % 60 == 0:
            self._fetched = (self._series.mean(), self._series.deviation(), float(now))
        if now % RECORDED == 10:
            self.percent, self.deviation, self.end = self._fetched


class TargetLoadPacking(Trimaran):
    """Its account of just-bound pods: a pod bound after the end of the window, or within the minute
    before, is expected to use a multiple of its request. pkg/trimaran/handler.go.
    """

    def __init__(
        self,
        world: World,
        *,
        target: float = 40.0,
        multiplier: float = 1.5,
        latest: bool = False,
        weight: float = 1.0,
    ) -> None:
        super().__init__(world, latest=latest, weight=weight, by_requests=False)
        self._target, self._multiplier = target, multiplier

    def score(self, pod: Pod) -> Floats:
        """As `Peer`; a node without a metric gets 0."""
        missing = self.expected(self.end - 60, lambda each: self._multiplier * each.cpu)
        more = (missing + self._multiplier * pod.cpu) / self.world.capacity
        scores = by.target_load_packing(self.percent + 100 * more, self._target)
        return np.nan_to_num(scores, nan=0.0)


class LoadVariationRiskBalancing(Trimaran):
    """The scarcer of CPU and memory counts. It keeps no account of just-bound pods."""

    def score(self, pod: Pod) -> Floats:
        """As `Peer`; a node without a metric gets 0."""
        ledger = self.world.ledger
        cpu = by.risk_balancing(self.percent / 100 + pod.cpu / ledger.cpu, self.deviation / 100)
        memory = by.risk_balancing(self.memory + pod.memory / ledger.memory, np.zeros(self.nodes))
        return np.nan_to_num(np.floor(np.minimum(cpu, memory) + 0.5), nan=0.0)


class LowRiskOverCommitment(Trimaran):
    """``limits``: so many times its request is each pod's limit; 1 is what the plugin takes where
    pods have no limits, and then all nodes have the same risk.
    """

    def __init__(
        self, world: World, *, limits: float = 1.0, latest: bool = False, weight: float = 1.0
    ) -> None:
        super().__init__(world, latest=latest, weight=weight)
        self._limits = limits

    def score(self, pod: Pod) -> Floats:
        """As `Peer`; a node without a metric gets 0."""
        ledger, zero = self.world.ledger, np.zeros(self.nodes)
        cpu = by.over_commitment_risk(
            np.nan_to_num(self.percent) / 100,
            self.deviation / 100,
            ledger.cpu,
            requests=ledger.cpu_requested,
            limits=self._limits * ledger.cpu_requested,
            of_pod=(pod.cpu, self._limits * pod.cpu),
        )
        memory = by.over_commitment_risk(
            self.memory,
            zero,
            ledger.memory,
            requests=ledger.memory_requested,
            limits=ledger.memory_requested,
            of_pod=(pod.memory, pod.memory),
        )
        scores = np.floor(100 * (1 - np.maximum(cpu, memory)) + 0.5)
        return np.where(np.isnan(self.percent), 0.0, scores)


class Koordinator(Peer):
    """koordlet samples its node every second, and reports every ``report`` seconds the mean of the
    last ``window``: of the node, and of each pod. A pod that was bound after the report, or within
    an interval before it, counts with what its estimate is above what was reported of it.

    koordinator-sh/koordinator a7a1b76b (v1.8.0 and 61 commits),
    pkg/scheduler/plugins/loadaware/load_aware.go and pod_assign_cache.go; 60 and 300 s in
    pkg/koordlet/statesinformer/impl/states_nodemetric.go. ``limits``: the filter's, in per cent;
    those of pkg/scheduler/apis/config/v1.
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

    def renew(self, now: int) -> None:
        """The nodes whose turn it is report."""
        due = (now - self._phase) % self._report == 0
        self.percent = np.where(due, self.world.measured(), self.percent)
        self._reported = np.where(due, float(now), self._reported)

    def _used(self, pod: Pod) -> tuple[Floats, Floats]:
        """The shares of CPU and memory that a node has in use with the pod."""
        cpu, memory = self._estimate(pod)
        reported = self.expected(self._reported, lambda each: self._estimate(each)[0])
        before = self.expected(self._reported - self._report, self._beyond)
        after = self.expected(self._reported, self._beyond)
        cpu_used = self.percent / 100 + (cpu + reported + before - after) / self.world.capacity
        return cpu_used, self.memory + memory / self.world.ledger.memory

    def _estimate(self, pod: Pod) -> tuple[float, float]:
        cpu, memory = self._factors
        return (
            by.koordinator_estimate(pod.cpu, 0, cpu, 0.25),
            by.koordinator_estimate(pod.memory, 0, memory, 200 * MIB),
        )

    def _beyond(self, pod: Pod) -> float:
        """What the estimate is above what koordlet has seen of the pod."""
        return max(self._estimate(pod)[0] - pod.uses * pod.starts_with, 0.0)

    def score(self, pod: Pod) -> Floats:
        """As `Peer`; a node without a report gets 0."""
        return np.nan_to_num(by.koordinator_score(*self._used(pod), self._weights), nan=0.0)

    def passes(self, pod: Pod) -> Bools:
        """As `Peer`; a node without a report passes."""
        passed = by.koordinator_passes(*self._used(pod), self._limits)
        return passed | np.isnan(self.percent)


class Volcano(Peer):
    """Volcano with its plugins nodeorder, binpack and usage. The metric is a mean over 10 minutes
    of a rate over 5, asked for every 30 s, and a pod counts with its estimate in its first 30 s.

    volcano-sh/volcano ed72c7c8, pkg/scheduler/plugins/usage (the estimator: since v1.16.0-alpha.0),
    pkg/scheduler/metrics/source/metrics_client_prometheus.go, plugins/binpack/binpack.go and
    installer/helm/chart/volcano/config/volcano-scheduler.conf. ``limit``: per cent of CPU beyond
    which the plugin's predicate rejects a node; the example in usage.go switches it off.
    ``adapted``: the metric is the user's own, here a rate over 2 minutes
    (metrics_client_prometheus_adapt.go).
    """

    def __init__(
        self,
        world: World,
        *,
        ratio: float = 0.7,
        weights: tuple[int, int] = (1, 1),
        weight: int = 5,
        limit: float | None = None,
        adapted: bool = False,
        estimator: bool = True,
        binpack: bool = True,
    ) -> None:
        super().__init__(world, scrape=world.scenario.scrape, window=120.0 if adapted else 300.0)
        self._series = Series(RECORDED if adapted else 600)
        self._weights, self._weight, self._limit = weights, weight, limit
        self._ratio, self._estimator, self._binpack = ratio, estimator, binpack

    def renew(self, now: int) -> None:
        """Every 30 s."""
        if now % RECORDED == 0:
            self._series.add(self.world.measured())
            self.percent = np.nan_to_num(self._series.mean(), nan=0.0)

    def _composite(self) -> tuple[Floats, Floats]:
        """The shares of CPU and memory in use, with the estimates of just-bound pods in their
        order: a node beyond 60 % multiplies those that follow by 1.2.
        """
        capacity, since = self.world.capacity, self.world.clock() - RECORDED
        estimated = np.zeros(self.nodes)
        memory = self.memory
        percent = np.nan_to_num(self.percent)
        for at, node, pod in self.recent.values():
            if self._estimator and at > since:
                used = min(percent[node] / 100 + estimated[node] / capacity[node], 1)
                shares = self._weights[0] * used + self._weights[1] * memory[node]
                risk = 1.2 if shares / sum(self._weights) >= 0.6 else 1.0
                estimated[node] += by.volcano_estimate(pod.cpu, 0, self._ratio, risk=risk)
        return by.volcano_composite(percent, estimated, capacity), memory

    def score(self, pod: Pod) -> Floats:
        """As `Peer`, and binpack's."""
        ledger = self.world.ledger
        packed = (ledger.cpu_requested + pod.cpu) / ledger.cpu
        packed = 50 * (packed + (ledger.memory_requested + pod.memory) / ledger.memory)
        usage = by.volcano_score(*self._composite(), self._weights, self._weight)
        return usage + packed * self._binpack

    def passes(self, pod: Pod) -> Bools:
        """As `Peer`."""
        if self._limit is None:
            return super().passes(pod)
        return ~(np.nan_to_num(self.percent) > self._limit)


class Crane(Peer):
    """crane-scheduler: its annotator writes the mean of 5 minutes (of the last rate, every 30 s)
    and the largest such means of an hour and a day on nodes, each at its own interval, and with
    each a hot value: how many pods were bound to the node lately. ``metrics``: by name the range in
    seconds, the interval, the weight, and the filter's limit as a share (0: none). CPU and memory
    have the same.

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
        """The annotator's intervals; one of each falls on the end of the time to warm up, since
        real clusters have run for days.
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
        """As `Peer`."""
        return by.crane_score(self._shares, self._weights, self._hot_value)

    def passes(self, _pod: Pod) -> Bools:
        """As `Peer`; what is not known passes."""
        limits = np.array([each[3] or np.inf for each in self._of.values()])
        over = self._shares > np.concatenate([limits, limits])[:, None]
        return ~over.any(axis=0)


class SoftTainter(Peer):
    """OpenShift's soft-tainter: every ``every`` seconds it puts no, one or two soft taints on each
    node, by the bands of LowNodeUtilization (``how``). ``plain``: by CPU alone, and not by the
    distance from the mean that is amplified by three. CPU pressure is the share of the last minute
    in which a node's pods wanted more than it has.

    openshift/cluster-kube-descheduler-operator 945dcaa9, pkg/softtainter and
    pkg/operator/target_config_reconciler.go (0:10 around the mean, at most 2 evictions a node and 5
    in all); 30 s is from .tekton/integration-tests/configs/kdo-cr.yaml, the operator's example has
    3600.
    """

    LINES: Final = Descheduling(0, 10, every=30, per_node=2, total=5, knows_uses=False)

    def __init__(
        self,
        world: World,
        *,
        how: Descheduling = LINES,
        plain: bool = False,
        descheduler: bool = False,
    ) -> None:
        scrape = world.scenario.scrape
        descheduling = how if descheduler else None
        super().__init__(
            world, scrape=scrape, window=max(60.0, 2 * scrape), descheduling=descheduling
        )
        self._how, self._plain = how, plain
        self._waited: deque[Floats] = deque(maxlen=30)
        self._load = np.full(self.nodes, np.nan)
        self.writes = 0

    async def respond(self) -> None:
        """Between two ticks: pressure."""
        self._waited.append((self.world.demand > self.world.capacity).astype(float))

    def judged(self) -> Floats:
        """The same load as the taints."""
        return self._load

    def renew(self, now: int) -> None:
        """Taints, where the load of every node is known."""
        self._waited.append((self.world.demand > self.world.capacity).astype(float))
        if now % self._how.every:
            return
        self.percent = np.where(self.world.ledger.present, self.world.measured(), 0.0)
        if np.isnan(self.percent).any():
            return
        pressure = np.mean(self._waited, axis=0)
        self._load = (
            np.floor(self.percent)
            if self._plain
            else by.soft_tainter_load(self.percent / 100, pressure, self.memory)
        )
        how = self._how
        taints = by.soft_taints(*by.bands(self._load, how.low, how.high, relative=how.relative))
        before = self.world.ledger.taints
        # Each taint is a patch of its own.
        self.writes += int(np.abs(taints - before).sum())
        before[:] = taints

    def score(self, _pod: Pod) -> Floats:
        """No plugin: the taints count as they do."""
        return np.zeros(self.nodes)


def ways() -> dict[str, Callable[[World], Default]]:
    """The peers by name."""
    made = functools.partial
    return {
        "TargetLoadPacking": TargetLoadPacking,
        "TargetLoadPacking, tuned": made(
            TargetLoadPacking, target=5.0, multiplier=2.5, latest=True, weight=5.0
        ),
        "LoadVariationRiskBalancing": LoadVariationRiskBalancing,
        "LoadVariationRiskBalancing, tuned": made(
            LoadVariationRiskBalancing, latest=True, weight=5.0
        ),
        "LowRiskOverCommitment": LowRiskOverCommitment,
        "LowRiskOverCommitment, tuned": made(LowRiskOverCommitment, limits=5.0, weight=5.0),
        "Koordinator": Koordinator,
        "Koordinator, tuned": made(
            Koordinator,
            report=30,
            window=60.0,
            factors=(100, 70),
            limits=(0, 0),
            weights=(1, 0),
            weight=5.0,
        ),
        "Volcano usage": Volcano,
        "Volcano usage without estimator": made(Volcano, estimator=False),
        "Volcano usage, tuned": made(
            Volcano, ratio=1.0, weights=(1, 0), adapted=True, binpack=False
        ),
        "crane": Crane,
        "crane, tuned": made(Crane, metrics=Crane.TUNED, weight=5.0),
        "soft-tainter": SoftTainter,
        "soft-tainter and descheduler": made(SoftTainter, descheduler=True),
        "soft-tainter, tuned": made(SoftTainter, how=Descheduling(10, 10, every=10), plain=True),
        "LowNodeUtilization by load": made(
            Descheduled, descheduling=Descheduling(20, 50, relative=False)
        ),
        "LowNodeUtilization by load, tuned": made(
            Descheduled, descheduling=Descheduling(10, 10, per_node=1)
        ),
    }
