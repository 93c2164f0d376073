"""Pods that come and go, and the load that they make: the world of `dynsched demo`. Pure.

Times are seconds since it began, twenty times as fast as in a real cluster. All pods request the
same, and each uses another amount of CPU, so a scheduler that goes by requests overloads some
nodes. A pod that ends is replaced, as by its ReplicaSet. Two clusters run the same pods, and begin
alike.
"""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict, deque
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Final, NamedTuple

HOT: Final = 80.0
"""Per cent of CPU."""
WORKLOADS: Final = ("web", "api", "worker")
LIFE: Final = 30.0
"""Seconds that a pod lives, on average."""
BLOCK: Final = 60.0
"""Seconds that count as one measurement: so long that one depends little on the one before."""
_FEWEST: Final = 3
"""Blocks before anything is said of chance."""
_LIVELY: Final = 40
"""Nodes to which pods come, at most: hundreds of new pods a second are no real cluster's."""
_PODS: Final = 12
"""On a node, on average."""
_RANGE: Final = 6.0
"""Seconds over which the metric of CPU is a mean."""


class DemoPod(NamedTuple):
    """``cpu``: per cent of a node."""

    workload: str
    number: int
    ends: float
    cpu: float


class SimulatedCluster:
    """The pods of one cluster by node, and how long its nodes were over HOT."""

    def __init__(self, cpu: Sequence[float], seed: int) -> None:
        self.cpu = [*cpu]
        self.hot = defaultdict[int, float](float)
        """Node-seconds over HOT, by block."""
        self.placed_on_hot = 0
        """Pods whose node was over HOT when they were bound."""
        self._chance = random.Random(seed)  # noqa: S311 (no cryptography)
        self._pods = [Counter[str]() for _ in cpu[:_LIVELY]]
        self._nodes: dict[int, int] = {}

    def place(self, pod: DemoPod, wanted: Sequence[float]) -> int:
        """Bind it to the node with the best score, one of them by chance. ``wanted``: by node, the
        sum of the weights of the pod's preferences that the node meets.
        """
        scores = _scores(self._pods, pod.workload, wanted)
        best = max(scores)
        node = self._chance.choice([at for at, score in enumerate(scores) if score == best])
        self.placed_on_hot += self.cpu[node] > HOT
        self._nodes[pod.number] = node
        self._count(pod, node, 1)
        return node

    def end(self, pod: DemoPod) -> None:
        self._count(pod, self._nodes.pop(pod.number), -1)

    def go_on(self, now: float, seconds: float) -> None:
        hot = sum(cpu > HOT for cpu in self.cpu[: len(self._pods)])
        self.hot[int(now / BLOCK)] += seconds * hot

    def _count(self, pod: DemoPod, node: int, sign: int) -> None:
        self._pods[node][pod.workload] += sign
        self.cpu[node] += sign * pod.cpu


def _scores(
    pods: Sequence[Counter[str]], workload: str, wanted: Sequence[float]
) -> Sequence[float]:
    """As kube-scheduler's default profile has them where all pods request the same: a pod of 300m
    and 512Mi takes 3 points of 100, and the spread of a workload over nodes and node affinity
    count twice.
    """
    skews = [round(each[workload] * math.log(len(pods) + 2) + 2) for each in pods]
    both, most = min(skews) + max(skews), max(skews)
    top = max(wanted) or 1.0
    return [
        -3 * pods[node].total()
        + 2 * math.floor(100 * (both - skews[node]) / most)
        + 2 * math.floor(100 * wanted[node] / top)
        for node in range(len(pods))
    ]


class DemoLoad:
    """``ordered``: the cluster where pods have preferences; ``alone``: its twin, where none has.
    ``pods``: those that run, by number.
    """

    def __init__(self, nodes: int, seed: int = 0) -> None:
        self._chance = chance = random.Random(f"dynsched/{seed}")  # noqa: S311 (no cryptography)
        cpu = [chance.uniform(5, 12) for _ in range(nodes)]
        self._memory = [chance.uniform(30, 50) for _ in range(nodes)]
        self.ordered, self.alone = SimulatedCluster(cpu, seed), SimulatedCluster(cpu, seed)
        self._lively = min(nodes, _LIVELY)
        self._past: deque[tuple[float, list[float]]] = deque(maxlen=1200)
        self._count, self.now = 0, 0.0
        self.pods: dict[int, DemoPod] = {}

    def go_on(self, now: float) -> tuple[Sequence[DemoPod], Sequence[DemoPod]]:
        """Go on to ``now``: the pods that ended, and the new ones, which are to be placed. The
        first time these are all with which it begins.
        """
        if self._count:
            self._past.append((self.now, [min(100.0, used) for used in self.ordered.cpu]))
        for cluster in (self.ordered, self.alone):
            cluster.go_on(self.now, now - self.now)
        self.now = now
        if not self._count:
            workloads = WORKLOADS * (_PODS * self._lively // len(WORKLOADS))
            return [], [self._new(workload) for workload in workloads]
        ended = [pod for pod in self.pods.values() if pod.ends <= now]
        for pod in ended:
            del self.pods[pod.number]
            self.ordered.end(pod)
            self.alone.end(pod)
        return ended, [self._new(pod.workload) for pod in ended]

    def place(self, pod: DemoPod, wanted: Sequence[float]) -> int:
        """Place a new pod in both clusters: its node in the ordered one."""
        self.pods[pod.number] = pod
        self.alone.place(pod, [0.0] * self._lively)
        return self.ordered.place(pod, wanted)

    def at(self, time: float) -> Mapping[str, Sequence[float]] | None:
        """What is measured on each node as of ``time``, by rule; None before it began."""
        rows = [row for row in self._past if row[0] <= time]
        if not rows:
            return None
        recent = [cpu for at, cpu in rows if at > rows[-1][0] - _RANGE]
        cpu = [*map(fmean, zip(*recent, strict=True))]
        return {"node-cpu": cpu, "node-mem-usage": self._memory}

    def hot(self, cluster: SimulatedCluster) -> float:
        """The share of node-time over HOT."""
        return sum(cluster.hot.values()) / (self._lively * max(1.0, self.now))

    @property
    def placed(self) -> int:
        """How many pods came after the first, of which no node was hot."""
        return self._count - _PODS * self._lively

    def saved(self) -> tuple[float, float] | None:
        """By how much the order lowered `hot`: between these two, as the blocks of time differ
        (Student's t for 95 %). None while there are too few. Blocks do depend on each other a
        little: of such intervals 90 % have the mean of many runs.
        """
        number = int(self.now / BLOCK)
        if number < _FEWEST:
            return None
        whole, free = self._lively * BLOCK, number - 1
        saved = [(self.alone.hot[at] - self.ordered.hot[at]) / whole for at in range(number)]
        student = 1.96 + 2.37 / free + 2.82 / free**2 + 2.56 / free**3
        error = student * stdev(saved) / math.sqrt(number)
        return fmean(saved) - error, fmean(saved) + error

    def _new(self, workload: str) -> DemoPod:
        self._count += 1
        cpu = min(25.0, self._chance.lognormvariate(1.2, 0.8))
        ends = self.now + self._chance.expovariate(1 / LIFE)
        return DemoPod(workload, self._count, ends, cpu)
