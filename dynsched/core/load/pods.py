"""Values about pods: what was bound or ended a moment ago, and what a pod is expected to use.

Units: ``cpu`` in cores, ``memory`` in bytes, load in percent: 0 is idle, 100 is full.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Final, NamedTuple

from dynsched.core.percent import MAX_LOAD

Allocatable = Mapping[str, float]
"""By resource: what a node can give to pods."""

MAX_POD_LOAD: Final = 100.0
"""What one pod may count: it cannot use more than its node has."""
UNKNOWN_LOAD: Final = 4.0
"""What a new pod of unknown use counts at least. Without it a hundred pods that request 0.1 % each
would all go to the one coolest node."""
MARGIN: Final = 0.5
"""For placing pods: the share of its expected use that a just-bound pod counts in addition, until
it is measured itself. Some pods use much more than the mean, and a node that got too many costs
more than one that got too few. Marks do not use it: a mark says what is expected."""
HEAVIEST: Final = 4.0
"""Outlier cap: a node's weight, or a pod's request, is at most this multiple of the median."""
ENOUGH: Final = 20
"""So many pods are measured at least where requests are judged."""
MIN_CPU: Final = 0.1
MIN_MEMORY: Final = 200 * 2.0**20
"""What a container without a request counts (cores, bytes); the scheduler's own defaults."""


@dataclass(frozen=True, slots=True)
class BoundPod:
    """A pod that has a node; ``cpu`` in cores and ``memory`` in bytes, as it requests them."""

    uid: str
    node: str
    cpu: float = MIN_CPU
    memory: float = MIN_MEMORY
    workload: str = ""
    """``namespace/name`` of what made it (`workload_of`); empty when that is not known."""
    name: str = ""
    """``namespace/name`` of the pod itself; empty when that is not known."""
    assumed: bool = False
    """The node had the best score when the scheduler asked; no binding was observed yet."""


class PodRequestTotals(NamedTuple):
    """Totals over the pods of one node that have not ended, as kube-scheduler counts them: also
    those that were never started.
    """

    pods: int = 0
    cpu: float = 0.0
    memory: float = 0.0


def median_request(requested: Iterable[PodRequestTotals], resource: str) -> float:
    """What a pod requests on the median node; 0 where nothing is known. A node with many pods does
    not change it.
    """
    is_cpu = resource == "cpu"
    return median(
        [(each.cpu if is_cpu else each.memory) / each.pods for each in requested] or [0.0]
    )


class RecentPod(NamedTuple):
    """A pod, and how many seconds ago it was bound (or started, once it is) and it ended; None: not
    within the window.
    """

    pod: BoundPod
    bound: float | None
    ended: float | None


class PodChange(NamedTuple):
    """One pod more (``sign`` 1) or less (-1) on its node. ``is_recent``: for one less, whether its
    binding is remembered, so that the two cancel out.
    """

    pod: BoundPod
    sign: int
    is_recent: bool = True


