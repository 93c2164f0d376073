"""kube-scheduler as it is, and beside it what moves pods (the descheduler) or marks nodes
(OpenShift's soft-tainter) by real load.
"""

from __future__ import annotations

from collections import deque
from typing import Final

import numpy as np

from closedloop.meters import Floats
from closedloop.peers import formulas as by
from closedloop.peers.base import METRICS_SERVER, Peer
from closedloop.peers.low_node_utilization import Descheduling, LowNodeUtilization
from closedloop.workload import Pod
from closedloop.world import World


class Descheduled(Peer):
    """kube-scheduler as it is, and the descheduler beside it, by real load."""

    def __init__(self, world: World, how: Descheduling) -> None:
        super().__init__(world, scrape=METRICS_SERVER, window=2 * METRICS_SERVER)
        self.descheduler = LowNodeUtilization(world, how)

    def renew(self, now: int) -> None:
        """The descheduler asks by itself."""

    def score(self, _pod: Pod) -> Floats:
        """No plugin."""
        return np.zeros(self.nodes)


class SoftTainter(Peer):
    """OpenShift's soft-tainter: every ``every`` seconds it puts no, one or two soft taints on each
    node, by the bands of LowNodeUtilization (``how``). ``plain``: by CPU alone, and not by the
    distance from the mean that is amplified by three. ``taints`` False: only the descheduler goes
    by that load. ``minute``: the range of its recording rules. CPU pressure is the share of it in
    which a node's pods wanted more than it has.

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
        taints: bool = True,
        minute: float = 60.0,
    ) -> None:
        scrape = world.scenario.scrape
        super().__init__(world, scrape=scrape, window=max(minute, 2 * scrape))
        if descheduler:
            self.descheduler = LowNodeUtilization(world, how, lambda _: self._load)
        self._how, self._plain, self._taints = how, plain, taints
        self._waited: deque[Floats] = deque(maxlen=round(minute / 2))
        self._load = np.full(self.nodes, np.nan)
        self.writes = 0

    async def reevaluate(self) -> None:
        """Between two ticks: pressure."""
        self._waited.append((self.world.demand > self.world.capacity).astype(float))

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
        if not self._taints:
            return
        how = self._how
        taints = by.soft_taints(*by.bands(self._load, how.low, how.high, relative=how.relative))
        before = self.world.ledger.taints
        # Each taint is a patch of its own.
        self.writes += int(np.abs(taints - before).sum())
        before[:] = taints

    def score(self, _pod: Pod) -> Floats:
        """No plugin: the taints count as they do."""
        return np.zeros(self.nodes)
