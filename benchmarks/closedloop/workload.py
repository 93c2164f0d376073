"""The pods of one run: their arrival, life, requests and real use."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import numpy as np

from closedloop.traces import DAY, STEP, Course, course, read

MIB = float(2**20)
START = 60.0
"""Seconds in which a slow starter uses more than later."""
DRAINED_FOR = 300.0
LEAST_REQUEST = 0.01
"""Minimum request of a pod, in cores."""


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod. ``arrives`` and ``lives`` are in seconds, ``cpu`` (requested) and ``uses`` in cores,
    ``memory`` (requested) in bytes.

    ``course``: for a pod whose use changes, the use from each age on; ``uses`` is then its mean, or
    its final value. ``spreads``: the scheduler spreads the pods of this owner by default, as it
    does not for a Job's.
    """

    uid: str
    owner: str
    arrives: float
    lives: float
    cpu: float
    memory: float
    uses: float
    course: Course = ()
    spreads: bool = True

    def uses_at(self, age: float) -> float:
        """Use in cores, ``age`` seconds after the start."""
        return next((uses for since, uses in reversed(self.course) if since <= age), self.uses)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of workload.

    ``share``: of all use. ``mean``: use of one pod, as a share of a node's capacity. ``sigma``:
    spread of the logarithm of use. ``lives``: a pod's mean life in seconds. ``replicas``: number of
    pods of one owner that arrive at once. ``alike``: all pods of an owner use the same.
    ``starts_with``: share of its use that a pod starts with; the rest is added after half of its
    life. ``trace``: a folder with series that replace ``sigma``. A pod starts at a random moment of
    a random series, or (``by_clock``) at the time of day, so that all series have their night at
    the same time. ``spreads``: see `Pod`. ``every``: the replicas of one owner arrive at each
    multiple of this many seconds, not at random; ``within``: seconds in which they arrive.
    ``start``: factor on a pod's use in its first START seconds. ``requests``: request as a multiple
    of use, and its spread of the logarithm; it replaces ``cpu``. ``limit``: maximum cores of a pod.
    """

    share: float = 1.0
    mean: float = 0.0625
    sigma: float = 1.0
    lives: float = 900.0
    replicas: int = 1
    owners: int = 40
    alike: bool = False
    cpu: float = 0.2
    memory: float = 256 * MIB
    starts_with: float = 1.0
    trace: Path | None = None
    by_clock: bool = False
    spreads: bool = True
    every: float = 0.0
    within: float = 2.0
    start: float = 1.0
    requests: tuple[float, float] | None = None
    limit: float = math.inf


class Event(Protocol):
    """Something that happens once or repeatedly, and creates pods."""

    def pods(self, scenario: Scenario, chance: random.Random) -> Iterator[Pod]:
        """The pods of the event, in any order."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """Nodes, pods and metrics of one run; times in seconds.

    ``used``: mean share of all capacity that pods use. ``scrape``: scrape interval. ``window``:
    range of the rule's ``rate`` (0: a gauge, such as memory). ``cadvisor``: the rule uses the
    kubelets' own series. ``wave``: relative swing of arrivals over ``wave_length``. ``big_nodes``:
    share of nodes that are four times as large. ``joining``: number of nodes that join, empty, a
    third into the judged time. ``warm``: time before a run is judged. ``begins_within``: time in
    which the initial pods arrive; 0: a fifteenth of their mean life. ``drained_every``: interval
    between drains of a node, which comes back, empty, DRAINED_FOR seconds later. ``packs``:
    kube-scheduler scores by MostAllocated. ``spreads``: it spreads the pods of an owner by default
    (``defaultConstraints``).
    """

    name: str
    used: float = 0.6
    nodes: int = 50
    cores: float = 8.0
    memory: float = 32 * 1024 * MIB
    kinds: tuple[Kind, ...] = field(default_factory=lambda: (Kind(),))
    scrape: float = 30.0
    window: float = 120.0
    cadvisor: bool = False
    tick: float = 10.0
    hours: float = 1.0
    warm: float = 1800.0
    wave: float = 0.0
    wave_length: float = 3600.0
    big_nodes: float = 0.0
    joining: int = 0
    begins_within: float = 0.0
    drained_every: float = 0.0
    packs: bool = False
    spreads: bool = True
    events: tuple[Event, ...] = ()

    @property
    def join_at(self) -> int:
        """When the joining nodes join."""
        return int(self.warm + 1200 * self.hours)

    @property
    def seconds(self) -> int:
        """Duration of a run, warm-up included."""
        return round(self.warm + 3600 * self.hours)


def draw(scenario: Scenario, seed: int) -> list[Pod]:
    """All pods of one run in order of arrival; the same for the same seed.

    Initial pods have the rest of their lives left; with exponential lives, that has the same
    distribution as a new life.
    """
    chance = random.Random(f"{scenario.name} {seed}")
    capacity = _capacity(scenario)
    pods: list[Pod] = []
    for number, kind in enumerate(scenario.kinds):
        pods += _of_kind(scenario, kind, number, capacity, chance)
    for event in scenario.events:
        pods += event.pods(scenario, chance)
    return sorted(pods, key=lambda pod: (pod.arrives, pod.uid))


def late(pods: Iterable[Pod], number: int) -> list[Pod]:
    """The pods, each delayed by up to 0.3 s; the delays depend on ``number``."""
    chance = random.Random(number)
    delayed = (replace(pod, arrives=pod.arrives + chance.uniform(0, 0.3)) for pod in pods)
    return sorted(delayed, key=lambda pod: pod.arrives)


def node_cores(scenario: Scenario) -> list[float]:
    """The capacity of each node in cores; the first ``big_nodes`` share is four times as large."""
    big = round(scenario.nodes * scenario.big_nodes)
    return [scenario.cores * (4 if number < big else 1) for number in range(scenario.nodes)]


def _capacity(scenario: Scenario) -> float:
    """The capacity in cores of the nodes that exist from the start."""
    return sum(node_cores(scenario)[: scenario.nodes - scenario.joining])


def _of_kind(
    scenario: Scenario, kind: Kind, number: int, capacity: float, chance: random.Random
) -> Iterator[Pod]:
    mean = kind.mean * scenario.cores
    running = scenario.used * kind.share * capacity / mean
    if kind.start > 1:  # so that the total use is that of the scenario
        mean /= 1 + (kind.start - 1) * -math.expm1(-START / kind.lives)
    rate = running / kind.lives / kind.replicas
    level = math.log(mean) - kind.sigma**2 / 2
    of_owner = [chance.lognormvariate(level, kind.sigma) for _ in range(kind.owners)]
    scale = mean * kind.owners / sum(of_owner)

    def made(index: int, arrives: float, owner: int) -> Pod:
        uses = of_owner[owner] * scale if kind.alike else chance.lognormvariate(level, kind.sigma)
        cpu = kind.cpu
        if kind.requests is not None:
            times, spread = kind.requests
            cpu = uses * times * chance.lognormvariate(-(spread**2) / 2, spread)
        pod = Pod(
            uid=f"{number}-{index}",
            owner=f"{number}-{owner}",
            arrives=arrives,
            lives=chance.expovariate(1 / kind.lives),
            cpu=min(max(cpu, LEAST_REQUEST), 0.9 * scenario.cores),
            memory=kind.memory,
            uses=min(uses, kind.limit, 0.9 * scenario.cores),
            spreads=kind.spreads,
        )
        return _with_course(pod, scenario, kind, mean, chance)

    index = 0
    within = scenario.begins_within or kind.lives / 15
    for _ in range(0 if kind.every else round(running)):
        yield made(index, chance.uniform(0, within), chance.randrange(kind.owners))
        index += 1
    for time in _moments(scenario, kind, rate, chance):
        owner = chance.randrange(kind.owners)
        for _ in range(kind.replicas):
            yield made(index, time + chance.uniform(0, kind.within), owner)
            index += 1


def _moments(scenario: Scenario, kind: Kind, rate: float, chance: random.Random) -> Iterator[float]:
    """When the replicas of one owner arrive, ``rate`` times per second on average."""
    if kind.every:
        yield from np.arange(kind.every, scenario.seconds, kind.every).tolist()
        return
    time = 0.0
    swing = 1 + scenario.wave
    while True:
        time += chance.expovariate(rate * swing)
        if time >= scenario.seconds:
            return
        phase = 2 * math.pi * time / scenario.wave_length
        if chance.random() * swing <= 1 + scenario.wave * math.sin(phase):
            yield time


def _with_course(
    pod: Pod, scenario: Scenario, kind: Kind, mean: float, chance: random.Random
) -> Pod:
    if kind.trace is not None:
        return _played(pod, kind.trace, mean, chance, by_clock=kind.by_clock)
    if kind.start > 1:
        more = min(pod.uses * kind.start, 0.9 * scenario.cores)
        return replace(pod, course=((0.0, more), (START, pod.uses)))
    if kind.starts_with < 1:
        rise = ((0.0, pod.uses * kind.starts_with), (pod.lives / 2, pod.uses))
        return replace(pod, course=rise)
    return pod


def _played(pod: Pod, trace: Path, mean: float, chance: random.Random, *, by_clock: bool) -> Pod:
    """The pod with a part of a series.

    By the clock, it is a random day of the series, and each pod changes at a different moment of a
    STEP.
    """
    series = chance.choice(read(trace))
    begin = chance.randrange(len(series)) * STEP
    if by_clock:
        begin += pod.arrives - begin % DAY + chance.random() * STEP
    uses = course(series, begin, pod.lives, mean)
    ends = (*(age for age, _ in uses[1:]), pod.lives)
    total = sum(use * (end - age) for (age, use), end in zip(uses, ends, strict=True))
    return replace(pod, course=uses, uses=total / pod.lives)
