"""What a node's metric will show once it has caught up: the expected load.

    expected = measured + sum of use x unseen(bound) - sum of use x unseen(ended)

docs/expected-load.md says why, and what a pod is expected to use. All loads are in points: 0 is
idle, 100 is full (`engine.loads`). The order, the extender's scores and rules with ``by: expected``
go by it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Final

import numpy as np

from dynsched.engine.columns import MISSING, Floats, Ints
from dynsched.engine.load.lag import Lag, lag_of
from dynsched.engine.load.use_by_age import Counts, changes_unseen
from dynsched.engine.loads import rule_loads, with_points
from dynsched.engine.model import Node
from dynsched.engine.nodes.inventory import NodeColumns
from dynsched.engine.nodes.match import NodeReadings
from dynsched.engine.pod_values import (
    HEAVIEST,
    MARGIN,
    MAX_POINTS,
    Added,
    Allocatable,
    BoundPod,
    PodUse,
    RecentPod,
    Requested,
    median_request,
)
from dynsched.rules.rule_set import Rule

POINTS_EACH: Final = 4.0
POINTS_FURTHER: Final = 2.0
FIRST: Final = 10
"""What a pod of unknown use counts, however little it requests: 4 points each of the first ten, 2
each further. Without this a hundred pods of a large node's 0.1 % would all go to the one coolest
node. It flattens: small pods by the dozen should not make a node at 20 % look nearly hot."""
BELOW_MEAN: Final = 10.0
"""Points. So far below the mean measured load of its kind a node may come by pods that ended and
were not measured themselves; and a hot one by any."""
_NOTHING_LEFT: Final = 1e-9
"""Of pods: but for what the floats have gathered."""
FEW: Final = 30
"""Of fewer pods a single one that is busy makes the mean: the median counts, where each is known.
"""


class Unseen:
    """What the pods on one node add to what one rule measures there. Mutable: pods are counted one
    after the other.
    """

    __slots__ = ("_bound", "_cpu", "_ended", "_memory", "_pods")

    def __init__(self) -> None:
        self._bound = self._ended = 0.0
        self._pods = self._cpu = self._memory = 0.0  # of unknown use, each by its unseen share

    def bound(self, pod: BoundPod, points: float | None, share: float) -> None:
        """Count a bound pod; ``share`` (negative: count it no longer) of it is unseen."""
        if points is not None:
            self._bound += share * points
            return
        self._pods += share
        self._cpu += share * pod.cpu
        self._memory += share * pod.memory
        if self._pods <= _NOTHING_LEFT:
            self._pods = self._cpu = self._memory = 0.0

    def ended(self, points: float | None, share: float) -> None:
        """Count an ended pod. One of unknown use counts nothing: a guess by requests may make
        an idle node look busy, but must not make a busy one look idle.
        """
        if points is not None:
            self._ended += share * points

    def parts(self, allocatable: Allocatable, resource: str | None) -> tuple[float, float]:
        """The points to add for bound pods, and those to subtract for ended ones. Pods of unknown
        use count by the resource that the rule measures; where that is not known, by the one of
        which more is requested.
        """
        shares = [
            100 * requested / allocatable[name]
            for name, requested in (("cpu", self._cpu), ("memory", self._memory))
            if resource in (None, name) and allocatable.get(name, 0) > 0
        ]
        first = min(self._pods, FIRST)
        by_number = POINTS_EACH * first + POINTS_FURTHER * (self._pods - first)
        return self._bound + max([by_number, *shares]), self._ended


@dataclass(frozen=True, slots=True)
class ExpectedLoad:
    """By one rule: what a pod is expected to use, and what pods add to each node; by node name."""

    use: PodUse
    added: Mapping[str, Added]

    def add_to(self, loads: Floats, columns: NodeColumns, *, to_place: bool = False) -> None:
        """Make the measured ``loads`` of the nodes of ``columns`` the expected ones, in place.
        ``to_place``: by which pods are placed, with the margin of those that were just bound, and
        with what the next one leaves the smaller nodes less.
        """
        for name, more in self.added.items():
            index = columns.roster.indices.get(name)
            if index is not None:
                loads[index] = more.to(loads.item(index), to_place=to_place)
        if to_place and len(loads):  # of two nodes at one load, the larger one is left cooler
            points = self.next_pod(columns)
            loads += points - points.min()

    def values(self, rule: Rule, measured: Floats, columns: NodeColumns) -> Floats:
        """The values that the ``measured`` ones of the nodes are expected to become, in the unit of
        the ``rule``, of which a higher value is more load.
        """
        loads = rule_loads(rule, measured)
        expected = loads.copy()
        self.add_to(expected, columns)
        return with_points(rule, measured, expected - loads)

    def next_pod(self, columns: NodeColumns) -> Floats:
        """What a pod of mean use, with its margin, would add to each node, in points; POINTS_EACH
        where that is not known.
        """
        use = self.use
        if use.resource is None or use.mean is None or not len(columns.roster):
            return np.full(len(columns.roster), POINTS_EACH)
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            points = 100 * (1 + MARGIN) * use.mean / _bounded(columns.capacity[use.resource])
        points = np.minimum(points, MAX_POINTS)
        return np.where(np.isnan(points), np.fmin.reduce(points, initial=MAX_POINTS), points)


NOTHING_EXPECTED: Final = ExpectedLoad(PodUse(), {})


def added_on(node: str, expected: Mapping[str, ExpectedLoad]) -> dict[str, Added]:
    """By rule, without rules to which nothing is added."""
    return {rule: load.added[node] for rule, load in expected.items() if node in load.added}


@dataclass(frozen=True, slots=True)
class KnownPods:
    """What the watch of pods and Prometheus tell of pods, as of one moment."""

    recent: Collection[RecentPod] = ()
    running: int | None = None
    """How many run in the cluster; None when that is not known."""
    use_of_workloads: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """By resource (``cpu`` in cores, ``memory`` in bytes), then by workload: the use of one pod."""
    scrape_intervals: Mapping[str, float] = field(default_factory=dict)
    """By rule, in seconds."""
    sequence: int = 0
    """The number of the last change of ``recent`` (`RecentPods.sequence`)."""
    requested: Mapping[str, Requested] = field(default_factory=dict)
    """By node, where it has pods; empty while the rules have no `order`."""
    use_of_pods: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """As ``use_of_workloads``, by ``namespace/name`` of the pod itself."""
    use_of_ended: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Likewise: what pods that ended used at last, as far as it was asked for."""
    cpu_by_age: Mapping[str, Counts] = field(default_factory=dict)
    """By ``namespace/name``: the CPU time of new pods."""
    start_factor: float = 1.0
    """How many times their mean new pods use at first."""
    with_order: int = 0
    """How many of those that run got the order (docs/order.md) at their creation."""
    error: str | None = None
    """Why the watch of pods does not work at the moment; None while it does."""


