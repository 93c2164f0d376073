"""What a node's metric will show once it has caught up: the expected load.

    expected = measured + sum of use x unseen(bound) - sum of use x unseen(ended)

docs/expected-load.md says why, and how the use of a pod is estimated. All loads are in percent.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from statistics import fmean, median, median_high
from typing import Final

from dynsched.core.load.lag import Lag, lag_of
from dynsched.core.load.pods import (
    HEAVIEST,
    MARGIN,
    MAX_POD_LOAD,
    UNKNOWN_LOAD,
    Added,
    BoundPod,
    PodRequestTotals,
    PodUse,
    RecentPod,
    median_request,
)
from dynsched.core.load.use_by_age import Counts, changes_unseen
from dynsched.core.nodes import Node, NodeGroup
from dynsched.core.percent import FULL, load_percent, with_load
from dynsched.core.samples import Reading
from dynsched.rules.promql import Reach
from dynsched.rules.rule_set import Rule

BELOW_MEAN: Final = 10.0
"""Percent below the mean measured load of its group to which pods that ended, and were not measured
themselves, may take a node; on a hot node this holds for all pods that ended."""
FEW: Final = 30
"""Below this number of pods one busy pod dominates the mean, so the median is used if every pod is
measured."""
_NOTHING_ADDED: Final = Added(0.0, 0.0)


@dataclass(frozen=True, slots=True)
class ExpectedLoad:
    """For one rule: what a pod is expected to use, what pods add to each node, and what the next
    pod would add. Mappings are by node name.
    """

    use: PodUse = field(default_factory=PodUse)
    added: Mapping[str, Added] = field(default_factory=dict)
    next_pod: Mapping[str, float] = field(default_factory=dict)
    """The load that a pod of mean use, with its margin, would add to a node of known capacity."""
    least_next: float = UNKNOWN_LOAD
    """The least of these, which is taken for all other nodes too."""

    def of(self, node: str, measured: float) -> float:
        """The expected load of a node whose ``measured`` load is known."""
        return self.added.get(node, _NOTHING_ADDED).to(measured)

    def value_of(self, rule: Rule, node: str, measured: float) -> float:
        """The value that the ``measured`` one is expected to become, in the unit of the rule."""
        if node not in self.added:
            return measured
        load = load_percent(rule, measured)
        return with_load(rule, measured, self.added[node].to(load) - load)

    def to_place(self, node: str, measured: float) -> float:
        """The load by which pods are placed: with the margin of pods that were just bound, and with
        the load that the next pod adds beyond the least, which leaves the larger of two nodes
        cooler.
        """
        more = self.next(node) - self.least_next
        return self.added.get(node, _NOTHING_ADDED).to(measured, margin=True) + more

    def next(self, node: str) -> float:
        """The load that the next pod adds to a node, in percent."""
        return self.next_pod.get(node, self.least_next)


NO_EXPECTATION: Final = ExpectedLoad()


@dataclass(frozen=True, slots=True)
class KnownPods:
    """What the watch of pods and Prometheus report of pods, as of one moment."""

    recent: Collection[RecentPod] = ()
    running: int | None = None
    """How many run in the cluster; None when that is not known."""
    use_of_workloads: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """By resource (``cpu`` in cores, ``memory`` in bytes), then by workload: the use of one pod."""
    scrape_intervals: Mapping[str, float] = field(default_factory=dict)
    """By rule, in seconds."""
    reaches: Mapping[str, Reach] = field(default_factory=dict)
    """By rule, for expressions that only the server reads."""
    sequence: int = 0
    """The number of the last change of ``recent`` (`RecentPods.sequence`)."""
    requested: Mapping[str, PodRequestTotals] = field(default_factory=dict)
    """By node, where it has pods; empty while the rules have no `order`."""
    use_of_pods: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """As ``use_of_workloads``, by ``namespace/name`` of the pod itself."""
    use_of_ended: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Likewise: the last use of pods that ended, where it is known."""
    cpu_by_age: Mapping[str, Counts] = field(default_factory=dict)
    """By ``namespace/name``: the CPU time of new pods."""
    start_factor: float = 1.0
    """By how much the use of new pods at first exceeds their mean."""
    with_order: int = 0
    """How many running pods got the order (docs/order.md) at their creation."""
    error: str | None = None
    """Why the watch of pods does not work at the moment; None while it does."""


