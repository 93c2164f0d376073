"""Unchanged kube-scheduler, with the descheduler moving pods, or OpenShift's soft-tainter marking
nodes, by real load.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import Final, Literal

import numpy as np

from closedloop.descheduler import Running
from closedloop.meters import Floats
from closedloop.peers import formulas as by
from closedloop.peers.base import METRICS_SERVER, Peer
from closedloop.peers.low_node_utilization import Descheduling, LowNodeUtilization
from closedloop.workload import Pod
from closedloop.world import World


class Descheduled(Peer):
    """kube-scheduler, and the descheduler by real load."""

    def __init__(self, world: World, how: Descheduling) -> None:
        super().__init__(world, scrape=METRICS_SERVER, window=2 * METRICS_SERVER)
        self.descheduler = LowNodeUtilization(world, how)

    def renew(self, now: int) -> None:
        """Does nothing: the descheduler has its own metrics."""

    def score(self, _pod: Pod) -> Floats:
        """No plugin, so no score."""
        return np.zeros(self.nodes)


class SoftTainter(Peer):
    """OpenShift's profile KubeVirtRelieveAndMigrate.

    Every ``every`` seconds soft-tainter puts no, one or two soft taints on each node, according to
    the bands of LowNodeUtilization (``how``). The ``descheduler`` evicts by the same load.
    ``taints`` False: only the descheduler runs.

    ``load``: the recorded metric. The default is the distance from the mean, amplified by three.
    "stable" is its 0.66 quantile over 5 minutes, with a cooldown (recorded since May 2026, and used
    only if the user chooses it). "plain" is CPU alone. ``minute``: the range of the recording
    rules, which run at half that interval. CPU pressure is the share of the range in which a node's
    pods wanted more than the node has.

    openshift/cluster-kube-descheduler-operator 945dcaa9, pkg/softtainter and
    pkg/operator/target_config_reconciler.go (0:10 around the mean, at most 2 evictions a node and 5
    in all). The 30 s are from .tekton/integration-tests/configs/kdo-cr.yaml; the operator's example
    has 3600.
    """

    LINES: Final = Descheduling(0, 10, every=30, per_node=2, total=5, knows_uses=False)
    MACHINES: Final = replace(LINES, rest=900)

    def __init__(
        self,
        world: World,
        *,
        how: Descheduling = LINES,
        load: Literal["", "stable", "plain"] = "",
        descheduler: bool = False,
        taints: bool = True,
        minute: float = 60.0,
    ) -> None:
        scrape = world.scenario.scrape
        super().__init__(world, scrape=scrape, window=max(minute, 2 * scrape))
        if descheduler:
            self.descheduler = LowNodeUtilization(world, how, lambda _: self._load)
        self._how, self._by, self._taints = how, load, taints
        self._recorded = round(minute / 2)
        self._waited: deque[Floats] = deque(maxlen=self._recorded)
        self._deviations: deque[Floats] = deque(maxlen=10)  # 5 minutes
        self._evicted: deque[tuple[float, int]] = deque()
        self._load = np.full(self.nodes, np.nan)
        self.writes = 0

    async def reevaluate(self) -> None:
        """Records CPU pressure between two ticks."""
        self._waited.append((self.world.demand > self.world.capacity).astype(float))

    def evicts(self, running: Mapping[str, Running]) -> list[Running]:
        """See `Default`; evictions count for the cooldown."""
        chosen = super().evicts(running)
        self._evicted.extend((self.world.clock(), each.node) for each in chosen)
        return chosen

    def renew(self, now: int) -> None:
        """Set taints by the load recorded a third of the interval ago, then record a new load."""
        self._waited.append((self.world.demand > self.world.capacity).astype(float))
        if self._taints and now % self._how.every == 0 and not np.isnan(self._load).any():
            self._taint()
        if (now + self._recorded // 3) % self._recorded == 0:
            self._record(now)

    def _record(self, now: int) -> None:
        """Record the load of all nodes; keep the old one if a node has no metric."""
        there, percent = self.world.ledger.present, self.world.measured()
        if np.isnan(percent[there]).any():
            return
        self.percent = np.where(there, percent, percent[there].mean())
        pressure = np.mean(self._waited, axis=0)
        found = by.soft_tainter_deviations(self.percent / 100, pressure, self.memory)
        self._deviations.append(found)
        if self._by == "plain":
            self._load = np.floor(self.percent)
        elif self._by == "stable":
            stable = np.quantile(self._deviations, 0.66, axis=0)
            self._load = by.soft_tainter_load(stable, self._cooldown(now))
        else:
            self._load = by.soft_tainter_load(found)

    def _cooldown(self, now: int) -> Floats:
        while self._evicted and self._evicted[0][0] <= now - 20 * self._recorded:
            self._evicted.popleft()
        nodes = np.array([node for _, node in self._evicted], dtype=int)
        return by.soft_tainter_cooldown(np.bincount(nodes, minlength=self.nodes).astype(float))

    def _taint(self) -> None:
        how = self._how
        taints = by.soft_taints(*by.bands(self._load, how.low, how.high, relative=how.relative))
        before = self.world.ledger.taints
        # Each taint is a separate patch.
        self.writes += int(np.abs(taints - before).sum())
        before[:] = taints

    def score(self, _pod: Pod) -> Floats:
        """No plugin, so no score; kube-scheduler scores the taints itself."""
        return np.zeros(self.nodes)
