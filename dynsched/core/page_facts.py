"""What the page shows of pods, beside the readings: which were just bound, and which use more than
they request.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import Final, NamedTuple

from dynsched.core.model import NodeView, Quality, Snapshot
from dynsched.core.pods import RecentPod
from dynsched.core.rules import Rule

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
    rules = snapshot.rule_set.by_name

    def key(view: NodeView) -> tuple[bool, float, str]:
        return view.pressured, _excess(view, rules), view.name

    return [view.name for view in heapq.nlargest(most, snapshot.nodes.values(), key=key)]


def _excess(view: NodeView, rules: Mapping[str, Rule]) -> float:
    """How far the worst value is beyond its threshold, as a share of it."""
    return max(
        (
            rule.excess(alert.value)
            for alert in view.alerts
            if alert.value is not None
            and alert.quality is Quality.OK
            and (rule := rules[alert.rule]).early_of is None
        ),
        default=-math.inf,
    )
