"""Which nodes are cooler: the order by which the API server gives new pods preferences.

A pod gets one list: nodes in levels, the coolest first. Where one list cannot have all nodes, there
are several, each with every nth node by rank, and a pod gets one by chance. So no pod grows by
much, and the pods of a burst, who all get the order of one moment, do not go to the same few nodes
(docs/decisions/0022-the-order-is-a-kind-of-its-own.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean, median_low
from typing import Final, NamedTuple

from dynsched.engine.expected import KnownPods
from dynsched.engine.guard import hard_taints, pool_of
from dynsched.engine.model import Level, Node, NodeList, Order
from dynsched.engine.pod_values import MIN_CPU, MIN_MEMORY, Requested
from dynsched.engine.score import FIRING, FULL, SPREAD, TENTHS, node_loads, weighted
from dynsched.engine.snapshot import NodeViews
from dynsched.rules import keys

LEVELS: Final = 20
"""In a list at most. With 10, nodes of unlike load share a level."""
FEWEST_LEVELS: Final = 5
"""Where a list is long and the names of nodes are too: its nodes are worth more than its levels."""
MAX_BYTES: Final = 1900
"""Of a list in a pod, as etcd keeps it; with what surrounds it, a pod grows by 2 KiB at most."""
MAX_NODES: Final = 1024
"""Of a pool in all lists together, the coolest: the object is written every few seconds."""
MAX_LENGTH: Final = 24
"""Nodes in a list: with more, bursts go to the same few nodes."""
MISSED: Final = 0.002
"""kube-scheduler looks at a share of many nodes for each pod. Where a pod has room, its list is so
long that no more than this share of pods finds none of its nodes there: 59 of 5,000."""
_OF_KUBERNETES: Final = "node.kubernetes.io/"
_BYTES_OF_LEVEL: Final = 44
"""In etcd (protobuf): weight, key, operator and the lengths of the parts."""
_BYTES_OF_NODE: Final = 2
"""Beside its name."""
_NOTHING: Final = Requested()


class Ranked(NamedTuple):
    """A node by its host name, and its load in tenths of a point."""

    host: str
    load: int


def order_of(views: NodeViews, pods: KnownPods) -> Order | None:
    """The order by the last tick; None where the rules want none, or no node is known to be cool.

    A node of unknown load comes in the middle: it is neither avoided nor preferred.
    """
    rule_set = views.inventory.rule_set
    if rule_set.order is None:
        return None
    loads = node_loads(views, weighted(rule_set, rule_set.order.score))
    cool = [load for load in loads.values() if load < FIRING]
    if not cool:
        return None
    middle, label = median_low(cool), rule_set.guard.pool_label
    nodes, counts = [], dict.fromkeys(("ranked", "unknown", "hot", "closed", "full"), 0)
    for name, node in views.inventory.nodes.items():
        kind = "ranked" if name in loads else "unknown"
        if name in views.not_cooled:
            kind = "hot"
        elif is_closed(node):
            kind = "closed"
        elif is_full(node, pods.requested.get(name, _NOTHING)):
            kind = "full"
        else:
            nodes.append(node)
        counts[kind] += 1
    nodes.sort(key=lambda node: (loads.get(node.name, middle), node.name))
    pools: dict[str, list[Ranked]] = {"": []}
    for node in nodes:
        ranked = Ranked(_host(node), loads.get(node.name, middle))
        if not is_reserved(node):
            pools[""].append(ranked)
        if label and (pool := pool_of(node, rule_set.guard)):
            pools.setdefault(pool, []).append(ranked)
    number = len(views.inventory.nodes)
    lists = {pool: node_lists(coolest, number) for pool, coolest in pools.items()}
    of_hosts = {_host(views.inventory.nodes[name]): load for name, load in loads.items()}
    return Order(lists, label, of_hosts, counts)


def _host(node: Node) -> str:
    """What stands for a node in a preference, where its name can stand only alone."""
    return node.labels.get(keys.HOSTNAME_LABEL, node.name)


def is_closed(node: Node) -> bool:
    """Whether it takes no pods: it is cordoned, not ready, or under pressure by the kubelet."""
    return any(key.startswith(_OF_KUBERNETES) for key, _, _ in hard_taints(node))


def is_reserved(node: Node) -> bool:
    """Whether it takes only pods that tolerate its taints. Its pool's lists have it."""
    return bool(hard_taints(node))


def is_full(node: Node, requested: Requested) -> bool:
    """Whether its pods are so many, or request so much, that the smallest pod has no room."""
    with_one_more = (
        ("pods", requested.pods + 1),
        ("cpu", requested.cpu + MIN_CPU),
        ("memory", requested.memory + MIN_MEMORY),
    )
    return any(need > node.allocatable.get(name, math.inf) for name, need in with_one_more)


def nodes_looked_at(nodes: int) -> int:
    """How many of a cluster's nodes kube-scheduler looks at for one pod (``numFeasibleNodesToFind``
    in its source, where ``percentageOfNodesToScore`` is not set).
    """
    return min(nodes, max(100, nodes * max(5, 50 - nodes // 125) // 100))


def node_lists(coolest: Sequence[Ranked], nodes: int) -> tuple[NodeList, ...]:
    """The lists for the coolest nodes, the coolest first, in a cluster of so many ``nodes``."""
    listed = coolest[:MAX_NODES]
    seen, length = nodes_looked_at(nodes), MAX_LENGTH
    if seen < nodes:
        length = max(length, math.ceil(math.log(MISSED) / math.log(1 - seen / nodes)))
    count = next(
        number
        for number in range(1, len(listed) + 2)
        if number * length >= len(listed)
        and all(
            _most_levels(each) >= min(FEWEST_LEVELS, len(each))
            for each in (listed[at::number] for at in range(number))
        )
    )
    return tuple(_levels(listed[at::count]) for at in range(min(count, len(listed))))


def _most_levels(nodes: Sequence[Ranked]) -> int:
    """As many as a pod has room for, beside the names."""
    of_names = sum(len(node.host) + _BYTES_OF_NODE for node in nodes)
    return min(LEVELS, len(nodes), (MAX_BYTES - of_names) // _BYTES_OF_LEVEL)


def _levels(nodes: Sequence[Ranked]) -> NodeList:
    """By rank, in levels of equal length. A level's weight is the square of how far it is below the
    hottest, by load: 100 for the coolest. By equal steps a node that is far cooler would have
    little more than the next one, and kube-scheduler's spread of each workload's pods, which counts
    as much as the whole order, keeps them off nodes that are larger and so have most of them. A
    load beyond FULL counts as it: one node must not make all others look equal.
    """
    count = _most_levels(nodes)
    bounds = [len(nodes) * level // count for level in range(count + 1)]
    levels = [nodes[begin:end] for begin, end in pairwise(bounds)]
    loads = [fmean(min(node.load, FULL) for node in level) for level in levels]
    apart = max(SPREAD * TENTHS, loads[-1] - loads[0])
    found, weight = [], 101
    for at, (level, load) in enumerate(zip(levels, loads, strict=True)):
        share = 1 - (load - loads[0]) / apart
        weight = max(count - at, min(weight - 1, round(100 * share**2)))
        found.append(Level(weight, tuple(node.host for node in level)))
    return tuple(found)
