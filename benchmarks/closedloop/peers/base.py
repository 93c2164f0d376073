"""What the peers have in common: how their metrics come about, the account of just-bound pods, and
the descheduler beside them.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from closedloop.descheduler import Running
from closedloop.meters import Floats, Meters
from closedloop.peers import formulas as by
from closedloop.peers.formulas import Bools
from closedloop.players import Default
from closedloop.scheduler import Scheduler
from closedloop.workload import Pod
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


TUNED: Final = Descheduling(10, 10, per_node=1, total=3)
"""The best of seven on the seeds of `closedloop.peers`: 45 % removed at 40 % used, -5 % at 60 %."""


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
    mean: Floats = np.nansum(values, axis=0) / np.maximum(known, 1)
    return mean


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
    ) -> None:
        super().__init__(world)
        self.nodes = len(world.capacity)
        world.meters = self._meters(scrape, window)
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
        self._descheduling: Descheduling | None = None
        self._server = world.meters
        self._smoothed: Floats | None = None

    def _meters(self, scrape: float, window: float) -> Meters:
        range_of = window if self.world.scenario.window else 0.0
        return Meters(self.nodes, scrape, range_of, self.world.seed)

    def deschedule(self, how: Descheduling, *, by_metrics_server: bool = True) -> None:
        """From now on the descheduler runs beside it."""
        self._descheduling = how
        if by_metrics_server:
            self._server = self._meters(METRICS_SERVER, 2 * METRICS_SERVER)
            self.world.meters = _Both(self.world.meters, self._server)

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

    def bound_after(self, since: float) -> list[tuple[float, int, Pod]]:
        """When and where the pods were bound that came after ``since``, the latest first."""
        newest_first = reversed(self.recent.values())
        return list(itertools.takewhile(lambda bound: bound[0] > since, newest_first))

    def expected(self, since: float, of: Callable[[Pod], float]) -> Floats:
        """By node, the sum of what ``of`` says of the pods that were bound after ``since``."""
        total = np.zeros(self.nodes)
        for _, node, pod in self.bound_after(since):
            total[node] += of(pod)
        return total

    def evicts(self, running: Mapping[str, Running]) -> list[Running]:
        """As the descheduler beside it does."""
        how, now = self._descheduling, int(self.world.clock())
        if how is None:
            return []
        load = self.judged(now)
        if now % how.every:
            return []
        return low_node_utilization(load, self.world.capacity, running, how)

    def judged(self, now: int) -> Floats:
        """What the descheduler beside it judges nodes by, per cent: metrics-server's value,
        smoothed as its collector does (every 5 s, nine tenths of the value before).
        """
        values = 100 * self._server.values(now) / self.world.capacity
        before = values if self._smoothed is None else self._smoothed
        self._smoothed = np.where(np.isnan(before), values, 0.81 * before + 0.19 * values)
        return self._smoothed


def with_descheduler(
    made: Callable[[World], Peer], how: Descheduling = TUNED
) -> Callable[[World], Peer]:
    """The peer with LowNodeUtilization beside it, by real load."""

    def player(world: World) -> Peer:
        peer = made(world)
        peer.deschedule(how)
        return peer

    return player
