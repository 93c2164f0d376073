"""A model of kube-scheduler's default profile, with the score plugins that make a difference here.

Formulas and weights are those of Kubernetes 1.36 (``pkg/scheduler/framework/plugins``): resources
fit (LeastAllocated) 1, balanced allocation 1, taints 3, node affinity 2, and topology spread by
host 2 for pods with an owner. Ties are broken at random. With 100 nodes or more it considers only
a share of the nodes that fit, continuing where it stopped.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from closedloop.workload import MIB, Pod
from dynsched.features.order.tiers import nodes_looked_at

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MAX_PODS = 110
_SKEW = 3

Asked = Callable[[Pod, Ints], Floats]
"""Maps a pod and the candidates' indices to what an extender adds to each score."""
Passes = Callable[[Pod, Ints], NDArray[np.bool_]]
"""Maps a pod and the candidates' indices to whether each passes a plugin's filter."""


@dataclass(slots=True)
class Ledger:
    """The scheduler's state of every node: capacity, requests, pods, and marks."""

    cpu: Floats
    memory: Floats
    cpu_requested: Floats = field(init=False)
    memory_requested: Floats = field(init=False)
    pods: Ints = field(init=False)
    taints: Ints = field(init=False)
    labels: Ints = field(init=False)
    present: NDArray[np.bool_] = field(init=False)
    cordoned: NDArray[np.bool_] = field(init=False)
    owned: dict[str, Ints] = field(default_factory=dict)

    def __post_init__(self) -> None:
        size = len(self.cpu)
        self.cpu_requested, self.memory_requested = np.zeros(size), np.zeros(size)
        self.pods, self.taints, self.labels = (np.zeros(size, dtype=np.int64) for _ in range(3))
        self.present = np.ones(size, dtype=np.bool_)
        self.cordoned = np.zeros(size, dtype=np.bool_)

    def fits(self, pod: Pod) -> Ints:
        """The nodes that are present, not cordoned, and have room for the pod's requests."""
        room = (
            (self.present & ~self.cordoned)
            & (self.cpu_requested + pod.cpu <= self.cpu + 1e-9)
            & (self.memory_requested + pod.memory <= self.memory)
            & (self.pods < MAX_PODS)
        )
        return np.flatnonzero(room)

    def count(self, pod: Pod, node: int, sign: int) -> None:
        """Add the pod to the node (``sign`` 1), or remove it (-1)."""
        self.cpu_requested[node] += sign * pod.cpu
        self.memory_requested[node] += sign * pod.memory
        self.pods[node] += sign
        if pod.owner not in self.owned:
            self.owned[pod.owner] = np.zeros(len(self.pods), dtype=np.int64)
        self.owned[pod.owner][node] += sign


class Scheduler:
    """Chooses a node for each pod.

    ``affinity``: pods prefer unmarked nodes. ``by_requests``: whether the plugins that score by
    requests are on; they are off in the second scheduler's profile.
    """

    def __init__(
        self,
        ledger: Ledger,
        seed: int,
        *,
        affinity: bool = False,
        asked: Asked | None = None,
        passes: Passes | None = None,
        by_requests: bool = True,
        spread: bool = True,
        packs: bool = False,
    ) -> None:
        self.ledger = ledger
        self._chance = random.Random(seed)
        self._affinity = affinity
        self._asked = asked
        self._passes = passes
        self._by_requests = by_requests
        self._spread = spread
        self._packs = packs
        self._next = 0

    def choose(self, pod: Pod) -> int | None:
        """The node that the pod is bound to; None if no node has room."""
        found = self.ledger.fits(pod)
        if self._passes is not None:
            found = found[self._passes(pod, found)]
        if not len(found):
            return None
        found = self._searched(found)
        if len(found) == 1:
            return int(found[0])
        score = self.scores(pod, found)
        best = np.flatnonzero(score == score.max())
        return int(found[best[self._chance.randrange(len(best))]])

    def scores(self, pod: Pod, found: Ints) -> Floats:
        """The sum of all plugins' scores for each candidate."""
        ledger = self.ledger
        total = np.zeros(len(found))
        if self._by_requests:
            total += self._resources(pod, found)
        taints = ledger.taints[found]
        if taints.max():
            total += 3 * (100 - 100 * taints // taints.max())
        if self._affinity:
            total += np.where(ledger.labels[found] > 0, 0.0, 200.0)
        owned = ledger.owned.get(pod.owner) if self._spread and pod.spreads else None
        if owned is not None:
            total += 2 * _spread(owned[found])
        if self._asked is not None:
            total += self._asked(pod, found)
        return total

    def _resources(self, pod: Pod, found: Ints) -> Floats:
        ledger = self.ledger
        cpu, memory = ledger.cpu[found], ledger.memory[found]
        requested = max(pod.cpu, 0.1), max(pod.memory, 200 * MIB)
        cpu_before = ledger.cpu_requested[found] / cpu
        memory_before = ledger.memory_requested[found] / memory
        cpu_after = np.minimum(cpu_before + requested[0] / cpu, 1)
        memory_after = np.minimum(memory_before + requested[1] / memory, 1)
        if not self._packs:
            cpu_room, memory_room = 1 - cpu_after, 1 - memory_after
        else:  # MostAllocated
            cpu_room, memory_room = cpu_after, memory_after
        fit = np.floor((np.floor(100 * cpu_room) + np.floor(100 * memory_room)) / 2)
        before = np.floor(100 * (1 - np.abs(cpu_before - memory_before) / 2))
        after = np.floor(100 * (1 - np.abs(cpu_after - memory_after) / 2))
        return fit + 50 + np.floor((50 + after - before) / 2)

    def _searched(self, found: Ints) -> Ints:
        """The share of the candidates that is scored; it starts after the last one, round-robin."""
        total = len(self.ledger.pods)
        number = nodes_looked_at(total)
        if len(found) <= number:
            return found
        start = int(np.searchsorted(found, self._next % total))
        taken = np.take(found, range(start, start + number), mode="wrap")
        self._next = int(taken[-1]) + 1
        return taken


def _spread(counts: Ints) -> Floats:
    """Topology spread by host, with the scheduler's default constraints."""
    raw = np.rint(counts * math.log(len(counts) + 2) + _SKEW - 1)
    low, high = raw.min(), raw.max()
    return np.floor(100 * (high + low - raw) / high)
