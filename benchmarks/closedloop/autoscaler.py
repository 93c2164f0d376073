"""Deployments whose replicas follow a wave: which of them the ReplicaSet controller removes, and
the deletion costs by which dynsched has a say in it (docs/scale-down.md).
"""

from __future__ import annotations

import math
import random
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from closedloop.descheduler import Running
from closedloop.workload import MIB, Pod
from dynsched.controller.scaling_down import LINGER
from dynsched.engine.placing.scale_down import CostedPod, arrivals, due_on
from dynsched.engine.snapshot import Snapshot

EVERY: Final = 15
"""Seconds between two looks of a HorizontalPodAutoscaler."""
_STABLE: Final = 300
"""Seconds: the highest number of replicas that was wanted in them is kept."""
_NAMESPACE: Final = "autoscaled"


@dataclass(frozen=True, slots=True)
class Autoscaled:
    """So many ``deployments`` of ``replicas`` each, a number that swings by the share ``swing``
    over ``length`` seconds. ``own``: each has a phase of its own, so that some grow while others
    shrink; else all have one. All replicas of one use the same: ``uses`` cores on average of all,
    with the spread ``sigma`` of the logarithm.
    """

    deployments: int = 10
    replicas: int = 24
    swing: float = 0.5
    length: float = 1800.0
    own: bool = False
    uses: float = 0.5
    sigma: float = 0.5

    def wanted(self, now: int) -> Iterator[tuple[str, int]]:
        """The owners, and how many replicas each is to have."""
        moments = range(now - _STABLE, now + 1, EVERY)
        for number in range(self.deployments):
            phase = number / self.deployments if self.own else 0.0
            waves = (math.sin(2 * math.pi * (at / self.length + phase)) for at in moments)
            yield f"web-{number}", round(self.replicas * (1 + self.swing * max(waves)))

    def replica(self, owner: str, index: int, arrives: float, seed: int) -> Pod:
        """It lives until it is removed."""
        level = math.log(self.uses) - self.sigma**2 / 2
        uses = random.Random(f"{owner} {seed}").lognormvariate(level, self.sigma)
        uid = f"{_NAMESPACE}/{owner}-{index}"
        return Pod(uid, owner, arrives, math.inf, cpu=0.2, memory=256 * MIB, uses=uses)


def first_removed(
    replicas: Iterable[Running], costs: Mapping[str, int], now: float
) -> list[Running]:
    """As the ReplicaSet controller sorts those that are ready (``ActivePodsWithRanks`` in
    ``pkg/controller/controller_utils.go`` of Kubernetes 1.36): by cost, then by how many of them
    are on its node, then the younger ones by the logarithm of their ages, then by chance.
    """
    found = list(replicas)
    beside = Counter(each.node for each in found)
    return sorted(
        found,
        key=lambda each: (
            costs.get(each.pod.uid, 0),
            -beside[each.node],
            int(math.log2(1 + now - each.since)),
            zlib.crc32(each.pod.uid.encode()),
        ),
    )


class DeletionCosts(dict[str, int]):
    """By uid. What `dynsched.controller.scaling_down` writes, in force at once."""

    def __init__(self) -> None:
        super().__init__()
        self._hot: dict[str, float] = {}

    def follow(self, snapshot: Snapshot, nodes: Mapping[str, str], now: float) -> None:
        """``nodes``: where each pod runs, by its uid."""
        new = arrivals(snapshot)
        self._hot |= dict.fromkeys(new, now + LINGER)
        self._hot = {node: end for node, end in self._hot.items() if end > now}
        for uid in [uid for uid in self if nodes.get(uid) not in self._hot]:
            del self[uid]
        on_hot: dict[str, list[CostedPod]] = defaultdict(list)
        for uid, node in nodes.items():
            namespace, _, name = uid.partition("/")
            if node in new and namespace == _NAMESPACE and uid not in self:
                on_hot[node].append(CostedPod(namespace, name, "1"))
        for node, pods in on_hot.items():
            self.update((str(pod), cost) for pod, cost in due_on(snapshot, node, pods))
