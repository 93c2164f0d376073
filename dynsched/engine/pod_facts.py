"""What the page shows of pods, beside the readings: which were just bound, and which use more than
they request.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from operator import attrgetter
from typing import Final, NamedTuple

import numpy as np

from dynsched.engine.columns import Bools, Floats, Ints
from dynsched.engine.pod_values import RecentPod
from dynsched.engine.snapshot import Snapshot
from dynsched.engine.transitions import Limits, Setting

MOST_BOUND: Final = 20
"""Pods of one node that are listed, the latest ones."""


class JustBound(NamedTuple):
    """A pod whose binding was observed a moment ago, ``age`` seconds. ``pod``: ``namespace/name``;
    where only its workload is known, that. ``cpu`` in cores and ``memory`` in bytes: what it
    requests, as the scheduler counts it.
    """

    pod: str
    cpu: float
    memory: float
    age: float


class BoundOnNode(NamedTuple):
    """The latest ``MOST_BOUND`` of ``total`` pods, the latest first."""

    total: int
    pods: list[JustBound]


class AboveRequest(NamedTuple):
    """A pod (``namespace/name``) and how much more it uses of ``resource`` than it requests: cores
    of ``cpu``, bytes of ``memory``.
    """

    pod: str
    resource: str
    above: float


def just_bound(pods: Iterable[RecentPod], node: str) -> BoundOnNode:
    """Those that were bound to ``node`` and have not ended. Ones that are only assumed to be do not
    count.
    """
    found = [
        JustBound(pod.name or pod.workload, pod.cpu, pod.memory, age)
        for pod, age, ended in pods
        if pod.node == node and age is not None and ended is None and not pod.assumed
    ]
    return BoundOnNode(len(found), heapq.nsmallest(MOST_BOUND, found, key=attrgetter("age")))


def hottest(snapshot: Snapshot, most: int) -> list[str]:
    """The names of the nodes furthest beyond a threshold, the worst first; hot ones come before
    all others.
    """
    views = snapshot.nodes
    alerts, verdicts = views.evaluation.alerts, views.evaluation.verdicts
    by_name = snapshot.rule_set.by_name
    rows = [row for row, name in enumerate(alerts.rules) if by_name[name].early_of is None]
    limits = Limits([Setting.of(by_name[alerts.rules[row]], snapshot.rule_set) for row in rows])
    beyond = limits.excess(alerts.good_values(rows))
    worst = np.where(np.isnan(beyond), -np.inf, beyond).max(axis=0, initial=-np.inf)
    hot = verdicts.hot
    # Names are compared only where they can matter: of 65,000 nodes that takes 20 ms.
    leading = np.concatenate((_largest(most, worst, hot), _largest(most, worst, ~hot)))
    names = [alerts.roster.names[place] for place in leading.tolist()]
    rows_of = zip(hot[leading].tolist(), worst[leading].tolist(), names, strict=True)
    return [name for *_, name in heapq.nlargest(most, rows_of)]


def _largest(count: int, values: Floats, which: Bools) -> Ints:
    """The places of the largest values where ``which`` is True, with all that equal the last."""
    found = np.flatnonzero(which)
    if len(found) > count > 0:
        least = np.partition(values[found], -count)[-count]
        found = found[values[found] >= least]
    return found