@dataclass(frozen=True, slots=True)
class PodUse:
    """What a pod is expected to use of what one rule measures."""

    resource: str | None = None
    """``cpu`` or ``memory``; None when the rule does not say what it measures."""
    mean: float | None = None
    """What a running pod uses on average: cores or bytes, or percent of load where ``resource`` is
    None; None when it is not known how many pods run."""
    of_workload: Mapping[str, float] = field(default_factory=dict)
    """By workload, in cores or bytes."""
    of_pod: Mapping[str, float] = field(default_factory=dict)
    """By ``namespace/name``, likewise: of pods that were measured themselves, over minutes."""
    of_ended: Mapping[str, float] = field(default_factory=dict)
    """Likewise: what pods that ended used at last."""
    start: float = 1.0
    """By how much the use of a new pod exceeds its expected use at first (`start_factor`)."""
    request: float = 0.0
    """What a pod requests on the median node, in cores or bytes; 0 where that is not known."""

    def _share(self, pod: BoundPod) -> float:
        """The share of the mean that an unknown pod counts. It is bounded by the pod's request,
        which a quota bounds.
        """
        requested = pod.memory if self.resource == "memory" else pod.cpu
        if not self.request or self.resource is None:
            return 1.0
        return min(1.0, HEAVIEST * requested / self.request)

    def margin(self, pod: BoundPod) -> float:
        """The share of its load that a pod that was just bound counts in addition."""
        is_new = self.of_pod and pod.name not in self.of_pod
        return self.start * (1 + MARGIN) - 1 if is_new else 0.0

    def load(self, pod: BoundPod, allocatable: Allocatable, *, ended: bool = False) -> float:
        """The load of a pod on its node. A pod that ``ended`` counts no more than it used at last:
        where it idled, others use its share. The next pod of its name, as StatefulSets have, counts
        in full. A pod of unknown use counts what it requests, and nothing once it ended: a guess
        may make a node look busier than it is, but must not make a busy one look idle.
        """
        use = self.of_pod.get(pod.name, self.of_workload.get(pod.workload))
        if use is None and self.mean is not None:
            use = self.mean * self._share(pod)
        capacity = 100.0 if self.resource is None else allocatable.get(self.resource, 0.0)
        if use is None or capacity <= 0:
            return 0.0 if ended else self._requested(pod, allocatable)
        if ended:
            use = min(use, self.of_ended.get(pod.name, use))
        return min(100 * use / capacity, MAX_POD_LOAD)

    def _requested(self, pod: BoundPod, allocatable: Allocatable) -> float:
        """The share of its node that a pod requests, UNKNOWN_LOAD at least; where the resource is
        not known, by the one of which more is requested.
        """
        shares = [
            100 * requested / allocatable[name]
            for name, requested in (("cpu", pod.cpu), ("memory", pod.memory))
            if self.resource in (None, name) and allocatable.get(name, 0.0) > 0
        ]
        return min(max([UNKNOWN_LOAD, *shares]), MAX_POD_LOAD)


def error_of_requests(use: PodUse, pods: Iterable[BoundPod]) -> float | None:
    """How far pods' requests, times the ratio of use to requests, are from their use: in percent of
    the use. None where too few of the pods are measured.
    """
    known = [
        (use.of_pod[pod.name], pod.memory if use.resource == "memory" else pod.cpu)
        for pod in pods
        if pod.name in use.of_pod
    ]
    used, requested = (sum(column) for column in zip(*known, strict=True)) if known else (0, 0)
    if len(known) < ENOUGH or not used:
        return None
    return 100 * sum(abs(each - used / requested * request) for each, request in known) / used


class Added(NamedTuple):
    """What is added to one node's measured load: ``bound`` more, ``ended`` less, and where pods are
    placed ``margin`` more (MARGIN).
    """

    bound: float
    ended: float
    margin: float = 0.0
    pods: int = 0
    """How many pods were just bound."""

    def to(self, measured: float, *, margin: bool = False) -> float:
        """The expected load, within the limits of a load. Pods that ended used no more than was
        measured; the rest is an error of the estimate, and is not taken off what was bound.
        """
        more = self.bound + (self.margin if margin else 0.0)
        return min(max(0.0, measured - self.ended) + more, MAX_LOAD)


_RANDOM: Final = "[bcdfghjklmnpqrstvwxz2456789]"
"""What Kubernetes makes random names and hashes of: no vowels, so that they are no words. By that
``node-exporter-x2x4p`` is a pod of ``node-exporter``, and not of ``node``."""
POD_NAME: Final = f"(.+?)(?:-(?:{_RANDOM}{{6,10}}|[0-9]{{8,10}}))?-(?:{_RANDOM}{{5}}|[0-9]+)"
"""The first group of a match of the whole name is the workload's name: of a Deployment's pod
``web-5d9c7b9d4f-x2x4p``, a CronJob's ``report-28912345-x2x4p`` (minutes since 1970), a DaemonSet's
or Job's ``agent-x2x4p``, a StatefulSet's ``db-0``. The kubelets' metrics tell no more of a pod than
its name and namespace. RE2, which Prometheus uses, and ``re`` read it in the same way."""
_POD_NAME: Final = re.compile(POD_NAME)


def workload_of(namespace: str, pod: str) -> str:
    """``namespace/workload``; of a pod that no controller named, with its own name."""
    match = _POD_NAME.fullmatch(pod)
    return f"{namespace}/{match[1] if match else pod}"
