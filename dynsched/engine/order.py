"""Which nodes are cooler: the order by which the API server gives new pods preferences.

A pod gets one list: nodes in levels, the coolest first. Where one list cannot have all nodes, there
are several, each with every nth node by rank, and a pod gets one by chance. So no pod grows by
much, and the pods of a burst, who all get the order of one moment, do not go to the same few nodes
(docs/decisions/0022-the-order-is-a-kind-of-its-own.md).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
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
from dynsched.rules.labels import is_label_value

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
MAX_POOLS: Final = 1000
"""Of which the object has lists."""
MAX_OBJECT: Final = 512 * 1024
"""Bytes of all lists, as etcd keeps them (JSON): it refuses 1.5 MiB. 5,000 nodes in pools fit, with
names of 63 characters."""
_OF_KUBERNETES: Final = "node.kubernetes.io/"
_BYTES_OF_LEVEL: Final = 44
"""In etcd (protobuf): weight, key, operator and the lengths of the parts."""
_BYTES_OF_NODE: Final = 2
"""Beside its name."""
_IN_JSON: Final = {"pool": 6, "list": 14, "level": 26, "node": 3}
"""Bytes of the object for one of them, beside names."""
_NOTHING: Final = Requested()
UNLISTED: Final = ("hot", "closed", "full", "unnamed")
"""Why a node is in no list: see `Order.counts`."""


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
    every, pools = views.inventory.nodes, dict[str, list[Ranked]]({"": []})
    hosts = host_names(every.values())
    kinds = {node.name: _kind(node, views, pods, loads, hosts) for node in every.values()}
    nodes = [node for node in every.values() if kinds[node.name] not in UNLISTED]
    nodes.sort(key=lambda node: (loads.get(node.name, middle), node.name))
    for node in nodes:
        ranked = Ranked(hosts[node.name], loads.get(node.name, middle))
        if not is_reserved(node):
            pools[""].append(ranked)
        if label and (pool := pool_of(node, rule_set.guard)):
            pools.setdefault(pool, []).append(ranked)
    counts = dict.fromkeys(("ranked", "unknown", *UNLISTED), 0) | Counter(kinds.values())
    lists, left_out = lists_that_fit(pools, len(every))
    of_hosts = {hosts[name]: load for name, load in loads.items() if name in hosts}
    return Order(lists, label, of_hosts, counts, left_out)


def _kind(
    node: Node,
    views: NodeViews,
    pods: KnownPods,
    loads: Mapping[str, int],
    hosts: Mapping[str, str],
) -> str:
    if node.name not in hosts:
        return "unnamed"
    if node.name in views.not_cooled:
        return "hot"
    if is_closed(node):
        return "closed"
    if is_full(node, pods.requested.get(node.name, _NOTHING)):
        return "full"
    return "ranked" if node.name in loads else "unknown"


def host_names(nodes: Iterable[Node]) -> dict[str, str]:
    """By the node's name, the value of its hostname label, which stands for it in a preference;
    without nodes that no preference can name. kube-scheduler never places a pod whose preference
    has a value that no label can have, an empty one fits no node, and one of two nodes fits both.
    """
    found = {node.name: node.labels.get(keys.HOSTNAME_LABEL, "") for node in nodes}
    nodes_of = Counter(found.values())
    return {
        name: host
        for name, host in found.items()
        if host and is_label_value(host) and nodes_of[host] == 1
    }


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


def lists_that_fit(
    pools: Mapping[str, Sequence[Ranked]], nodes: int
) -> tuple[dict[str, tuple[NodeList, ...]], tuple[str, ...]]:
    """The lists of each pool's coolest nodes, and the pools for which the object has no room: those
    of the fewest nodes. Their pods get the lists for pods that choose no pool.
    """
    lists: dict[str, tuple[NodeList, ...]] = {}
    left_out, room = [], MAX_OBJECT
    for pool in sorted(pools, key=lambda pool: (pool != "", -len(pools[pool]), pool)):
        found = node_lists(pools[pool], nodes)
        size = len(pool) + _IN_JSON["pool"] + sum(map(_size, found))
        if size > room or len(lists) == MAX_POOLS:
            left_out.append(pool)
        else:
            lists[pool] = found
            room -= size
    return lists, tuple(left_out)


def _size(levels: NodeList) -> int:
    names = [name for level in levels for name in level.nodes]
    of_names = sum(map(len, names)) + len(names) * _IN_JSON["node"]
    return _IN_JSON["list"] + len(levels) * _IN_JSON["level"] + of_names


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
