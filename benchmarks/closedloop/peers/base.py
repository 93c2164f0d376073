"""What peers have in common: how their metrics come about, and the account of just-bound pods."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable
from typing import Final

import numpy as np

from closedloop.meters import Floats, Meters
from closedloop.peers.formulas import Bools
from closedloop.players import Default, profile
from closedloop.scheduler import Scheduler
from closedloop.workload import Pod
from closedloop.world import World

RECORDED: Final = 30
"""Seconds between two evaluations of Prometheus' recording rules, and two steps of a subquery."""
METRICS_SERVER: Final = 15.0
"""Seconds between two scrapes of metrics-server; its value is the rate between the last two."""
_KEPT: Final = 310.0
"""Seconds for which just-bound pods are kept; the longest that a peer looks back."""


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
        range_of = window if world.scenario.window else 0.0
        world.meters = Meters(self.nodes, scrape, range_of, world.seed)
        self.scheduler = Scheduler(
            world.ledger,
            world.seed,
            asked=lambda pod, found: weight * self.score(pod)[found],
            passes=lambda pod, found: self.passes(pod)[found],
            by_requests=by_requests,
            **profile(world),
        )
        self.recent: dict[str, tuple[float, int, Pod]] = {}
        self.percent: Floats = np.full(self.nodes, np.nan)
        """What the peer knows of each node's CPU now; NaN: nothing."""

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
