"""The descheduler's plugin LowNodeUtilization by real load, to combine with any player."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from closedloop.descheduler import Running
from closedloop.meters import Floats, Meters
from closedloop.peers import formulas as by
from closedloop.peers.base import METRICS_SERVER
from closedloop.players import Default
from closedloop.world import World


@dataclass(frozen=True, slots=True)
class Descheduling:
    """Settings of LowNodeUtilization.

    ``low`` and ``high``: thresholds in percent (``relative`` to the mean). ``every``: seconds
    between two cycles. ``per_node`` and ``total``: limits of one cycle. ``knows_uses``: the use of
    each pod is known, from metrics-server; with a Prometheus query it is not, and as many pods go
    as the limits allow. ``rest``: seconds for which a moved pod stays, doubled by each further move
    (the plugin KubevirtMigrationAware, for virtual machines; pods of containers do not rest).
    """

    low: float
    high: float
    relative: bool = True
    every: int = 300
    per_node: int = 5
    total: int = 1_000_000
    knows_uses: bool = True
    rest: int = 0


TUNED: Final = Descheduling(10, 10, per_node=1, total=3)
"""The best of seven on the seeds of `closedloop.peers`: 45 % removed at 40 % used, -5 % at 60 %."""
BY_QUERY: Final = replace(TUNED, knows_uses=False)
"""TUNED with a Prometheus query: docs/examples/descheduler/by-load.yaml."""


def low_node_utilization(
    load: Floats, capacity: Floats, running: Mapping[str, Running], how: Descheduling
) -> list[Running]:
    """The pods that one cycle evicts. ``load`` in percent.

    Over-used nodes are processed in descending order of use, until each is at the threshold or the
    under-used nodes are full.

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


def rests(moves: Sequence[float], now: float, how: Descheduling) -> bool:
    """Whether a pod that was moved at these times must stay for now.

    openshift-virtualization/kubevirt-descheduler-plugins, kubevirtmigrationaware, as vendored in
    openshift/cluster-kube-descheduler-operator 945dcaa9: 15 minutes, at most 6 hours.
    """
    return bool(moves) and now - moves[-1] < min(how.rest * 2 ** (len(moves) - 1), 21600)


class _Both(Meters):
    """Two sources of metrics; both are scraped, and the first is queried."""

    def __init__(self, first: Meters, second: Meters) -> None:
        self._first, self._second = first, second

    def scrape(self, now: int, totals: Floats, levels: Floats) -> None:
        """See `Meters`."""
        self._first.scrape(now, totals, levels)
        self._second.scrape(now, totals, levels)

    def values(self, now: int) -> Floats:
        """See `Meters`."""
        return self._first.values(now)


class LowNodeUtilization:
    """The descheduler; call it every tick for the pods to evict.

    ``load``: in percent; None: from metrics-server, smoothed as the descheduler's collector does
    (every 5 s, nine tenths of the previous value).
    """

    def __init__(
        self,
        world: World,
        how: Descheduling = TUNED,
        load: Callable[[World], Floats] | None = None,
    ) -> None:
        self._world, self._how = world, how
        self._load = load or self._smoothed
        self._last: Floats | None = None
        self._moves: dict[str, list[float]] = defaultdict(list)
        if load is None:
            window = 2 * METRICS_SERVER if world.scenario.window else 0.0
            self._server = Meters(len(world.capacity), METRICS_SERVER, window, world.seed)
            world.meters = _Both(world.meters, self._server)

    def __call__(self, running: Mapping[str, Running]) -> list[Running]:
        """The pods to evict and place again now."""
        there, load, now = self._world.ledger.present, self._load(self._world), self._world.clock()
        if int(now) % self._how.every:
            return []
        load = np.where(there, load, load[there].mean())
        free = {
            uid: each
            for uid, each in running.items()
            if not rests(self._moves.get(uid, ()), now, self._how)
        }
        chosen = low_node_utilization(load, self._world.capacity, free, self._how)
        for each in chosen:
            self._moves[each.pod.uid].append(now)
        return chosen

    def _smoothed(self, world: World) -> Floats:
        values = 100 * self._server.values(int(world.clock())) / world.capacity
        before = values if self._last is None else self._last
        self._last = np.where(np.isnan(before), values, 0.81 * before + 0.19 * values)
        return self._last


def with_low_node_utilization(
    made: Callable[[World], Default],
    how: Descheduling = TUNED,
    load: Callable[[World], Floats] | None = None,
) -> Callable[[World], Default]:
    """The player together with LowNodeUtilization, which gets ``how`` and ``load``."""

    def player(world: World) -> Default:
        placing = made(world)
        placing.descheduler = LowNodeUtilization(world, how, load)
        return placing

    return player
