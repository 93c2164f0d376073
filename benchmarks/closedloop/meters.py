"""A model of what Prometheus answers: values that are old, and averages.

Each node is scraped at its own offset within the interval. The value is a ``rate`` over a range, or
the last value of a gauge.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


MEASURED_EVERY = 10, 20
"""Minimum and maximum seconds between two measurements of a kubelet.

Its samples have the timestamp of the measurement.
"""


class Meters:
    """Scrapes of every node. Call `scrape` once a second, and `values` at a tick.

    ``cadvisor``: a scrape returns the last measurement of the node's kubelet.
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
        self._measured = np.zeros((3, nodes))  # time, totals and levels of the last measurement

    def scrape(self, now: int, totals: Floats, levels: Floats) -> None:
        """Scrape the nodes that are due. ``totals`` is a counter of use times seconds, ``levels``
        the current use.
        """
        times = np.full(len(totals), float(now))
        if self._cadvisor:
            measures = self._due <= now
            wait = self._chance.integers(*MEASURED_EVERY, len(totals), endpoint=True)
            self._due = np.where(measures, now + wait, self._due)
            latest = np.stack((times, totals, levels))
            self._measured = np.where(measures, latest, self._measured)
            times, totals, levels = self._measured
        is_new = times > self._times.max(axis=0)  # Prometheus keeps one sample per timestamp
        due = np.flatnonzero(((now - self._offsets) % self._interval == 0) & is_new)
        if not len(due):
            return
        place = self._count[due] % self._keep
        self._times[place, due] = times[due]
        self._read[place, due] = totals[due] if self._window else levels[due]
        self._count[due] += 1

    def values(self, now: int) -> Floats:
        """Each node's value; NaN if there are too few scrapes."""
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
