"""Ranks the nodes by load. New pods get their preferences for nodes from this order.

`tiers` turns the ranks into lists (docs/decisions/0022-the-order-is-a-kind-of-its-own.md).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median_low
from typing import Final

from dynsched.core.evaluate import Evaluation
from dynsched.core.load.expected import KnownPods
from dynsched.core.load.pods import MIN_CPU, MIN_MEMORY, PodRequestTotals
from dynsched.core.node_table import NodeTable
from dynsched.core.nodes import Node, Taint, is_closed
from dynsched.features.order.tiers import FEW_NODES, NodeList, Pool, lists_that_fit, pool_of
from dynsched.features.placing import (
    FIRING,
    next_pod_loads,
    order_profile,
    placing_loads,
    threshold_load,
)
from dynsched.rules import keys
from dynsched.rules.labels import is_label_value

_NOTHING: Final = PodRequestTotals()
UNLISTED: Final = ("hot", "closed", "full", "unnamed")
"""Reasons why a node is in no list: see `Order.counts`."""


@dataclass(frozen=True, slots=True)
class Order:
    """The lists of preferences that new pods get.

    ``lists``: by pool, which is a value of the label ``pool_label``. The empty string is for pods
    that choose no pool. ``overflow_lists``: additional lists for pods that kube-scheduler does not
    spread by itself, without pools that have none.
    """

    lists: Mapping[str, tuple[NodeList, ...]]
    overflow_lists: Mapping[str, tuple[NodeList, ...]] = field(default_factory=dict)
    pool_label: str | None = None
    loads: Mapping[str, int] = field(default_factory=dict, repr=False, compare=False)
    """Known loads by host name, in tenths of a percent. They do not count in comparisons: an order
    with the same lists need not be written again."""
    counts: Mapping[str, int] = field(default_factory=dict, compare=False)
    """The number of nodes that are ``ranked`` by load, have ``unknown`` load, or are in no list
    because they are ``hot``, ``closed`` (`is_closed`, or a hard taint that is not their pool's),
    ``full`` or ``unnamed`` (not in `host_names`)."""
    pools: Mapping[str, Pool] = field(default_factory=dict, repr=False, compare=False)
    """The pools that the lists were made from."""


def compute_order(evaluation: Evaluation, pods: KnownPods) -> Order | None:
    """The order; None if the rules have no `order`, or if no node is known to be cool.

    A node of unknown load is ranked in the middle: it is neither avoided nor preferred.
    """
    rule_set, table = evaluation.rule_set, evaluation.table
    if rule_set.order is None:
        return None
    profile, packs = order_profile(rule_set, rule_set.order), rule_set.order.pack
    loads, _, line, ranking = placing_loads(evaluation, profile)
    cool = [load for load in loads.values() if load < FIRING]
    if not cool:
        return None
    hosts = host_names(table.nodes.values())
    not_listed = {name: why_not_listed(evaluation, pods, name, hosts) for name in table.entries}
    middle, steps = median_low(cool), next_pod_loads(evaluation, profile)
    listed = {name for name, why in not_listed.items() if why is None}
    # A list of "all but" must name a closed node only if no hard taint keeps pods away already.
    avoided = {
        name: hosts[name]
        for name, why in not_listed.items()
        if why == "hot" or (why == "closed" and not _stray_taints(table, name))
    }
    pools = {
        pool: pool_of(
            [(hosts[n], ranking.get(n, middle), steps[n]) for n in names if n in listed],
            [avoided[name] for name in names if name in avoided],
            line,
            threshold_load(profile) if len(names) <= FEW_NODES and not packs else 0,
            packs=packs,
            has_unnamed=any(not_listed[name] == "unnamed" for name in names),
        )
        for pool, names in _pools(evaluation).items()
        if not pool or not listed.isdisjoint(names)
    }
    lists, overflow = lists_that_fit(pools, len(table.entries))
    kinds = Counter(
        why or ("ranked" if name in loads else "unknown") for name, why in not_listed.items()
    )
    return Order(
        lists,
        overflow,
        rule_set.guard.pool_label,
        loads={hosts[name]: load for name, load in loads.items() if name in hosts},
        counts={kind: kinds[kind] for kind in ("ranked", "unknown", *UNLISTED)},
        pools={pool: pools[pool] for pool in lists},
    )


def _pools(evaluation: Evaluation) -> dict[str, list[str]]:
    """Node names by pool. The empty string, for pods that choose no pool, has the nodes without
    hard taints: a tainted node takes only pods of its pool.
    """
    label, pools = evaluation.rule_set.guard.pool_label, dict[str, list[str]]({"": []})
    for name, entry in evaluation.table.entries.items():
        if not entry.group.taints:
            pools[""].append(name)
        if label and entry.group.pool:
            pools.setdefault(entry.group.pool, []).append(name)
    return pools


def why_not_listed(
    evaluation: Evaluation, pods: KnownPods, name: str, hosts: Mapping[str, str]
) -> str | None:
    """Why a node is in no list (one of UNLISTED); None if it can be in one."""
    node = evaluation.table.entries[name].node
    if name not in hosts:
        return "unnamed"
    firing = evaluation.pressures[name].firing
    if firing and any(evaluation.fires_above_threshold(rule, name) for rule, _ in firing):
        return "hot"
    if node.taints and (is_closed(node) or _stray_taints(evaluation.table, name)):
        return "closed"
    return "full" if is_full(node, pods.requested.get(name, _NOTHING)) else None


def _stray_taints(table: NodeTable, name: str) -> frozenset[Taint]:
    """The node's hard taints that pods of its pool do not tolerate; all of them without a pool."""
    group = table.entries[name].group
    return group.taints - table.pool_taints.get(group.pool, frozenset())


def host_names(nodes: Iterable[Node]) -> dict[str, str]:
    """The hostname label of each node by node name, without nodes that no preference can name.

    kube-scheduler never places a pod whose preference has an invalid label value. An empty value
    matches no node, and a shared one matches several.
    """
    found = {node.name: node.labels.get(keys.HOSTNAME_LABEL, "") for node in nodes}
    nodes_of = Counter(found.values())
    return {
        name: host
        for name, host in found.items()
        if host and is_label_value(host) and nodes_of[host] == 1
    }


def is_full(node: Node, requested: PodRequestTotals) -> bool:
    """Whether the node has no room for the smallest pod, by the number of pods or by requests."""
    room = node.allocatable
    return (
        requested.pods + 1 > room.get("pods", math.inf)
        or requested.cpu + MIN_CPU > room.get("cpu", math.inf)
        or requested.memory + MIN_MEMORY > room.get("memory", math.inf)
    )
