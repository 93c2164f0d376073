"""What Prometheus would answer: scrapes every so often, at another moment for each node, and a
``rate`` over a range (or the last value of a gauge). So a value is old, and an average.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


MEASURED_EVERY = 10, 20
"""A kubelet measures anew after so many seconds, from and to, and tells the time when it did."""


class Meters:
    """Scrapes of every node; `scrape` is called once a second, `values` at a tick. ``cadvisor``: a
    scrape gives what the node's kubelet has measured last.
    """

    def __init__(
        self, nodes: int, scrape: float, window: float, seed: int, *, cadvisor: bool = False
    ) -> None:
        self._interval = max(1, round(scrape))
        self._window = round(window)
        chance = np.random.default_rng(seed)
        self._offsets = chance.integers(0, self._interval, nodes)
        keep = self._window // self._interval + 3
        self._times = np.full((keep, nodes), -np.inf)
        self._read = np.zeros((keep, nodes))
        self._count = np.zeros(nodes, dtype=np.int64)
        self._keep = keep
        self._cadvisor = cadvisor
        self._chance = chance
        self._due = np.zeros(nodes)
        self._measured = np.zeros((3, nodes))  # when, and both of what `scrape` is told

    def scrape(self, now: int, totals: Floats, levels: Floats) -> None:
        """Scrape the nodes whose turn it is: ``totals`` is a counter of use times seconds,
        ``levels`` the use at this moment.
        """
        times = np.full(len(totals), float(now))
        if self._cadvisor:
            measures = self._due <= now
            wait = self._chance.integers(*MEASURED_EVERY, len(totals), endpoint=True)
            self._due = np.where(measures, now + wait, self._due)
            latest = np.stack((times, totals, levels))
            self._measured = np.where(measures, latest, self._measured)
            times, totals, levels = self._measured
        is_new = times > self._times.max(axis=0)  # Prometheus keeps one sample of a time
        due = np.flatnonzero(((now - self._offsets) % self._interval == 0) & is_new)
        if not len(due):
            return
        place = self._count[due] % self._keep
        self._times[place, due] = times[due]
        self._read[place, due] = totals[due] if self._window else levels[due]
        self._count[due] += 1

    def values(self, now: int) -> Floats:
        """Each node's value; NaN where there are too few scrapes."""
        nodes = np.arange(len(self._count))
        newest = (self._count - 1) % self._keep
        if not self._window:
            return np.where(self._count > 0, self._read[newest, nodes], np.nan)
        inside = self._times > now - self._window
        oldest = np.where(inside, self._times, np.inf).argmin(axis=0)
        first, last = self._times[oldest, nodes], self._times[newest, nodes]
        rise = self._read[newest, nodes] - self._read[oldest, nodes]
        enough = inside.any(axis=0) & (last > first)
        span = np.where(enough, last, 1.0) - np.where(enough, first, 0.0)
        return np.where(enough, rise / span, np.nan)
