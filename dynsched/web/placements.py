"""Where pods were placed: on hot, on marked or on other nodes."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from dynsched.core.evaluate import Evaluation
from dynsched.core.load.pods import PodChange

STEP: Final = 300.0
"""Seconds over which pods are counted together."""
STEPS: Final = 12
"""Counts that are kept: an hour."""


class PlacedOn(StrEnum):
    """What a node was when a pod was placed on it."""

    HOT = "hot"  # marked or not
    MARKED = "marked"  # not hot any more, and not released yet
    CLEAN = "clean"


@dataclass(slots=True)
class _Step:
    """``begins``: Unix seconds. ``by_chance``: as in `Placements.columns`."""

    begins: float
    pods: Counter[PlacedOn] = field(default_factory=Counter)
    by_chance: float = 0.0


class Placements:
    """How pods were placed in the last hour, in steps of STEP seconds."""

    def __init__(self) -> None:
        self._kept: deque[_Step] = deque(maxlen=STEPS)

    def count(self, nodes: Iterable[str], before: Evaluation, at: float) -> Counter[PlacedOn]:
        """Count pods that were bound to ``nodes`` (a name for each pod) by ``at``, and return how
        many of each kind these are. A node counts as hot or marked as the scheduler could know it:
        according to the evaluation ``before``.
        """
        hot, marked = before.hot, before.table.marked
        found = Counter(
            PlacedOn.HOT if name in hot else PlacedOn.MARKED if name in marked else PlacedOn.CLEAN
            for name in nodes
        )
        step = self._step(at)
        step.pods.update(found)
        step.by_chance += found.total() * len(hot) / max(1, len(before.table.entries))
        return found

    def columns(self) -> dict[str, Any]:
        """By kind, a count for each of ``times``, the oldest first. ``by_chance``: how many would
        be on hot nodes if pods were placed without regard to load.
        """
        return {
            "step": STEP,
            "times": [step.begins for step in self._kept],
            **{kind.value: [step.pods[kind] for step in self._kept] for kind in PlacedOn},
            "by_chance": round(sum(step.by_chance for step in self._kept), 2),
        }

    def _step(self, at: float) -> _Step:
        begins = at - at % STEP
        # After the clock was set back, the last step goes on.
        while not self._kept or self._kept[-1].begins < begins:
            last = self._kept[-1].begins if self._kept else begins - STEP
            self._kept.append(_Step(max(last + STEP, begins - (STEPS - 1) * STEP)))
        return self._kept[-1]


def newly_bound(changes: Sequence[PodChange]) -> list[str]:
    """The node of each pod whose binding was observed, of the changes of `RecentPods`. A pod that
    is only assumed to be bound does not count. Nor does one whose requests are corrected, which is
    reported as one pod less and one more.
    """
    found, corrected = [], ""
    for pod, sign, _ in changes:
        if sign < 0:
            corrected = "" if pod.assumed else pod.uid
        elif not pod.assumed and pod.uid != corrected:
            found.append(pod.node)
    return found
