"""Actions of a cluster's owner: a Deployment is scaled, or rolled out."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from closedloop.workload import MIB, Pod, Scenario

_USES = (0.5, 0.8)
"""Minimum and maximum cores that a replica uses; the same for all replicas of a Deployment."""
_CREATED_IN = 2.0
"""Seconds within which pods that are wanted at once are created."""


@dataclass(frozen=True, slots=True)
class Scaled:
    """Every ``every`` seconds another Deployment is scaled from ``few`` replicas to ``many``, for
    ``lasts`` seconds.
    """

    few: int = 10
    many: int = 200
    every: float = 1800.0
    lasts: float = 900.0

    def pods(self, scenario: Scenario, chance: random.Random) -> Iterator[Pod]:
        """See `workload.Event`."""
        for number, begins in enumerate(_times(scenario, self.every)):
            uses = chance.uniform(*_USES)
            for index in range(self.many):
                arrives, lives = begins + chance.uniform(0, _CREATED_IN), self.lasts
                if index < self.few:
                    arrives, lives = chance.uniform(0, 60), float(scenario.seconds)
                yield _replica(f"scaled-{number}", index, arrives, lives, uses)


@dataclass(frozen=True, slots=True)
class RolledOut:
    """Every ``every`` seconds all ``replicas`` of another Deployment are replaced.

    ``at_once`` new pods are created at a time; ``ready`` seconds later they are ready, and as many
    old pods end.
    """

    deployments: int = 2
    replicas: int = 60
    at_once: int = 15
    ready: float = 20.0
    every: float = 600.0

    def pods(self, scenario: Scenario, chance: random.Random) -> Iterator[Pod]:
        """See `workload.Event`."""
        for number in range(self.deployments):
            uses, since = chance.uniform(*_USES), [0.0] * self.replicas
            ends = [*_times(scenario, self.every)][number :: self.deployments]
            for at, begins in enumerate([*ends, float(scenario.seconds)]):
                for index in range(self.replicas):
                    until = begins + self.ready * (index // self.at_once)
                    arrives = since[index] + chance.uniform(0, _CREATED_IN)
                    lives = until + self.ready - arrives
                    yield _replica(f"rolled-{number}", at * 1000 + index, arrives, lives, uses)
                    since[index] = until


def _times(scenario: Scenario, every: float) -> Iterator[float]:
    """The times of events in the judged time, the first one ``every / 3`` after its start."""
    time = scenario.warm + every / 3
    while time < scenario.seconds:
        yield time
        time += every


def _replica(owner: str, index: int, arrives: float, lives: float, uses: float) -> Pod:
    return Pod(f"{owner}-{index}", owner, arrives, lives, cpu=0.2, memory=256 * MIB, uses=uses)
