"""Where pods were placed: on hot, on marked or on other nodes. It shows whether marks help."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from dynsched.engine.pod_values import PodChange

STEP: Final = 300.0
"""Seconds over which pods are counted together."""
STEPS: Final = 12
"""Counts that are kept: an hour."""


class Kind(StrEnum):
    """What a node was when a pod was placed on it."""

    HOT = "hot"  # marked or not
    MARKED = "marked"  # not hot (any more): an early mark, or one that is not released yet
    CLEAN = "clean"


@dataclass(slots=True)
class Placed:
    """Pods that were bound within one step, which begins at ``at`` (Unix seconds)."""

    at: float
    hot: int = 0
    marked: int = 0
    clean: int = 0


class Placements:
    """Counts of the last hour."""

    def __init__(self) -> None:
        self._kept: deque[Placed] = deque(maxlen=STEPS)

    def count(
        self, nodes: Iterable[str], hot: Collection[str], marked: Collection[str], at: float
    ) -> Counter[Kind]:
        """Take in pods that were bound to ``nodes`` (a name for each pod) by ``at``, and tell how
        many of each kind these are. A node counts as hot or marked as the scheduler could know it:
        by what was ``hot`` and ``marked`` in the tick before.
        """
        found = Counter(
            Kind.HOT if name in hot else Kind.MARKED if name in marked else Kind.CLEAN
            for name in nodes
        )
        step = self._step(at)
        step.hot += found[Kind.HOT]
        step.marked += found[Kind.MARKED]
        step.clean += found[Kind.CLEAN]
        return found

    def columns(self) -> dict[str, object]:
        """By kind, a count for each of ``times``, the oldest first."""
        return {
            "step": STEP,
            "times": [step.at for step in self._kept],
            "hot": [step.hot for step in self._kept],
            "marked": [step.marked for step in self._kept],
            "clean": [step.clean for step in self._kept],
        }

    def _step(self, at: float) -> Placed:
        begins = at - at % STEP
        # A clock that is set back counts on in the step that is the last.
        while not self._kept or self._kept[-1].at < begins:
            last = self._kept[-1].at if self._kept else begins - STEP
            self._kept.append(Placed(max(last + STEP, begins - (STEPS - 1) * STEP)))
        return self._kept[-1]


def newly_bound(changes: Sequence[PodChange]) -> list[str]:
    """The node of each pod whose binding was observed, of the changes as `RecentPods` tells them. A
    pod that is only assumed to be bound does not count, nor does one whose requests are corrected:
    that is told as one pod less and one more.
    """
    found = []
    corrected = ""
    for pod, sign, _ in changes:
        if sign < 0:
            corrected = "" if pod.assumed else pod.uid
        elif not pod.assumed and pod.uid != corrected:
            found.append(pod.node)
    return found
