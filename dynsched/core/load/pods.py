"""Pods that were just bound or have just ended, and the expected use of a pod.

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
"""What a node can give to pods, keyed by resource."""

MAX_POD_LOAD: Final = 100.0
"""Maximum load of one pod, in percent: it cannot use more than its node has."""
UNKNOWN_LOAD: Final = 4.0
"""Minimum load of a new pod of unknown use, in percent. Without it, a hundred pods that request
0.1 % each would all go to the coolest node."""
MARGIN: Final = 0.5
"""Margin for placing pods: the share of its expected use that a just-bound pod counts in addition,
until it is measured itself. Some pods use much more than the mean, and a node with too many pods
costs more than one with too few. Marks do not use the margin: a mark states what is expected."""
HEAVIEST: Final = 4.0
"""Outlier cap: a node's weight, or a pod's request, is at most this multiple of the median."""
ENOUGH: Final = 20
"""Minimum number of measured pods before requests are judged."""
MIN_CPU: Final = 0.1
MIN_MEMORY: Final = 200 * 2.0**20
"""Assumed request of a container without one (cores, bytes), as kube-scheduler assumes it."""


@dataclass(frozen=True, slots=True)
class BoundPod:
    """A pod that has a node. ``cpu`` (in cores) and ``memory`` (in bytes) are its requests."""

    uid: str
    node: str
    cpu: float = MIN_CPU
    memory: float = MIN_MEMORY
    workload: str = ""
    """``namespace/name`` of its workload (`workload_of`); empty if unknown."""
    name: str = ""
    """``namespace/name`` of the pod itself; empty if unknown."""
    assumed: bool = False
    """The node had the best score in the extender's answer; no binding was observed yet."""


class PodRequestTotals(NamedTuple):
    """Totals over the pods of one node that have not ended. As in kube-scheduler, pods that never
    started count too.
    """

    pods: int = 0
    cpu: float = 0.0
    memory: float = 0.0


def median_request(requested: Iterable[PodRequestTotals], resource: str) -> float:
    """Median over the nodes of a pod's mean request; 0 if unknown.

    A single node with many pods does not change it.
    """
    is_cpu = resource == "cpu"
    return median(
        [(each.cpu if is_cpu else each.memory) / each.pods for each in requested] or [0.0]
    )


class RecentPod(NamedTuple):
    """A pod, and how many seconds ago it was bound (or started, if it has) and ended; None if that
    is not within the window.
    """

    pod: BoundPod
    bound: float | None
    ended: float | None


class PodChange(NamedTuple):
    """One pod more (``sign`` 1) or less (-1) on its node. If less, ``is_recent`` is whether its
    binding is stored too, so that the two cancel out.
    """

    pod: BoundPod
    sign: int
    is_recent: bool = True


@dataclass(frozen=True, slots=True)
class PodUse:
    """The expected use of a pod, of the resource that one rule measures."""

    resource: str | None = None
    """``cpu`` or ``memory``; None if the rule does not say what it measures."""
    mean: float | None = None
    """Mean use of a running pod, in cores or bytes, or in percent of load if ``resource`` is None.
    None if unknown, for example because the number of running pods is not known."""
    of_workload: Mapping[str, float] = field(default_factory=dict)
    """Use of one pod in cores or bytes, keyed by workload."""
    of_pod: Mapping[str, float] = field(default_factory=dict)
    """Use of pods that were measured themselves over minutes, keyed by ``namespace/name``."""
    of_ended: Mapping[str, float] = field(default_factory=dict)
    """Last use of pods that ended, keyed by ``namespace/name``."""
    start: float = 1.0
    """Factor by which a new pod at first uses more than expected (`start_factor`)."""
    request: float = 0.0
    """`median_request`, in cores or bytes; 0 if unknown."""

    def _share(self, pod: BoundPod) -> float:
        """The share of the mean that a pod of unknown use counts. The pod's request limits it, and
        a quota can limit that.
        """
        requested = pod.memory if self.resource == "memory" else pod.cpu
        if not self.request or self.resource is None:
            return 1.0
        return min(1.0, HEAVIEST * requested / self.request)

    def margin(self, pod: BoundPod) -> float:
        """The share of its load that a just-bound pod counts in addition."""
        is_new = self.of_pod and pod.name not in self.of_pod
        return self.start * (1 + MARGIN) - 1 if is_new else 0.0

    def load(self, pod: BoundPod, allocatable: Allocatable, *, ended: bool = False) -> float:
        """The load of a pod on its node, in percent.

        A pod that ``ended`` counts no more than its last use: if it was idle, other pods use its
        share of the mean. The next pod of the same name, as in StatefulSets, counts in full. A pod
        of unknown use counts what it requests, and nothing once it ended: a guess may make a node
        look busier than it is, but must not make a busy one look idle.
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
        """The percentage of its node that a pod requests, at least UNKNOWN_LOAD. If the rule's
        resource is unknown, the larger of CPU and memory counts.
        """
        shares = [
            100 * requested / allocatable[name]
            for name, requested in (("cpu", pod.cpu), ("memory", pod.memory))
            if self.resource in (None, name) and allocatable.get(name, 0.0) > 0
        ]
        return min(max([UNKNOWN_LOAD, *shares]), MAX_POD_LOAD)


def error_of_requests(use: PodUse, pods: Iterable[BoundPod]) -> float | None:
    """The error of requests as a prediction of use, in percent of the use, or None if too few of
    the pods are measured. Requests are first scaled by the overall ratio of use to requests.
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
    """Changes to one node's measured load, in percent: ``bound`` is added and ``ended`` subtracted.
    For placing pods, ``margin`` is added too (MARGIN).
    """

    bound: float
    ended: float
    margin: float = 0.0
    pods: int = 0
    """Number of pods that were just bound."""

    def to(self, measured: float, *, margin: bool = False) -> float:
        """The expected load, from 0 to MAX_LOAD.

        Pods that ended cannot have used more than was measured. The rest is an estimation error,
        and is not subtracted from the load of pods that were bound.
        """
        more = self.bound + (self.margin if margin else 0.0)
        return min(max(0.0, measured - self.ended) + more, MAX_LOAD)


_RANDOM: Final = "[bcdfghjklmnpqrstvwxz2456789]"
"""The characters of random names and hashes in Kubernetes. There are no vowels, so they form no
words: ``node-exporter-x2x4p`` is a pod of ``node-exporter``, not of ``node``."""
POD_NAME: Final = f"(.+?)(?:-(?:{_RANDOM}{{6,10}}|[0-9]{{8,10}}))?-(?:{_RANDOM}{{5}}|[0-9]+)"
"""Matches the whole name of a pod; the first group is the workload's name. It covers the pods of a
Deployment (``web-5d9c7b9d4f-x2x4p``), a CronJob (``report-28912345-x2x4p``, minutes since 1970), a
DaemonSet or Job (``agent-x2x4p``), and a StatefulSet (``db-0``). Kubelet metrics identify a pod
only by name and namespace. ``re`` and RE2, which Prometheus uses, read the pattern alike."""
_POD_NAME: Final = re.compile(POD_NAME)


def workload_of(namespace: str, pod: str) -> str:
    """``namespace/workload``, or ``namespace/pod`` if no controller named the pod."""
    match = _POD_NAME.fullmatch(pod)
    return f"{namespace}/{match[1] if match else pod}"
