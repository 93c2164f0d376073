"""A synthetic load: node index, seed and time -> CPU and memory utilization in percent.

Pure: times are seconds since the load began. A node is *calm*, or it *heats*: again and again it
climbs to a peak above 90 %, stays there for some ten seconds, falls back and rests. Each does so
at a time, for a period and up to a peak of its own; the first of twelve within seconds.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

_HEATING_SHARE: Final = 0.5
_HEATING_SHARE_BEYOND: Final = 0.1
_SMALL_CLUSTER: Final = 40
"""Number of nodes. Of the nodes up to this number, half heat; of all further ones, a tenth: a large
cluster of which half heats would mark and release hundreds of nodes per second, as no real one
does."""

_MEMORY_SHARE: Final = 0.35
"""Of those that heat, how many do so by their memory rather than by their CPU."""
_LATEST_START: Final = 0.6
"""In periods: by then the last node has begun to climb, so that all have cooled in a minute."""
_RAMP: Final = 0.1
"""In periods: how long a node climbs, and how long it falls back."""
_STAY: Final = 0.35
"""In periods: how long it stays at the peak."""
# The fractional parts of its multiples spread evenly over 0..1, however many are taken.
_GOLDEN: Final = (math.sqrt(5) - 1) / 2


class Kind(StrEnum):
    CALM = "calm"
    CPU = "cpu"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class Utilization:
    """Of one resource, in percent: ``base``, up to ``rise`` more by heat, and a small sine."""

    base: float
    rise: float
    amplitude: float
    period: float

    def at(self, time: float, heat: float) -> float:
        sine = self.amplitude * math.sin(math.tau * time / self.period)
        return self.base + self.rise * heat + sine


@dataclass(frozen=True, slots=True)
class NodeLoad:
    """It stays inside 0..100 by how it is built. ``start`` and ``period`` are of its heat."""

    kind: Kind
    start: float
    period: float
    of_cpu: Utilization
    of_memory: Utilization

    def cpu(self, time: float) -> float:
        return self.of_cpu.at(time, self._heat(time))

    def memory(self, time: float) -> float:
        return self.of_memory.at(time, self._heat(time))

    def _heat(self, time: float) -> float:
        """A trapezoid between 0 and 1 that repeats: ramp up, stay, ramp down, rest."""
        if time < self.start:
            return 0.0
        into = (time - self.start) / self.period % 1.0
        falling = into - _RAMP - _STAY
        return max(0.0, min(1.0, into / _RAMP, 1.0 - falling / _RAMP))


def node_load(index: int, seed: int = 0) -> NodeLoad:
    """The load of the node with this index. The seed decides who heats, when and how far."""
    first = random.Random(f"dynsched/{seed}").random()  # noqa: S311 (weather, not cryptography)
    own = random.Random(f"dynsched/{seed}/{index}")  # noqa: S311
    share = _HEATING_SHARE if index < _SMALL_CLUSTER else _HEATING_SHARE_BEYOND
    turn = (first + index * _GOLDEN) % 1.0 / share
    kind = _kind(turn)
    period = own.uniform(26.0, 36.0)
    cpu, memory = own.uniform(12.0, 45.0), own.uniform(25.0, 60.0)
    return NodeLoad(
        kind=kind,
        start=turn * _LATEST_START * period,
        period=period,
        of_cpu=Utilization(
            base=cpu,
            rise=own.uniform(91.0, 96.0) - cpu if kind is Kind.CPU else 0.0,
            amplitude=own.uniform(1.0, 3.0),
            period=own.uniform(9.0, 17.0),
        ),
        of_memory=Utilization(
            base=memory,
            rise=own.uniform(93.0, 97.0) - memory if kind is Kind.MEMORY else 0.0,
            amplitude=own.uniform(0.2, 1.0),
            period=own.uniform(20.0, 40.0),
        ),
    )


def _kind(turn: float) -> Kind:
    """Those that heat by memory come in three stretches: both kinds are there early and late."""
    if turn >= 1.0:
        return Kind.CALM
    return Kind.MEMORY if turn * 3 % 1.0 < _MEMORY_SHARE else Kind.CPU
