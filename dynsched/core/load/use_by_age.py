"""What a new pod uses by its age: many use several times their mean while they start.

Between two scrapes a pod used what its counter of CPU time rose by. Each change of its use is
unseen in a node's metric as the pod itself was: for a while the metric lacks what the pod uses
more, or still has what it used at its start.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Final, NamedTuple

LATE: Final = 10.0
"""How many seconds old a counter is when its answer comes first: the kubelet measures every 10 s,
and new pods are asked for as often."""


class CpuCount(NamedTuple):
    """The CPU time of a pod at an age, both in seconds."""

    age: float
    cpu: float


FEWEST: Final = 30
"""New pods of known workloads, from which on it is worked out how they start."""
LEAST: Final = 1.5
MOST: Final = 5.0
"""Less may be chance. More may be few pods, or a tenant who wants that all others' count more."""
Counts = tuple[CpuCount, ...]
_START: Final = CpuCount(0.0, 0.0)


def counted(
    before: Mapping[str, Counts], means: Mapping[str, float], ages: Mapping[str, float]
) -> dict[str, Counts]:
    """What is known of the pods of ``ages`` after one more answer, the means since their starts."""
    found = {}
    for name, age in ages.items():
        counts, mean = before.get(name, (_START,)), means.get(name)
        if age < counts[-1].age:  # another pod of the name, as StatefulSets have
            counts = (_START,)
        last, at = counts[-1], age - LATE
        # The same mean once more is that of the same scrape.
        is_same = last.age > 0 and mean is not None and mean * last.age == last.cpu
        if mean is not None and at > last.age and not is_same:
            counts = (*counts, CpuCount(at, mean * at))
        if len(counts) > 1:
            found[name] = counts
    return found


def uses_of(counts: Counts) -> list[float]:
    """In cores, between each two scrapes."""
    return [max(0.0, (b.cpu - a.cpu) / (b.age - a.age)) for a, b in pairwise(counts)]


def changes_unseen(counts: Counts, age: float, unseen: Callable[[float], float]) -> float:
    """In cores: what a pod of this age adds (negative: subtracts) by the changes of its use, in
    addition to the unseen part of its last use.
    """
    changes = zip(pairwise(uses_of(counts)), counts[1:], strict=False)
    share = unseen(age)
    return sum((new - old) * (unseen(age - at.age) - share) for (old, new), at in changes)


def start_factor(
    counts: Mapping[str, Counts], workloads: Mapping[str, str], of_workload: Mapping[str, float]
) -> float:
    """By how much the use of new pods until their first scrape exceeds that of their workloads'
    pods, over all of them; 1 where that is not known or is not much. ``workloads``: by pod.
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
