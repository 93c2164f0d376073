"""The descheduler's plugin LowNodeUtilization by real load, beside any player."""

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
    """LowNodeUtilization: the lines in per cent (``relative`` to the mean), seconds between two
    cycles, and the limits of one cycle. ``knows_uses``: what each pod uses is known (by
    metrics-server); by a query of Prometheus it is not, and as many pods go as the limits let.
    ``rest``: seconds for which a pod that was moved stays, doubled by each further move (the plugin
    KubevirtMigrationAware, for virtual machines; pods of containers have none).
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
"""The same by a query of Prometheus: docs/examples/descheduler/by-load.yaml."""


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


def rests(moves: Sequence[float], now: float, how: Descheduling) -> bool:
    """Whether a pod that was moved at these times stays.

    openshift-virtualization/kubevirt-descheduler-plugins, kubevirtmigrationaware, as vendored in
    openshift/cluster-kube-descheduler-operator 945dcaa9: 15 minutes, at most 6 hours.
    """
    return bool(moves) and now - moves[-1] < min(how.rest * 2 ** (len(moves) - 1), 21600)


class _Both(Meters):
    """Two sources that are scraped; the first is the one that is asked."""

    def __init__(self, first: Meters, second: Meters) -> None:
        self._first, self._second = first, second

    def scrape(self, now: int, totals: Floats, levels: Floats) -> None:
        """As `Meters`."""
        self._first.scrape(now, totals, levels)
        self._second.scrape(now, totals, levels)

    def values(self, now: int) -> Floats:
        """As `Meters`."""
        return self._first.values(now)


class LowNodeUtilization:
    """What the descheduler evicts when it is asked every tick. ``load`` in per cent; None: by
    metrics-server, whose value its collector smooths (every 5 s, nine tenths of the value before).
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
        """The pods that are to be placed anew now."""
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
    """The player with LowNodeUtilization beside it; ``how``, ``load``: as there."""

    def player(world: World) -> Default:
        placing = made(world)
        placing.descheduler = LowNodeUtilization(world, how, load)
        return placing

    return player