NO_PODS: Final = KnownPods()


def expected_load(
    rule: Rule,
    readings: NodeReadings,
    nodes: Mapping[str, Node],
    pods: KnownPods,
    now: float,
    *,
    columns: NodeColumns,
) -> ExpectedLoad:
    """One rule's expected load. ``readings``: the good ones; ``now`` in Unix seconds, as their
    times; ``columns`` of the ``nodes``.
    """
    lag = lag_of(rule, pods.scrape_intervals.get(rule.name))
    by_age = pods.cpu_by_age if rule.resource == "cpu" else {}
    unseen = list(_unseen(pods.recent, lag, readings, now, by_age))
    with_value = readings.count
    shown = _shown(pods.running, unseen, with_value, len(nodes))
    resource = rule.resource or ""
    of_pod = pods.use_of_pods.get(resource, {})
    if rule.rises and of_pod and pods.running is not None and pods.running < FEW:
        mean: float | None = median(of_pod.values())
    else:
        mean = _mean_use(rule, readings, columns, with_value, shown)
    use = PodUse(
        rule.resource,
        mean,
        pods.use_of_workloads.get(resource, {}),
        of_pod,
        pods.use_of_ended.get(resource, {}),
        pods.start_factor if resource == "cpu" else 1.0,
        # By the nodes that there are: a pod may name any, and the mapping changes meanwhile.
        median_request(filter(None, map(pods.requested.get, nodes)), resource),
    )
    counted: dict[str, Unseen] = {}
    pods_on: dict[str, int] = {}
    margins: dict[str, float] = {}  # of bound pods: what counts beside where pods are placed
    measured: dict[str, float] = {}  # of what is taken off: by pods that were measured themselves
    for pod, more, less, changed in unseen:
        if not (more or less or changed) or pod.node not in nodes:
            continue
        pods_on[pod.node] = pods_on.get(pod.node, 0) + (more > 0)
        allocatable = nodes[pod.node].allocatable
        points = use.points(pod, allocatable, ended=less > 0)
        if points is None:
            if more:
                counted.setdefault(pod.node, Unseen()).bound(pod, None, more)
            continue
        node, net = counted.setdefault(pod.node, Unseen()), (more - less) * points
        if changed:
            net += min(max(100 * changed / allocatable["cpu"], -MAX_POINTS), MAX_POINTS)
        node.bound(pod, max(0.0, net), 1.0)
        node.ended(max(0.0, -net), 1.0)
        margin = more * points * use.margin(pod)
        margins[pod.node] = margins.get(pod.node, 0.0) + margin
        if net < 0 and pod.name in use.of_pod:
            measured[pod.node] = measured.get(pod.node, 0.0) - net
    loads, indices = readings.loads(rule), columns.roster.indices
    rooms, is_hot = _rooms(loads, columns), loads >= rule_loads(rule, rule.threshold)
    added = {}
    for name, node in counted.items():
        more, less = node.parts(nodes[name].allocatable, rule.resource)
        at = indices[name]
        itself = 0.0 if is_hot.item(at) else measured.get(name, 0.0)
        less = min(less, max(rooms.item(at), itself))
        added[name] = Added(more, less, margins.get(name, 0.0), pods_on[name])
    return ExpectedLoad(use, added)


