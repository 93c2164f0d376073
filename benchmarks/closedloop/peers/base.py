"""The base of all peers: their metrics, and the tracking of recently bound pods."""

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
"""Seconds between evaluations of Prometheus' recording rules, and between steps of a subquery."""
METRICS_SERVER: Final = 15.0
"""Seconds between two scrapes of metrics-server; its value is the rate between the last two."""
_KEPT: Final = 310.0
"""Seconds for which recently bound pods are tracked; the longest that a peer looks back."""


class Series:
    """The last values of all nodes, one every RECORDED seconds, over ``seconds`` seconds."""

    def __init__(self, seconds: float) -> None:
        self._values: deque[Floats] = deque(maxlen=max(1, round(seconds / RECORDED)))

    def add(self, values: Floats) -> None:
        """Add the current values; NaN if a node has none."""
        self._values.append(values)

    def mean(self) -> Floats:
        """The mean of the known values; NaN if none is known."""
        values = np.array(self._values)
        known = (~np.isnan(values)).sum(axis=0)
        return np.where(known, np.nansum(values, axis=0) / np.maximum(known, 1), np.nan)

    def deviation(self) -> Floats:
        """The standard deviation of the known values; 0 if none is known."""
        values = np.array(self._values)
        return np.sqrt(np.nan_to_num(_mean_of((values - self.mean()) ** 2)))

    def largest(self) -> Floats:
        """The largest known value; NaN if none is known."""
        largest = np.nan_to_num(np.array(self._values), nan=-1.0).max(axis=0)
        return np.where(largest < 0, np.nan, largest)


def _mean_of(values: Floats) -> Floats:
    known = (~np.isnan(values)).sum(axis=0)
    mean: Floats = np.nansum(values, axis=0) / np.maximum(known, 1)
    return mean


class Peer(Default):
    """kube-scheduler with an additional plugin.

    ``scrape`` and ``window``: the interval and the range of the peer's node metric, instead of the
    scenario's. ``weight``: of the plugin. ``by_requests`` False: kube-scheduler's plugins that
    score by requests are off.
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
        """The CPU of each node in percent as the peer knows it; NaN if unknown."""

    def score(self, pod: Pod) -> Floats:
        """The plugin's score of every node, without its weight."""
        raise NotImplementedError

    def passes(self, _pod: Pod) -> Bools:
        """Which nodes pass the plugin's filter."""
        return np.ones(self.nodes, dtype=np.bool_)

    def renew(self, now: int) -> None:
        """Fetch new metrics if that is due."""
        raise NotImplementedError

    @property
    def memory(self) -> Floats:
        """The share of each node's memory that is in use."""
        return self.world.ledger.memory_requested / self.world.ledger.memory

    async def tick(self) -> None:
        """See `world.Player`."""
        now = int(self.world.clock())
        self.recent = {uid: it for uid, it in self.recent.items() if it[0] > now - _KEPT}
        self.renew(now)

    def bound(self, pod: Pod, node: int) -> None:
        """See `world.Player`."""
        self.recent[pod.uid] = (self.world.clock(), node, pod)

    def gone(self, pod: Pod, node: int) -> None:  # noqa: ARG002
        """See `world.Player`."""
        self.recent.pop(pod.uid, None)

    def bound_after(self, since: float) -> list[tuple[float, int, Pod]]:
        """Time, node and pod of the bindings after ``since``, the latest first."""
        newest_first = reversed(self.recent.values())
        return list(itertools.takewhile(lambda bound: bound[0] > since, newest_first))

    def expected(self, since: float, of: Callable[[Pod], float]) -> Floats:
        """Per node, the sum of ``of`` over the pods bound after ``since``."""
        total = np.zeros(self.nodes)
        for _, node, pod in self.bound_after(since):
            total[node] += of(pod)
        return total
