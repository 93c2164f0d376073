"""Trimaran, from the SIG Scheduling plugins: three ways to score by load-watcher's metrics."""

from __future__ import annotations

import numpy as np

from closedloop.meters import Floats
from closedloop.peers import formulas as by
from closedloop.peers.base import METRICS_SERVER, RECORDED, Peer, Series
from closedloop.workload import Pod
from closedloop.world import World


class Trimaran(Peer):
    """What Trimaran's plugins share.

    load-watcher queries once a minute, and the plugin fetches its answer every 30 s. From
    metrics-server (the default of both) that is the ``latest`` value without a deviation; from
    Prometheus it is mean and deviation over 15 minutes of a recorded rate over 5 minutes.

    paypal/load-watcher 17df8f96 (v0.2.4), pkg/watcher/watcher.go, api/client.go (always the window
    of 15 minutes) and internal/metricsprovider/prometheus.go; pkg/trimaran/collector.go of
    scheduler-plugins. The recorded metric is kubernetes-mixin's instance:node_cpu:ratio.
    """

    def __init__(
        self, world: World, *, latest: bool = True, weight: float = 1.0, by_requests: bool = True
    ) -> None:
        scrape, window = (METRICS_SERVER, 30.0) if latest else (world.scenario.scrape, 300.0)
        super().__init__(
            world, scrape=scrape, window=window, weight=weight, by_requests=by_requests
        )
        self._series = Series(RECORDED if latest else 900)
        self._fetched = (self.percent, np.zeros(self.nodes), 0.0)
        self.deviation, self.end = np.zeros(self.nodes), 0.0

    def renew(self, now: int) -> None:
        """load-watcher queries every minute; the plugin fetches 10 s later, and every 30 s."""
        if now % RECORDED == 0:
            self._series.add(self.world.measured())
        if now % 60 == 0:
            self._fetched = (self._series.mean(), self._series.deviation(), float(now))
        if now % RECORDED == 10:
            self.percent, self.deviation, self.end = self._fetched


class TargetLoadPacking(Trimaran):
    """Tracks recently bound pods: a pod bound after the end of the window, or up to a minute before
    it, is expected to use a multiple of its request. pkg/trimaran/handler.go.
    """

    def __init__(
        self,
        world: World,
        *,
        target: float = 40.0,
        multiplier: float = 1.5,
        latest: bool = True,
        weight: float = 1.0,
    ) -> None:
        super().__init__(world, latest=latest, weight=weight, by_requests=False)
        self._target, self._multiplier = target, multiplier

    def score(self, pod: Pod) -> Floats:
        """See `Peer`; a node without a metric gets 0."""
        missing = self.expected(self.end - 60, lambda each: self._multiplier * each.cpu)
        more = (missing + self._multiplier * pod.cpu) / self.world.capacity
        scores = by.target_load_packing(self.percent + 100 * more, self._target)
        return np.nan_to_num(scores, nan=0.0)


class LoadVariationRiskBalancing(Trimaran):
    """The scarcer of CPU and memory counts. It does not track recently bound pods."""

    def score(self, pod: Pod) -> Floats:
        """See `Peer`; a node without a metric gets 0."""
        ledger = self.world.ledger
        cpu = by.risk_balancing(self.percent / 100 + pod.cpu / ledger.cpu, self.deviation / 100)
        memory = by.risk_balancing(self.memory + pod.memory / ledger.memory, np.zeros(self.nodes))
        return np.nan_to_num(np.floor(np.minimum(cpu, memory) + 0.5), nan=0.0)


class LowRiskOverCommitment(Trimaran):
    """``limits``: each pod's limit, as a multiple of its request.

    The plugin assumes 1 for pods without limits, and then all nodes have the same risk.
    """

    def __init__(
        self, world: World, *, limits: float = 1.0, latest: bool = True, weight: float = 1.0
    ) -> None:
        super().__init__(world, latest=latest, weight=weight)
        self._limits = limits

    def score(self, pod: Pod) -> Floats:
        """See `Peer`; a node without a metric gets 0."""
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
