"""Pods that were bound a moment ago, and that no load metric shows yet.

A metric is an average over its window: a node that took ten pods five seconds ago still looks
cool. Until the window has passed they count by what they request.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from dynsched.core.model import Node

WINDOW: Final = 60.0
"""Seconds for which a bound pod counts: the range of most load expressions."""

MAX_PODS: Final = 50_000
"""Pods that are remembered at most; beyond it the oldest are forgotten first."""

MIN_CPU: Final = 0.1
MIN_MEMORY: Final = 200 * 2.0**20
"""What a container without a request counts (cores, bytes); the scheduler's own defaults."""

POINTS_EACH: Final = 4.0
POINTS_FURTHER: Final = 2.0
FIRST: Final = 10
"""What a pod counts, however little it requests: 4 points each of the first ten, 2 each further.
Without this a hundred pods of a large node's 0.1 % would all go to the one coolest node. It has no
limit: with one, all pods after it would. It flattens: small pods by the dozen should not make a
node at 20 % look like one that is nearly hot.
"""


@dataclass(frozen=True, slots=True)
class BoundPod:
    """One pod on its node; ``cpu`` in cores, ``memory`` in bytes. ``assumed``: the scheduler
    asked about the pod and this node has the best score, but no binding was observed yet.
    """

    uid: str
    node: str
    cpu: float = MIN_CPU
    memory: float = MIN_MEMORY
    assumed: bool = False


class Bound(NamedTuple):
    """All pods that were bound to one node within the window."""

    pods: int
    cpu: float
    memory: float


NONE: Final = Bound(0, 0.0, 0.0)


class BoundPods:
    """The pods of the last ``window`` seconds, each counted once by its uid.

    Times are seconds of any one clock that does not go back. ``most`` bounds the memory.
    """

    def __init__(self, window: float = WINDOW, *, most: int = MAX_PODS) -> None:
        self.window = window
        self._most = most
        self._pods: dict[str, tuple[BoundPod, float]] = {}
        self._order: deque[tuple[float, str]] = deque()
        self._sums: dict[str, Bound] = {}
        self._readers: list[BoundReader] = []
        self._nodes: Mapping[str, Node] = {}

    def __len__(self) -> int:
        return len(self._pods)

    def add(self, pod: BoundPod, now: float) -> None:
        """Count ``pod``. One that is known keeps its time, and may correct its requests; the time
        of one that was assumed begins with its binding. What is told is never undone by a guess.
        """
        self._expire(now)
        known, ends = self._pods.get(pod.uid, (None, 0.0))
        if known == pod or (known is not None and pod.assumed and not known.assumed):
            return
        if known is not None:
            self._count(known, -1)
        if known is None or (known.assumed and not pod.assumed):
            ends = now + self.window
            self._order.append((ends, pod.uid))
        self._pods[pod.uid] = (pod, ends)
        self._count(pod, 1)
        while len(self._order) > self._most:
            self._end(*self._order.popleft())

    def remove(self, uid: str) -> None:
        """Count this pod no longer: it was deleted."""
        found = self._pods.pop(uid, None)
        if found is not None:
            self._count(found[0], -1)

    def sums(self, now: float) -> Mapping[str, Bound]:
        """Every node to which pods were bound within the window."""
        self._expire(now)
        return self._sums

    def reader(self) -> BoundReader:
        """One who follows the changes from now on. Nothing is kept for those who do not."""
        reader = BoundReader(self)
        self._readers.append(reader)
        return reader

    def follow(self, nodes: Mapping[str, Node]) -> None:
        """Count no pod on a node that was deleted or replaced since this was last called: another
        machine under the same name holds none of them. ``nodes`` by name, never changed later.
        """
        before, self._nodes = self._nodes, nodes
        if before is nodes:
            return
        gone = {name for name in self._sums if _is_gone(before.get(name), nodes.get(name))}
        if gone:
            for uid in [uid for uid, (pod, _) in self._pods.items() if pod.node in gone]:
                self.remove(uid)

    def _expire(self, now: float) -> None:
        order = self._order
        while order and order[0][0] <= now:
            self._end(*order.popleft())

    def _end(self, ends: float, uid: str) -> None:
        found = self._pods.get(uid)
        if found is not None and found[1] == ends:  # else it was removed, and perhaps came again
            self.remove(uid)

    def _count(self, pod: BoundPod, sign: int) -> None:
        pods, cpu, memory = self._sums.get(pod.node, NONE)
        for reader in self._readers:
            reader.changed.add(pod.node)
        if pods + sign <= 0:
            self._sums.pop(pod.node, None)  # exactly nothing, whatever the floats have gathered
            return
        self._sums[pod.node] = Bound(pods + sign, cpu + sign * pod.cpu, memory + sign * pod.memory)


class BoundReader:
    """One reader's place in the changes of ``bound``; made by `BoundPods.reader`.

    ``changed`` holds the nodes whose sum changed since the last call of `sums`. The reader must
    call `sums` regularly (in each tick); otherwise ``changed`` grows with every node that existed.
    """

    def __init__(self, bound: BoundPods) -> None:
        self._bound = bound
        self.changed: set[str] = set()

    def sums(self, now: float) -> Mapping[str, Bound]:
        """As `BoundPods.sums`; what changed until now is read with it."""
        sums = self._bound.sums(now)
        self.changed.clear()
        return sums

    def changes(self, now: float) -> Mapping[str, Bound]:
        """The nodes whose sum changed since this reader last asked."""
        sums = self._bound.sums(now)
        if not self.changed:
            return {}
        changed = {node: sums.get(node, NONE) for node in self.changed}
        self.changed.clear()
        return changed


def _is_gone(before: Node | None, after: Node | None) -> bool:
    """Whether this node was there, and is not any more. One that was never seen may be on its way:
    the watch of pods can be ahead of the watch of nodes.
    """
    return before is not None and (after is None or after.uid != before.uid)


def points(
    bound: Bound, allocatable: Mapping[str, float], resource: Literal["cpu", "memory"] | None
) -> float:
    """What ``bound`` adds to a node's load, in points (100: all that is allocatable).

    By the resource that the rule measures; where that is not known, by the one of which more is
    requested.
    """
    if not bound.pods:
        return 0.0
    shares = [
        100 * requested / allocatable[name]
        for name, requested in (("cpu", bound.cpu), ("memory", bound.memory))
        if resource in (None, name) and allocatable.get(name, 0) > 0
    ]
    first = min(bound.pods, FIRST)
    by_number = POINTS_EACH * first + POINTS_FURTHER * (bound.pods - first)
    return max([by_number, *shares])