NO_PODS: Final = KnownPods()


def expected_load(
    rule: Rule,
    readings: Mapping[str, Reading],
    nodes: Mapping[str, Node],
    groups: Mapping[str, NodeGroup],
    *,
    pods: KnownPods,
    now: float,
) -> ExpectedLoad:
    """One rule's expected load. ``readings``: the good ones, by node; ``now`` in Unix seconds."""
    lag = lag_of(rule, pods.scrape_intervals.get(rule.name), pods.reaches.get(rule.name))
    by_age = pods.cpu_by_age if rule.resource == "cpu" else {}
    unseen = list(_unseen(pods.recent, lag, readings, now, by_age))
    loads = {node: load_percent(rule, reading.value) for node, reading in readings.items()}
    capacity = _bounded_capacity(nodes, rule.resource)
    use = _pod_use(rule, loads, capacity, nodes=nodes, pods=pods, unseen=unseen)
    added = dict(_added(rule, use, unseen, loads, nodes=nodes, groups=groups))
    next_pod = _next_pod(use, capacity)
    return ExpectedLoad(use, added, next_pod, min(next_pod.values(), default=UNKNOWN_LOAD))


_Unseen = tuple[BoundPod, float, float, float]
"""A pod on a node with a reading: the share of its use that is still to show; of an ended pod the
share that the reading still shows; and the cores that it adds by changes of its use."""


def _unseen(
    recent: Collection[RecentPod],
    lag: Lag,
    readings: Mapping[str, Reading],
    now: float,
    by_age: Mapping[str, Counts],
) -> Iterator[_Unseen]:
    unseen = lag.unseen
    for pod, bound, ended in recent:
        reading = readings.get(pod.node)
        if reading is None:
            continue
        ago = max(0.0, now - reading.taken)
        begun = 0.0 if bound is None else unseen(bound - ago)
        changed = 0.0
        if bound is not None and pod.name in by_age:
            changed = changes_unseen(by_age[pod.name], bound - ago, unseen)
        if ended is None:
            yield pod, begun, 0.0, changed
        else:
            yield pod, 0.0, unseen(ended - ago) - begun, changed


def _bounded_capacity(nodes: Mapping[str, Node], resource: str | None) -> Mapping[str, float]:
    """By node, in cores or bytes, where it is known; capped, so that one node that claims any
    capacity does not decide about all others.
    """
    if resource is None:
        return {}
    known = {
        name: node.allocatable[resource]
        for name, node in nodes.items()
        if resource in node.allocatable
    }
    most = HEAVIEST * median_high(known.values()) if known else 0.0
    return {name: min(amount, most) for name, amount in known.items()}


def _pod_use(
    rule: Rule,
    loads: Mapping[str, float],
    capacity: Mapping[str, float],
    *,
    nodes: Mapping[str, Node],
    pods: KnownPods,
    unseen: Collection[_Unseen],
) -> PodUse:
    resource = rule.resource or ""
    of_pod = pods.use_of_pods.get(resource, {})
    if rule.higher_is_worse and of_pod and pods.running is not None and pods.running < FEW:
        mean: float | None = median(of_pod.values())
    else:
        shown = _shown(pods.running, unseen, len(loads), len(nodes))
        mean = _mean_use(rule, loads, capacity, shown)
    return PodUse(
        rule.resource,
        mean,
        pods.use_of_workloads.get(resource, {}),
        of_pod,
        pods.use_of_ended.get(resource, {}),
        pods.start_factor if resource == "cpu" else 1.0,
        # Only nodes that exist: a pod may name any, and the mapping changes meanwhile.
        median_request(filter(None, map(pods.requested.get, nodes)), resource),
    )


