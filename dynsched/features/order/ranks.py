"""Which nodes are cooler: the order by which the API server gives new pods preferences.

`tiers` turns it into lists (docs/decisions/0022-the-order-is-a-kind-of-its-own.md).
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
"""Why a node is in no list: see `Order.counts`."""


@dataclass(frozen=True, slots=True)
class Order:
    """``lists`` by pool, a value of the label ``pool_label``; under the empty string those of all
    nodes, for pods that choose no pool. ``overflow_lists``: in addition, for pods that
    kube-scheduler does not spread by itself; a pool that has none is missing.
    """

    lists: Mapping[str, tuple[NodeList, ...]]
    overflow_lists: Mapping[str, tuple[NodeList, ...]] = field(default_factory=dict)
    pool_label: str | None = None
    loads: Mapping[str, int] = field(default_factory=dict, repr=False, compare=False)
    """Tenths of a percent, by host name, where they are known. An order is equal to one with other
    loads and the same ranks: it need not be written."""
    counts: Mapping[str, int] = field(default_factory=dict, compare=False)
    """How many nodes are ``ranked`` by their load, of ``unknown`` load, or in no list because they
    are ``hot``, ``closed`` (see `is_closed`; or a taint that is not their pool's keeps pods away),
    ``full`` or ``unnamed`` (see `host_names`)."""
    pools: Mapping[str, Pool] = field(default_factory=dict, repr=False, compare=False)
    """What the lists were made of."""


def compute_order(evaluation: Evaluation, pods: KnownPods) -> Order | None:
    """The order; None where the rules want none, or no node is known to be cool.

    A node of unknown load comes in the middle: it is neither avoided nor preferred.
    """
    rule_set, table = evaluation.rule_set, evaluation.table
    if rule_set.order is None:
        return None
    profile, packs = order_profile(rule_set, rule_set.order), rule_set.order.pack
    loads, _, line, judged = placing_loads(evaluation, profile)
    cool = [load for load in loads.values() if load < FIRING]
    if not cool:
        return None
    hosts = host_names(table.nodes.values())
    not_listed = {name: why_not_listed(evaluation, pods, name, hosts) for name in table.entries}
    middle, steps = median_low(cool), next_pod_loads(evaluation, profile)
    listed = {name for name, why in not_listed.items() if why is None}
    # "All but" has to name a closed node only where its taint does not keep pods away.
    avoided = {
        name: hosts[name]
        for name, why in not_listed.items()
        if why == "hot" or (why == "closed" and not _stray_taints(table, name))
    }
    pools = {
        pool: pool_of(
            [(hosts[n], judged.get(n, middle), steps[n]) for n in names if n in listed],
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
    """The names of the nodes of each pool; under the empty string those for pods that choose none:
    a tainted node takes only pods of its pool.
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
    """Why a node is in no list, one of UNLISTED; None when it is in one."""
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
    """Its hard taints that pods of its pool do not tolerate; without a pool, all."""
    group = table.entries[name].group
    return group.taints - table.pool_taints.get(group.pool, frozenset())


def host_names(nodes: Iterable[Node]) -> dict[str, str]:
    """By the node's name, the value of its hostname label, which stands for it in a preference;
    without nodes that no preference can name. kube-scheduler never places a pod whose preference
    has a value that no label can have; an empty value fits no node; a shared one fits both nodes.
    """
    found = {node.name: node.labels.get(keys.HOSTNAME_LABEL, "") for node in nodes}
    nodes_of = Counter(found.values())
    return {
        name: host
        for name, host in found.items()
        if host and is_label_value(host) and nodes_of[host] == 1
    }


def is_full(node: Node, requested: PodRequestTotals) -> bool:
    """Whether even the smallest pod has no room, by the number of pods or by their requests."""
    room = node.allocatable
    return (
        requested.pods + 1 > room.get("pods", math.inf)
        or requested.cpu + MIN_CPU > room.get("cpu", math.inf)
        or requested.memory + MIN_MEMORY > room.get("memory", math.inf)
    )
