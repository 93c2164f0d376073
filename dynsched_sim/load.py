"""Pods that start and end, and the load they cause: the simulated world of `dynsched demo`. Pure.

Times are seconds since the start; time runs twenty times as fast as in a real cluster. All pods
have the same request but use different amounts of CPU, so a scheduler that looks at requests only
overloads some nodes. A pod that ends is replaced, as its ReplicaSet would. Two clusters run the
same pods and start in the same state.
"""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict, deque
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Final, NamedTuple

HOT: Final = 80.0
"""Percent of a node's CPU."""
WORKLOADS: Final = ("web", "api", "worker")
LIFE: Final = 30.0
"""Mean lifetime of a pod, in seconds."""
BLOCK: Final = 60.0
"""Seconds that count as one measurement; long enough that a block depends little on the last."""
_FEWEST: Final = 3
"""Minimum number of blocks before a confidence interval is given."""
_LIVELY: Final = 40
"""Maximum number of nodes that get pods. With more, there would be hundreds of new pods a second,
which no real cluster has.
"""
_PODS: Final = 12
"""Mean number of pods on a node."""
_POD_MEMORY: Final = 1.5
"""Percent of a node's memory that each pod uses."""
_RANGE: Final = 6.0
"""Seconds over which the CPU metric is averaged."""


class DemoPod(NamedTuple):
    """``cpu``: percent of a node's CPU; ``ends``: the second at which the pod ends."""

    workload: str
    number: int
    ends: float
    cpu: float


class SimulatedCluster:
    """The pods of one cluster per node, and the time its nodes spent above HOT."""

    def __init__(self, cpu: Sequence[float], seed: int) -> None:
        self.cpu = [*cpu]
        self.hot = defaultdict[int, float](float)
        """Node-seconds above HOT, per block."""
        self.placed_on_hot = 0
        """Number of pods, after the initial ones, whose node was above HOT when they were bound."""
        self._chance = random.Random(seed)  # noqa: S311 (no cryptography)
        self._pods = [Counter[str]() for _ in cpu[:_LIVELY]]
        self._nodes: dict[int, int] = {}

    def place(self, pod: DemoPod, wanted: Sequence[float]) -> int:
        """Bind the pod to the node with the highest score, ties at random; returns the node.

        ``wanted``: per node, the sum of the weights of the pod's preferences that the node matches.
        """
        scores = _scores(self._pods, pod.workload, wanted)
        best = max(scores)
        node = self._chance.choice([at for at, score in enumerate(scores) if score == best])
        is_initial = pod.number <= _PODS * len(self._pods)
        self.placed_on_hot += self.cpu[node] > HOT and not is_initial
        self._nodes[pod.number] = node
        self._count(pod, node, 1)
        return node

    def pod_counts(self, nodes: int) -> list[int]:
        """Number of pods on each of the first ``nodes`` nodes."""
        return [*(each.total() for each in self._pods), *[0] * nodes][:nodes]

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
    """Scores of kube-scheduler's default profile if all pods have the same requests.

    A pod of 300m and 512Mi takes 3 points of 100. Spreading a workload over nodes and node
    affinity both have weight 2.
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
    """Two clusters that run the same pods: in ``ordered`` pods have preferences, in ``alone`` none.

    ``pods``: the running pods, by number.
    """

    def __init__(self, nodes: int, seed: int = 0) -> None:
        self._chance = chance = random.Random(f"dynsched/{seed}")  # noqa: S311 (no cryptography)
        cpu = [chance.uniform(5, 12) for _ in range(nodes)]
        self._memory = [chance.uniform(15, 35) for _ in range(nodes)]
        self.ordered, self.alone = SimulatedCluster(cpu, seed), SimulatedCluster(cpu, seed)
        self._lively = min(nodes, _LIVELY)
        self._past: deque[tuple[float, list[float], list[float]]] = deque(maxlen=1200)
        self._count, self.now = 0, 0.0
        self.pods: dict[int, DemoPod] = {}

    def go_on(self, now: float) -> tuple[Sequence[DemoPod], Sequence[DemoPod]]:
        """Advance to ``now``; returns the pods that ended, and the new ones that must be placed.

        The first call returns all initial pods as new.
        """
        if self._count:
            cpu = [min(100.0, used) for used in self.ordered.cpu]
            counts = self.ordered.pod_counts(len(cpu))
            memory = [
                base + _POD_MEMORY * count for base, count in zip(self._memory, counts, strict=True)
            ]
            self._past.append((self.now, cpu, memory))
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
        """Place a new pod in both clusters; returns its node in ``ordered``."""
        self.pods[pod.number] = pod
        self.alone.place(pod, [0.0] * self._lively)
        return self.ordered.place(pod, wanted)

    def at(self, time: float) -> Mapping[str, Sequence[float]] | None:
        """Measured values per node at ``time``, by rule name; None before the first measurement."""
        rows = [row for row in self._past if row[0] <= time]
        if not rows:
            return None
        recent = [cpu for at, cpu, _ in rows if at > rows[-1][0] - _RANGE]
        cpu = [*map(fmean, zip(*recent, strict=True))]
        return {"node-cpu": cpu, "node-mem-usage": rows[-1][2]}

    @property
    def measured(self) -> float:
        """Seconds of the blocks that are complete, to which `hot` and `saved` refer."""
        return self.now // BLOCK * BLOCK

    def hot(self, cluster: SimulatedCluster) -> float:
        """Share of node-time above HOT, from 0 to 1."""
        blocks = range(int(self.now / BLOCK))
        return sum(cluster.hot[at] for at in blocks) / (self._lively * max(1.0, self.measured))

    @property
    def placed(self) -> int:
        """Number of pods placed after the initial ones, as in `SimulatedCluster.placed_on_hot`."""
        return self._count - _PODS * self._lively

    def saved(self) -> tuple[float, float] | None:
        """Confidence interval of how much the order lowered `hot`; None with too few blocks.

        Student's t for 95 %, from the differences between blocks of time. Blocks do depend on each
        other a little, so about 90 % of such intervals contain the mean of many runs.
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