def _shown(
    running: int | None, unseen: Iterable[_Unseen], with_value: int, nodes: int
) -> float | None:
    """How many pods the values show: those that run, less the unseen part of those just bound, and
    with the part still seen of those that ended; where only some nodes have a value, that share of
    the running pods. None when it is not known.
    """
    if running is None or not nodes:
        return None
    share = min(1.0, with_value / nodes)
    return running * share - sum(more - less for _, more, less, _ in unseen)


def _mean_use(
    rule: Rule, loads: Mapping[str, float], capacity: Mapping[str, float], shown: float | None
) -> float | None:
    """What a running pod uses on average: all that is measured, over the number of pods ``shown``.
    A load counts as at most full: one node's wrong value must not make all pods look heavy.
    None where fewer pods run than nodes have a value: most of the load is not that of pods then.
    """
    if not shown or shown < len(loads) or not rule.higher_is_worse:
        return None
    if rule.resource is None:
        return sum(min(load, FULL) for load in loads.values()) / shown
    used = (min(load, FULL) * capacity[node] for node, load in loads.items() if node in capacity)
    return sum(used) / 100 / shown


@dataclass(slots=True)
class _Sums:
    """Over the pods of one node, as in `Added`. ``measured``: the part of ``ended`` that is of pods
    which were measured themselves.
    """

    bound: float = 0.0
    ended: float = 0.0
    margin: float = 0.0
    measured: float = 0.0
    pods: int = 0


def _added(
    rule: Rule,
    use: PodUse,
    unseen: Iterable[_Unseen],
    loads: Mapping[str, float],
    *,
    nodes: Mapping[str, Node],
    groups: Mapping[str, NodeGroup],
) -> Iterator[tuple[str, Added]]:
    sums: defaultdict[str, _Sums] = defaultdict(_Sums)
    for pod, more, less, changed in unseen:
        if not (more or less or changed) or pod.node not in nodes:
            continue
        node, allocatable = sums[pod.node], nodes[pod.node].allocatable
        load = use.load(pod, allocatable, ended=less > 0)
        net = (more - less) * load
        if changed and (cores := allocatable.get("cpu", 0.0)) > 0:
            net += min(max(100 * changed / cores, -MAX_POD_LOAD), MAX_POD_LOAD)
        node.pods += more > 0
        node.bound += max(0.0, net)
        node.ended += max(0.0, -net)
        node.margin += more * load * use.margin(pod)
        if pod.name in use.of_pod:
            node.measured += max(0.0, -net)
    hot_from = load_percent(rule, rule.threshold)
    means = group_means(loads, groups) if sums else {}
    for name, node in sums.items():
        itself = 0.0 if loads[name] >= hot_from else node.measured
        room = max(0.0, loads[name] - means[groups[name]] + BELOW_MEAN)
        yield name, Added(node.bound, min(node.ended, max(room, itself)), node.margin, node.pods)


def group_means(
    loads: Mapping[str, float], groups: Mapping[str, NodeGroup]
) -> dict[NodeGroup, float]:
    """The mean of the loads that are known in each group of nodes; each counts as at most full."""
    known: dict[NodeGroup, list[float]] = {}
    for node, load in loads.items():
        known.setdefault(groups[node], []).append(min(load, FULL))
    return {group: fmean(found) for group, found in known.items()}


def _next_pod(use: PodUse, capacity: Mapping[str, float]) -> dict[str, float]:
    if use.resource is None or use.mean is None:
        return {}
    amount = 100 * (1 + MARGIN) * use.mean
    return {
        node: min(amount / capacity[node], MAX_POD_LOAD) if capacity[node] > 0 else MAX_POD_LOAD
        for node in capacity
    }
