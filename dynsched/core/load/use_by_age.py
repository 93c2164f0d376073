"""CPU use of new pods by age: many use several times their mean while they start.

The use between two scrapes is the increase of the pod's CPU time counter. A node's metric shows a
change of this use as late as it shows a new pod: for a while it lacks an increase, or still
includes the use at the start.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Final, NamedTuple

LATE: Final = 10.0
"""Age in seconds of a counter when a query first returns it: the kubelet measures every 10 s, and
new pods are queried as often."""


class CpuCount(NamedTuple):
    """The CPU time that a pod has used at an age, both in seconds."""

    age: float
    cpu: float


FEWEST: Final = 30
"""Minimum number of new pods of known workloads for a start factor."""
LEAST: Final = 1.5
MOST: Final = 5.0
"""Limits of the start factor. Less may be chance, and counts as 1. More may be due to few pods, or
to a tenant who wants everyone else's pods to count more."""
Counts = tuple[CpuCount, ...]
_START: Final = CpuCount(0.0, 0.0)


def counted(
    before: Mapping[str, Counts], means: Mapping[str, float], ages: Mapping[str, float]
) -> dict[str, Counts]:
    """The counts of the pods in ``ages``, extended by one more query result.

    ``means`` are mean uses since the pods' starts, in cores.
    """
    found = {}
    for name, age in ages.items():
        counts, mean = before.get(name, (_START,)), means.get(name)
        if age < counts[-1].age:  # another pod of the same name, as in StatefulSets
            counts = (_START,)
        last, at = counts[-1], age - LATE
        # An unchanged mean is from the same scrape.
        is_same = last.age > 0 and mean is not None and mean * last.age == last.cpu
        if mean is not None and at > last.age and not is_same:
            counts = (*counts, CpuCount(at, mean * at))
        if len(counts) > 1:
            found[name] = counts
    return found


def uses_of(counts: Counts) -> list[float]:
    """Uses between consecutive scrapes, in cores."""
    return [max(0.0, (b.cpu - a.cpu) / (b.age - a.age)) for a, b in pairwise(counts)]


def changes_unseen(counts: Counts, age: float, unseen: Callable[[float], float]) -> float:
    """What the changes of a pod's use add to the unseen part of its last use, in cores; negative if
    they subtract.
    """
    changes = zip(pairwise(uses_of(counts)), counts[1:], strict=False)
    share = unseen(age)
    return sum((new - old) * (unseen(age - at.age) - share) for (old, new), at in changes)


def start_factor(
    counts: Mapping[str, Counts], workloads: Mapping[str, str], of_workload: Mapping[str, float]
) -> float:
    """Factor by which new pods use more until their first scrape than the pods of their workloads.

    It is one factor for all pods; 1 if it is unknown or small. ``workloads`` is keyed by pod.
    """
    uses = [
        (uses_of(known)[0], of_workload[workload])
        for name, known in counts.items()
        if (workload := workloads[name]) in of_workload
    ]
    first, mean = sum(use for use, _ in uses), sum(mean for _, mean in uses)
    if len(uses) < FEWEST or first < LEAST * mean or not mean:
        return 1.0
    return min(first / mean, MOST)
