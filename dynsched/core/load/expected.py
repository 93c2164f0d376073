"""The expected load: what a node's metric will show once it has caught up.

    expected = measured + sum of use x unseen(bound) - sum of use x unseen(ended)

docs/expected-load.md explains it, and how the use of a pod is estimated. All loads are in percent.
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
"""How far below the mean measured load of its group ended pods may take a node, in percent of full.
The limit is for pods that were not measured themselves, and on a hot node for all ended pods."""
FEW: Final = 30
"""Below this number of pods one busy pod dominates the mean, so the median is used if every pod is
measured."""
_NOTHING_ADDED: Final = Added(0.0, 0.0)


@dataclass(frozen=True, slots=True)
class ExpectedLoad:
    """One rule's estimates: the use of a pod, what pods add to each node, and what the next pod
    would add. Mappings are keyed by node name.
    """

    use: PodUse = field(default_factory=PodUse)
    added: Mapping[str, Added] = field(default_factory=dict)
    next_pod: Mapping[str, float] = field(default_factory=dict)
    """The load that a pod of mean use, with its margin, would add to a node of known capacity."""
    least_next: float = UNKNOWN_LOAD
    """The smallest value of ``next_pod``, also used for all other nodes."""

    def of(self, node: str, measured: float) -> float:
        """The expected load of a node whose ``measured`` load is known."""
        return self.added.get(node, _NOTHING_ADDED).to(measured)

    def value_of(self, rule: Rule, node: str, measured: float) -> float:
        """The expected value for a ``measured`` one, in the unit of the rule."""
        if node not in self.added:
            return measured
        load = load_percent(rule, measured)
        return with_load(rule, measured, self.added[node].to(load) - load)

    def to_place(self, node: str, measured: float) -> float:
        """The load used to place pods.

        It includes the margin of just-bound pods, and the load of the next pod beyond
        ``least_next``. The latter makes the larger of two equally loaded nodes the cooler one.
        """
        more = self.next(node) - self.least_next
        return self.added.get(node, _NOTHING_ADDED).to(measured, margin=True) + more

    def next(self, node: str) -> float:
        """The load that the next pod adds to a node, in percent."""
        return self.next_pod.get(node, self.least_next)


NO_EXPECTATION: Final = ExpectedLoad()


@dataclass(frozen=True, slots=True)
class KnownPods:
    """What the pod watch and Prometheus report about pods at one moment."""

    recent: Collection[RecentPod] = ()
    running: int | None = None
    """Number of running pods in the cluster, or None if unknown."""
    use_of_workloads: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Use of one pod, by resource (``cpu`` in cores, ``memory`` in bytes), then by workload."""
    scrape_intervals: Mapping[str, float] = field(default_factory=dict)
    """In seconds, keyed by rule."""
    reaches: Mapping[str, Reach] = field(default_factory=dict)
    """Keyed by rule, for expressions that only the server can parse."""
    sequence: int = 0
    """The number of the last change of ``recent`` (`RecentPods.sequence`)."""
    requested: Mapping[str, PodRequestTotals] = field(default_factory=dict)
    """Keyed by node; nodes without pods are absent. Empty if the rules have no `order`."""
    use_of_pods: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Like ``use_of_workloads``, but keyed by ``namespace/name`` of the pod itself."""
    use_of_ended: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Like ``use_of_pods``: the last use of pods that ended, if known."""
    cpu_by_age: Mapping[str, Counts] = field(default_factory=dict)
    """The CPU time of new pods, keyed by ``namespace/name``."""
    start_factor: float = 1.0
    """Factor by which new pods at first use more than their mean."""
    with_order: int = 0
    """Number of running pods that got the order (docs/order.md) at their creation."""
    error: str | None = None
    """Why the pod watch is failing, or None if it works."""


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
    """One rule's expected load. ``readings`` are the good ones, keyed by node; ``now`` is in Unix
    seconds.
    """
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
"""A pod on a node with a reading; the share of its use that the reading does not show yet; if the
pod ended, the share that the reading still shows; and the cores that changes of its use add."""


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
    """The known capacities in cores or bytes, keyed by node. They are capped, so that one node with
    an absurd capacity does not distort the estimate for all others.
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
        shown = _pods_shown(pods.running, unseen, len(loads), len(nodes))
        mean = _mean_use(rule, loads, capacity, shown)
    return PodUse(
        rule.resource,
        mean,
        pods.use_of_workloads.get(resource, {}),
        of_pod,
        pods.use_of_ended.get(resource, {}),
        pods.start_factor if resource == "cpu" else 1.0,
        # Only existing nodes: a pod may name any node. The mapping may change meanwhile.
        median_request(filter(None, map(pods.requested.get, nodes)), resource),
    )


def _pods_shown(
    running: int | None, unseen: Iterable[_Unseen], with_value: int, nodes: int
) -> float | None:
    """The number of pods that the values show, or None if unknown.

    These are the running pods, minus the unseen part of just-bound ones, plus the part of ended
    ones that still shows. If only some nodes have a value, running pods count in that proportion.
    """
    if running is None or not nodes:
        return None
    share = min(1.0, with_value / nodes)
    return running * share - sum(more - less for _, more, less, _ in unseen)


def _mean_use(
    rule: Rule, loads: Mapping[str, float], capacity: Mapping[str, float], shown: float | None
) -> float | None:
    """Mean use of a running pod: all measured use, divided by the number of pods ``shown``.

    Each load is capped at full, because one node's wrong value must not make all pods look heavy.
    None if there are fewer pods than nodes with a value: most of the load is then not due to pods.
    """
    if not shown or shown < len(loads) or not rule.higher_is_worse:
        return None
    if rule.resource is None:
        return sum(min(load, FULL) for load in loads.values()) / shown
    used = (min(load, FULL) * capacity[node] for node, load in loads.items() if node in capacity)
    return sum(used) / 100 / shown


@dataclass(slots=True)
class _Sums:
    """Sums over the pods of one node, as in `Added`. ``measured`` is the part of ``ended`` due to
    pods that were measured themselves.
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
        measured = 0.0 if loads[name] >= hot_from else node.measured
        room = max(0.0, loads[name] - means[groups[name]] + BELOW_MEAN)
        yield name, Added(node.bound, min(node.ended, max(room, measured)), node.margin, node.pods)


def group_means(
    loads: Mapping[str, float], groups: Mapping[str, NodeGroup]
) -> dict[NodeGroup, float]:
    """The mean of the known loads in each node group; each load is capped at full."""
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
