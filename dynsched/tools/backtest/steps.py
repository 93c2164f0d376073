"""Which moments a replay evaluates, and in which parts their history is asked for."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from dynsched.engine.columns import Floats
from dynsched.util.errors import ExpectedError

PART_SAMPLES: Final = 250_000
"""Of one range query. While its answer is read, a sample takes some 200 bytes: 50 MB."""
PART_STEPS: Final = 8192
"""Prometheus refuses more than 11,000 points for one series."""


@dataclass(frozen=True, slots=True)
class Window:
    """``count`` moments from ``start`` (Unix seconds), ``step`` seconds apart. ``start`` is a
    multiple of ``step``: servers with a cache of results shift other moments to such.
    """

    start: float
    step: float
    count: int

    @property
    def end(self) -> float:
        return self.start + (self.count - 1) * self.step

    def at(self, index: int) -> float:
        return self.start + index * self.step

    def times(self, first: int = 0, last: int | None = None) -> Floats:
        """The moments from one index to before another."""
        numbers = np.arange(first, self.count if last is None else last, dtype=np.float64)
        return self.start + numbers * self.step

    def row(self, moment: float) -> int:
        """Of the last moment that is not after ``moment``, or the nearest one in the window."""
        return min(max(0, self.index(moment)), self.count - 1)

    def index(self, moment: float) -> int:
        """Of the last moment that is not after ``moment``; may be outside of the window."""
        return math.floor((moment - self.start) / self.step + 1e-6)


@dataclass(frozen=True, slots=True)
class Part:
    """Moments ``first`` to before ``first + count`` of a window."""

    first: int
    count: int

    @property
    def end(self) -> int:
        return self.first + self.count


def window_of(since: float, until: float, step: float) -> Window:
    """All multiples of ``step`` within; ExpectedError where there is none."""
    first, last = math.ceil(since / step - 1e-6), math.floor(until / step + 1e-6)
    if last < first:
        raise ExpectedError(
            "there is no moment to evaluate: --since is shorter than --step, or not before --until"
        )
    return Window(first * step, step, last - first + 1)


def step_within(budget: int, wanted: float, since: float, until: float, series: int) -> float:
    """``wanted``, or as many times of it as keep ``series`` values a step within the budget."""
    samples = series * ((until - since) / wanted + 1)
    return wanted * max(1, math.ceil(samples / budget - 1e-6))


def parts_of(window: Window, series: int) -> Iterator[Part]:
    """Parts of the window for a query with so many series, in the order of time.

    They begin at multiples of their length since 1970: another run, a minute later, has the same
    parts but for the first and the last, and finds them in its cache.
    """
    most = min(PART_STEPS, max(1, PART_SAMPLES // max(1, series)))
    length = 1 << (most.bit_length() - 1)  # stable while the number of series changes a little
    begun = round(window.start / window.step)
    first = 0
    while first < window.count:
        count = min(length - (begun + first) % length, window.count - first)
        yield Part(first, count)
        first += count


def chunks(window: Window, lanes: int, rules: int) -> Iterator[tuple[int, int]]:
    """Steps that are replayed at a time: as many values as a few parts have."""
    length = max(1, min(PART_STEPS, 2_000_000 // max(1, lanes * rules)))
    for first in range(0, window.count, length):
        yield first, min(first + length, window.count)