def _rooms(loads: Floats, columns: NodeColumns) -> Floats:
    """What pods that end may take off each node by estimates of their use, by its kind's mean."""
    return np.maximum(0.0, loads - columns.kind_means(loads) + BELOW_MEAN)


def _unseen(
    recent: Collection[RecentPod],
    lag: Lag,
    readings: NodeReadings,
    now: float,
    by_age: Mapping[str, Counts],
) -> Iterator[tuple[BoundPod, float, float, float]]:
    """Of each pod on a node with a reading: the share that is to come, of one that ended the share
    that the reading still shows, and what it adds by the changes of its use (`changes_unseen`).
    """
    unseen, indices, is_known = lag.unseen, readings.roster.indices, readings.quality != MISSING
    for pod, bound, ended in recent:
        index = indices.get(pod.node)
        if index is not None and is_known.item(index):
            ago = max(0.0, now - readings.taken.item(index))
            begun = 0.0 if bound is None else unseen(bound - ago)
            changed = 0.0
            if bound is not None and pod.name in by_age:
                changed = changes_unseen(by_age[pod.name], bound - ago, unseen)
            if ended is None:
                yield pod, begun, 0.0, changed
            else:
                yield pod, 0.0, unseen(ended - ago) - begun, changed


def _shown(
    running: int | None,
    unseen: Iterable[tuple[BoundPod, float, float, float]],
    with_value: int,
    nodes: int,
) -> float | None:
    """How many pods the values show: those that run, less what is not seen yet of those just bound,
    and with what is still seen of those that ended; where only some nodes have a value, of that
    share of the pods that run. None when it is not known.
    """
    if running is None or not nodes:
        return None
    share = min(1.0, with_value / nodes)
    return running * share - sum(more - less for _, more, less, _ in unseen)


def _mean_use(
    rule: Rule,
    readings: NodeReadings,
    columns: NodeColumns,
    with_value: int,
    shown: float | None,
) -> float | None:
    """What a running pod uses on average: all that is measured, by the number of pods ``shown``.
    None where fewer pods run than nodes have a value: then most of the load is not that of pods.
    """
    if not shown or shown < with_value or not rule.rises:
        return None
    loads = readings.loads(rule)
    if rule.resource is None:
        return float(np.nansum(loads)) / shown
    with np.errstate(over="ignore", invalid="ignore"):  # a kubelet may claim any capacity
        used = loads * _bounded(columns.capacity[rule.resource])
        return float(np.nansum(used)) / 100 / shown


def _bounded(weights: Floats) -> Floats:
    """One node does not decide about all others."""
    number = np.count_nonzero(~np.isnan(weights), axis=-1, keepdims=True)
    return np.minimum(weights, HEAVIEST * _lowest(weights, number // 2))


def _lowest(values: Floats, index: Ints) -> Floats:
    """The value at this index from the lowest; NaN comes last."""
    return np.take_along_axis(np.sort(values, axis=-1), index, axis=-1)
