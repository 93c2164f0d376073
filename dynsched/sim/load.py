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

HEATING_SHARE: Final = 0.5
HEATING_SHARE_BEYOND: Final = 0.1
SMALL_CLUSTER: Final = 40
"""Number of nodes. Of the nodes up to this number, half heat; of all further ones, a tenth: a large
cluster of which half heats would mark and release hundreds of nodes per second, as no real one
does."""

_MEMORY_SHARE: Final = 0.35
"""Of those that heat, how many do so by their memory rather than by their CPU."""
_LATEST_START: Final = 0.6
"""In periods: by then the last node has begun to climb, so that all have cooled in a minute."""
# The fractional parts of its multiples spread evenly over 0..1, however many are taken.
_GOLDEN: Final = (math.sqrt(5) - 1) / 2


class Kind(StrEnum):
    """What a node's load does over time."""

    CALM = "calm"
    CPU = "cpu"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class Heat:
    """A trapezoid between 0 and 1 that repeats: ramp up, stay, ramp down, rest."""

    start: float
    period: float
    ramp: float
    stay: float

    def at(self, time: float) -> float:
        """The height now, 0..1."""
        into = (time - self.start) % self.period
        if time < self.start or into >= 2 * self.ramp + self.stay:
            return 0.0
        falling = into - self.ramp - self.stay
        return min(1.0, into / self.ramp, 1.0 - falling / self.ramp)

    def area(self, time: float) -> float:
        """The integral of ``at`` from 0 to ``time``."""
        if time < self.start:
            return 0.0
        cycles, into = divmod(time - self.start, self.period)
        up = min(into, self.ramp)
        top = min(max(into - self.ramp, 0.0), self.stay)
        down = min(max(into - self.ramp - self.stay, 0.0), self.ramp)
        ramps = up * up / (2 * self.ramp) + down - down * down / (2 * self.ramp)
        return cycles * (self.ramp + self.stay) + ramps + top


@dataclass(frozen=True, slots=True)
class Wobble:
    """The small unrest that every node shows: a sine."""

    amplitude: float
    period: float
    phase: float

    def at(self, time: float) -> float:
        """The deviation now, between -amplitude and amplitude."""
        return self.amplitude * math.sin(math.tau * time / self.period + self.phase)

    def area(self, time: float) -> float:
        """The integral of ``at`` from 0 to ``time``."""
        turned = math.cos(self.phase) - math.cos(math.tau * time / self.period + self.phase)
        return self.amplitude * self.period / math.tau * turned


@dataclass(frozen=True, slots=True)
class NodeLoad:
    """One node's load over all time, in percent; it stays inside 0..100 by how it is built.

    ``cpu_rise`` and ``memory_rise`` are what ``heat`` adds at its peak.
    """

    kind: Kind
    heat: Heat
    cpu_base: float
    cpu_rise: float
    cpu_wobble: Wobble
    memory_base: float
    memory_rise: float
    memory_wobble: Wobble

    def cpu(self, time: float) -> float:
        return self.cpu_base + self.cpu_rise * self.heat.at(time) + self.cpu_wobble.at(time)

    def memory(self, time: float) -> float:
        heat = self.memory_rise * self.heat.at(time)
        return self.memory_base + heat + self.memory_wobble.at(time)

    def busy_seconds(self, time: float) -> float:
        """How long one CPU has been busy since the load began: the integral of ``cpu`` / 100.

        In closed form, so that a counter is exact whenever and however often it is read.
        """
        heat = self.cpu_rise * self.heat.area(time)
        return (self.cpu_base * time + heat + self.cpu_wobble.area(time)) / 100

    def mean_cpu(self, since: float, until: float) -> float:
        """Mean CPU utilization over a span, in percent: what a ``rate`` over it comes to."""
        return (self.busy_seconds(until) - self.busy_seconds(since)) / (until - since) * 100


def node_load(index: int, seed: int = 0) -> NodeLoad:
    """The load of the node with this index. The seed decides who heats, when and how far."""
    first = random.Random(f"dynsched/{seed}").random()  # noqa: S311 (weather, not cryptography)
    own = random.Random(f"dynsched/{seed}/{index}")  # noqa: S311
    share = HEATING_SHARE if index < SMALL_CLUSTER else HEATING_SHARE_BEYOND
    place = (first + index * _GOLDEN) % 1.0 / share
    kind = _kind(place)
    period = own.uniform(26.0, 36.0)
    cpu_base, memory_base = own.uniform(12.0, 45.0), own.uniform(25.0, 60.0)
    return NodeLoad(
        kind=kind,
        heat=Heat(
            start=place * _LATEST_START * period,
            period=period,
            ramp=0.1 * period,
            stay=0.35 * period,
        ),
        cpu_base=cpu_base,
        cpu_rise=own.uniform(91.0, 96.0) - cpu_base if kind is Kind.CPU else 0.0,
        cpu_wobble=Wobble(own.uniform(1.0, 3.0), own.uniform(9.0, 17.0), own.uniform(0, math.tau)),
        memory_base=memory_base,
        memory_rise=own.uniform(93.0, 97.0) - memory_base if kind is Kind.MEMORY else 0.0,
        memory_wobble=Wobble(own.uniform(0.2, 1.0), own.uniform(20.0, 40.0), 0.0),
    )


def _kind(place: float) -> Kind:
    """What a node does whose place in the queue of those that heat is 0..1, and calm beyond.

    Three times along the queue comes a stretch of those that heat by memory: both kinds are
    there early and late, and in few nodes too.
    """
    if place >= 1.0:
        return Kind.CALM
    return Kind.MEMORY if place * 3 % 1.0 < _MEMORY_SHARE else Kind.CPU
