"""The state of the order (docs/order.md), for `/order`, metrics and the page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from dynsched.core.health import unusable_rules
from dynsched.core.load.expected import NO_PODS, KnownPods
from dynsched.core.load.pods import error_of_requests
from dynsched.core.tick import Tick
from dynsched.core.wording import by_reason, named_rules
from dynsched.features.order.ranks import Order, host_names, why_not_listed
from dynsched.features.placing import TENTHS
from dynsched.rules.keys import HOSTNAME_LABEL
from dynsched.util.formatting import format_time


class LastOrder(NamedTuple):
    """An order that is in force, written at ``at`` and expiring at ``until``.

    Times are Unix seconds, ``until`` by the API server's clock (with the webhook, by ours).
    """

    order: Order
    at: float
    until: float


@dataclass(slots=True, eq=False)
class OrderStatus:
    """The newest order and the results of its writes."""

    order: Order | None = None
    """None before the first tick, while ticks are overdue, while the rules have no `order`, and
    while no node is known to be cool."""
    pods: KnownPods = NO_PODS
    """What was known of pods in the tick of ``order``."""
    in_force: LastOrder | None = None
    """The order that this replica wrote, or that its webhook gives to pods. None on a follower
    (except with the webhook), in a dry run, and after a withdrawal."""
    error: str | None = None
    """Why the last call to the API server failed; None if it succeeded."""
    unknown: str | None = None
    """Why no rule that ranks the nodes has a usable answer, so that there is no order. None if
    there is an order, or if there is none because all nodes are hot."""
    by: str = "policy"
    """How pods get the order: ``policy`` or ``webhook``."""
    calls: dict[str, int] = field(default_factory=lambda: {"ok": 0, "failed": 0})

    @property
    def problem(self) -> str | None:
        """Why the order cannot be computed or written, in one line; None if it can."""
        return self.error or self.unknown


def why_unknown(tick: Tick) -> str | None:
    """Why no load is known to rank nodes by; None if one is, or if the rules have no `order`."""
    if tick.rule_set.order is None:
        return None
    unusable = unusable_rules(tick, tick.rule_set.order.score)
    if len(unusable) < len(tick.rule_set.order.score):
        return None
    why, names = next(iter(by_reason(unusable).items()))
    return f"{named_rules(names)}: {why}"


class NodeInOrder(msgspec.Struct, frozen=True, gc=False):
    """A node of `/order`.

    ``rank``: by load, from 1 in each pool. ``equal``: whether the load is not above the line, so
    that kube-scheduler decides. ``list``: the number of the pool's list that has the node, from 1.
    ``weight``: of the node in this list. ``load``: expected load in percent; None if unknown.
    """

    node: str
    rank: int
    equal: bool
    list: int
    weight: int
    load: float | None


def nodes_of(order: Order, pool: str) -> Iterator[NodeInOrder]:
    """The nodes in the lists of a pool, by rank."""
    of_pool, lists = order.pools[pool], order.lists[pool]
    placed = {
        host: (number, tier.weight)
        for number, tiers in enumerate(lists, 1)
        for tier in tiers
        if not tier.all_but
        for host in tier.nodes
    }
    unnamed = (1, 100) if any(not tiers or tiers[0].all_but for tiers in lists) else (0, 0)
    for rank, node in enumerate(of_pool.ranked, 1):
        number, weight = placed.get(node.host, unnamed)
        if weight:
            load, is_equal = order.loads.get(node.host), node.counts_as <= of_pool.line
            percent = None if load is None else load / TENTHS
            yield NodeInOrder(node.host, rank, is_equal, number, weight, percent)


def order_answer(tick: Tick, status: OrderStatus, leader: str | None) -> dict[str, Any]:
    """The body of `/order`."""
    order, written = status.order, status.in_force
    return {
        "taken_at": format_time(tick.taken_at),
        "dry_run": tick.leadership.dry_run,
        "leading": tick.leadership.leading,
        "leader": leader,
        "by": status.by,
        "written_at": written and format_time(written.at),
        "until": written and format_time(written.until),
        "error": status.problem,
        "counts": order and order.counts,
        "error_of_requests": _requests_of(tick),
        "pools": [
            {
                "pool": pool,
                "equal_below": order.pools[pool].line / TENTHS,
                "nodes": list(nodes_of(order, pool)),
            }
            for pool in order.lists
        ]
        if order
        else [],
    }


def _requests_of(tick: Tick) -> dict[str, float]:
    """How far requests are from the use of new pods in percent, by rule of ``order.score``; without
    rules for which it is not known.
    """
    pods = [pod for pod, bound, _ in tick.pods.recent if bound is not None]
    score = tick.rule_set.order.score if tick.rule_set.order else ()
    uses = {rule: found.use for rule, found in tick.evaluation.expected.items() if rule in score}
    errors = {rule: error_of_requests(use, pods) for rule, use in uses.items()}
    return {rule: error for rule, error in errors.items() if error is not None}


def place_of(tick: Tick, order: Order, name: str) -> dict[str, Any]:
    """A node's ranks, in its pool and for pods that choose no pool; or why it has no rank."""
    table = tick.evaluation.table
    host = table.nodes[name].labels.get(HOSTNAME_LABEL)
    found = {}
    for pool in dict.fromkeys(("", table.entries[name].group.pool)):
        nodes = list(nodes_of(order, pool)) if pool in order.lists else ()
        for each in nodes:
            if each.node == host:
                found[pool] = {"rank": each.rank, "of": len(nodes), "weight": each.weight}
    hosts = host_names(table.nodes.values())
    why = None if found else why_not_listed(tick.evaluation, tick.pods, name, hosts)
    return {"pools": found, "why": why}


def for_the_page(order: Order) -> dict[str, Any]:
    """The order for pods that choose no pool: loads and weights of the nodes, by rank."""
    nodes = list(nodes_of(order, ""))
    return {
        "counts": order.counts,
        "lists": len(order.lists[""]),
        "equal_below": order.pools[""].line / TENTHS,
        "loads": [node.load for node in nodes],
        "weights": [node.weight for node in nodes],
    }
