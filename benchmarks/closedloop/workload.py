"""The pods of one run: when they come, how long they live, what they request and really use."""

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
"""Cores."""


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod. ``arrives`` and ``lives`` in seconds, ``cpu`` (requested) and ``uses`` in cores,
    ``memory`` (requested) in bytes. ``course``: the use from each age on, of a pod whose use
    changes; ``uses`` is then its mean, or what it comes to. ``spreads``: the scheduler spreads the
    pods of its owner by itself, which it does not for those of a Job.
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
        """In cores, so many seconds after its start."""
        return next((uses for since, uses in reversed(self.course) if since <= age), self.uses)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of workload. ``mean`` is the use of one pod (as a share of a node's capacity),
    ``sigma`` the spread of the logarithm of use, ``lives`` a pod's mean life in seconds.
    ``replicas``: so many pods of one owner arrive at once. ``alike``: the pods of an owner all
    use the same. ``starts_with``: the share of its use that is there from a pod's start; the rest
    comes after half of its life. ``trace``: the folder whose series the pods use in place of
    ``sigma``, from a random moment of a random series on, or (``by_clock``) from the moment of the
    day on: the nights of all series are then one night. ``spreads``: as of `Pod`. ``every``: the
    replicas of one owner come at each multiple of so many seconds, and not by chance; ``within`` so
    many seconds. ``start``: so many times its use is what a pod uses in its first START seconds.
    ``requests``: a pod requests this many times its use, with this spread of the logarithm, in
    place of ``cpu``. ``limit``: the cores of which a pod gets no more.
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
    """What happens once or again and again, and brings pods of its own."""

    def pods(self, scenario: Scenario, chance: random.Random) -> Iterator[Pod]:
        """Its pods, in any order."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """Nodes, pods and metrics of one run; times in seconds. ``used``: the share of all
    capacity that pods use on average. ``scrape`` and ``window``: how often a node is scraped, and
    the range of the rule's ``rate`` (0: a gauge, such as memory); ``cadvisor``: the rule goes by
    the kubelets' own series. ``wave``: the share by which
    arrivals swing over ``wave_length``. ``big_nodes``: the share of nodes that are four times as
    large. ``joining``: so many of the nodes join, empty, a third into the time that is judged.
    ``warm``: how long a run goes on before it is judged. ``begins_within``: the pods that are there
    at the beginning come within so many seconds; 0: within a fifteenth of their mean life.
    ``drained_every``: so often a node is drained; it comes back, empty, DRAINED_FOR seconds later.
    ``packs``: kube-scheduler scores by MostAllocated. ``spreads``: it spreads the pods of an owner
    by default (``defaultConstraints``).
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
        """When the nodes that join do so."""
        return int(self.warm + 1200 * self.hours)

    @property
    def seconds(self) -> int:
        """How long a run takes, the time to warm up included."""
        return round(self.warm + 3600 * self.hours)


def draw(scenario: Scenario, seed: int) -> list[Pod]:
    """All pods of one run, in the order in which they arrive; the same for the same seed.

    Those that are there at the beginning have what is left of their lives (of exponential lives,
    that is as much as of new ones).
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
    """The same pods, each up to 0.3 s later; another number, other delays."""
    chance = random.Random(number)
    delayed = (replace(pod, arrives=pod.arrives + chance.uniform(0, 0.3)) for pod in pods)
    return sorted(delayed, key=lambda pod: pod.arrives)


def node_cores(scenario: Scenario) -> list[float]:
    """The capacity of each node in cores; a share of them is four times as large."""
    big = round(scenario.nodes * scenario.big_nodes)
    return [scenario.cores * (4 if number < big else 1) for number in range(scenario.nodes)]


def _capacity(scenario: Scenario) -> float:
    """Of the nodes that are there from the start, in cores."""
    return sum(node_cores(scenario)[: scenario.nodes - scenario.joining])


def _of_kind(
    scenario: Scenario, kind: Kind, number: int, capacity: float, chance: random.Random
) -> Iterator[Pod]:
    mean = kind.mean * scenario.cores
    running = scenario.used * kind.share * capacity / mean
    if kind.start > 1:  # so that all together use what the scenario says
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
    """When the replicas of one owner come, ``rate`` times a second on average."""
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
    """The pod with a part of a series. By the clock: of a random day of it, and each pod changes at
    its own moment of a STEP.
    """
    series = chance.choice(read(trace))
    begin = chance.randrange(len(series)) * STEP
    if by_clock:
        begin += pod.arrives - begin % DAY + chance.random() * STEP
    uses = course(series, begin, pod.lives, mean)
    ends = (*(age for age, _ in uses[1:]), pod.lives)
    total = sum(use * (end - age) for (age, use), end in zip(uses, ends, strict=True))
    return replace(pod, course=uses, uses=total / pod.lives)
