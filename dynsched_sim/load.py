"""Pods that come and go, and the load that they make: the world of `dynsched demo`. Pure.

Times are seconds since it began, twenty times as fast as in a real cluster. All pods request the
same, and each uses another amount of CPU, so a scheduler that goes by requests overloads some
nodes. The same pods are also placed without a look at marks: what these prevent is the difference.
Pods of the job `report` use more and more memory, and ignore the marks.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from statistics import fmean
from typing import Final, NamedTuple

HOT: Final = 80.0
"""Per cent of CPU."""
_LIVELY: Final = 40
"""Nodes to which pods come, at most: hundreds of new pods a second are no real cluster's."""
_PODS: Final = 7
"""On a node, on average."""
_JOB: Final = "report"
_LIFE: Final = {"web": 45.0, "api": 45.0, _JOB: 20.0}
"""Seconds, on average; exactly for the job."""
_SHARE: Final = {"web": 0.66, "api": 0.33, _JOB: 0.01}
_GROWS: Final = 6.0
"""Seconds in which a pod of the job comes to use half of a node's memory."""
_RANGE: Final = 6.0
"""Seconds over which the metric of CPU is a mean."""


class DemoPod(NamedTuple):
    """``node``: the index of its node; ``otherwise``: that of the one that it would be on if no
    node was ever marked. ``cpu``: per cent of a node.
    """

    workload: str
    number: int
    begins: float
    ends: float
    cpu: float
    node: int
    otherwise: int

    def memory(self, now: float) -> float:
        return 50 * min(1.0, (now - self.begins) / _GROWS) if self.workload == _JOB else 2.0


class DemoLoad:
    """``pods``: those that run, by number. They are there from the start.

    What is kept twice is kept for the nodes where marks are avoided, and for those where no node is
    ever marked (`DemoPod.otherwise`).
    """

    def __init__(self, nodes: int, seed: int = 0) -> None:
        self._chance = chance = random.Random(f"dynsched/{seed}")  # noqa: S311 (no cryptography)
        self._lively = min(nodes, _LIVELY)
        cpu = [chance.uniform(5, 12) for _ in range(nodes)]
        self._cpu = cpu, [*cpu]
        self._memory = [chance.uniform(22, 34) for _ in range(nodes)]
        self._placed = [0] * nodes, [0] * nodes
        self._past: deque[tuple[float, list[float], list[float]]] = deque(maxlen=1200)
        self._hot, self._now, self._count = [0.0, 0.0], 0.0, 0
        self.pods: dict[int, DemoPod] = {}
        self._come(_JOB, -_GROWS / 2, ())
        for _ in range(_PODS * self._lively):
            self._come(chance.choice(("web", "web", "api")), 0.0, ())
        self.step(0.0, ())

    @property
    def hot(self) -> tuple[float, float]:
        """The share of node-time over HOT, and what it would be if no node was ever marked."""
        whole = self._lively * max(1.0, self._now)
        by_marks, otherwise = self._hot
        return by_marks / whole, otherwise / whole

    def step(
        self, now: float, marked: Collection[int]
    ) -> tuple[Sequence[DemoPod], Sequence[DemoPod]]:
        """Go on to ``now``: the pods that ended, and the new ones. These avoid ``marked`` nodes."""
        ended = [pod for pod in self.pods.values() if pod.ends <= now]
        for pod in ended:
            self._put(self.pods.pop(pod.number), -1)
        first, passed, self._now = self._count, now - self._now, now
        for workload, share in _SHARE.items():
            number = share * _PODS * self._lively * passed / _LIFE[workload]
            for _ in range(math.floor(number + self._chance.random())):
                self._come(workload, now, marked)
        memory = [*self._memory]
        for pod in self.pods.values():
            memory[pod.node] += pod.memory(now)
        for which, cpu in enumerate(self._cpu):
            self._hot[which] += passed * sum(used > HOT for used in cpu)
        self._past.append(
            (now, [min(100.0, u) for u in self._cpu[0]], [min(100.0, u) for u in memory])
        )
        return ended, [self.pods[number] for number in range(first, self._count)]

    def at(self, time: float) -> Mapping[str, Sequence[float]] | None:
        """What is measured on each node as of ``time``, by rule; None before it began."""
        rows = [row for row in self._past if row[0] <= time]
        if not rows:
            return None
        last, _, memory = rows[-1]
        recent = [cpu for at, cpu, _ in rows if at > last - _RANGE]
        return {"node-cpu": [*map(fmean, zip(*recent, strict=True))], "node-mem-usage": memory}

    def _come(self, workload: str, now: float, marked: Collection[int]) -> None:
        life, cpu = _LIFE[workload], 1.0
        if workload == _JOB:
            marked = ()
        else:
            life, cpu = self._chance.expovariate(1 / life), self._chance.lognormvariate(1.6, 0.8)
        places = self._cooler(0, marked), self._cooler(1, ())
        pod = DemoPod(workload, self._count, now, now + life, min(50.0, cpu), *places)
        self.pods[pod.number] = pod
        self._put(pod, 1)
        self._count += 1

    def _cooler(self, which: int, avoided: Collection[int]) -> int:
        """As kube-scheduler chooses where all request the same: a node with the fewest pods, among
        those that are not avoided, if there are such. At the start, the one with the least load.
        """
        placed, cpu = self._placed[which], self._cpu[which]
        ranks = [
            (node in avoided, placed[node]) if self._past else (False, cpu[node])
            for node in range(self._lively)
        ]
        least = min(ranks)
        return self._chance.choice([node for node, rank in enumerate(ranks) if rank == least])

    def _put(self, pod: DemoPod, sign: int) -> None:
        for which, node in enumerate((pod.node, pod.otherwise)):
            self._placed[which][node] += sign
            self._cpu[which][node] += sign * pod.cpu
