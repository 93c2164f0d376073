"""Which nodes are cooler: the order by which the API server gives new pods preferences.

`order_lists` makes lists of it (docs/decisions/0022-the-order-is-a-kind-of-its-own.md).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from statistics import median_low
from typing import Final

from dynsched.engine.load.expected import KnownPods
from dynsched.engine.model import Node, Order
from dynsched.engine.nodes.eligibility import hard_taints, pool_of
from dynsched.engine.placing.order_lists import Ranked, lists_that_fit
from dynsched.engine.placing.score import (
    FIRING,
    next_pod_loads,
    node_loads,
    threshold_load,
    weighted,
)
from dynsched.engine.pod_values import MIN_CPU, MIN_MEMORY, Requested
from dynsched.engine.snapshot import NodeViews
from dynsched.rules import keys
from dynsched.rules.labels import is_label_value

_OF_KUBERNETES: Final = "node.kubernetes.io/"
_NOTHING: Final = Requested()
UNLISTED: Final = ("hot", "closed", "full", "unnamed")
"""Why a node is in no list: see `Order.counts`."""


def order_of(views: NodeViews, pods: KnownPods) -> Order | None:
    """The order by the last tick; None where the rules want none, or no node is known to be cool.

    A node of unknown load comes in the middle: it is neither avoided nor preferred.
    """
    rule_set = views.inventory.rule_set
    if rule_set.order is None:
        return None
    profile = weighted(rule_set, rule_set.order.score)
    loads = node_loads(views, profile)
    cool = [load for load in loads.values() if load < FIRING]
    if not cool:
        return None
    middle, label = median_low(cool), rule_set.guard.pool_label
    every, pools = views.inventory.nodes, dict[str, list[Ranked]]({"": []})
    hosts = host_names(every.values())
    kinds = {node.name: _kind(node, views, pods, loads, hosts) for node in every.values()}
    nodes = [node for node in every.values() if kinds[node.name] not in UNLISTED]
    nodes.sort(key=lambda node: (loads.get(node.name, middle), node.name))
    steps = next_pod_loads(views, profile)
    for node in nodes:
        ranked = Ranked(hosts[node.name], loads.get(node.name, middle), steps[node.name])
        if not _is_reserved(node):
            pools[""].append(ranked)
        if label and (pool := pool_of(node, rule_set.guard)):
            pools.setdefault(pool, []).append(ranked)
    counts = dict.fromkeys(("ranked", "unknown", *UNLISTED), 0) | Counter(kinds.values())
    sizes = Counter(pool_of(node, rule_set.guard) for node in every.values())
    sizes[""] = len(every)
    lists, further, left_out = lists_that_fit(pools, sizes, threshold_load(profile))
    of_hosts = {hosts[name]: load for name, load in loads.items() if name in hosts}
    return Order(lists, further, label, of_hosts, counts, left_out)


def why_unlisted(views: NodeViews, pods: KnownPods, name: str) -> str | None:
    """The one of UNLISTED for which this node is in no list of the order; None for another one."""
    every = views.inventory.nodes
    kind = _kind(every[name], views, pods, {}, host_names(every.values()))
    return kind if kind in UNLISTED else None


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


def _is_reserved(node: Node) -> bool:
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
