"""What is told of the order of the nodes (docs/order.md): `/order`, metrics, a part of the page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, NamedTuple

import msgspec
from prometheus_client.metrics_core import CounterMetricFamily, Metric

from dynsched.api.metrics import gauge
from dynsched.api.status import first_of
from dynsched.engine.model import Order
from dynsched.engine.placing.order import UNLISTED, why_unlisted
from dynsched.engine.placing.score import TENTHS
from dynsched.engine.snapshot import Snapshot
from dynsched.rules.keys import HOSTNAME_LABEL
from dynsched.util.formatting import format_time


class LastOrder(NamedTuple):
    """Times are Unix seconds, ``until`` by the API server's clock."""

    order: Order
    at: float
    until: float


@dataclass(slots=True, eq=False)
class OrderStatus:
    """What came of the calls to the API server, and with ``snapshot``, the last one, the metrics of
    the order. ``in_force``: None on a follower, and where the order was withdrawn.
    """

    snapshot: Callable[[], Snapshot | None]
    in_force: LastOrder | None = None
    error: str | None = None
    """Why the last call failed; None where it did not."""
    calls: dict[str, int] = field(default_factory=lambda: {"ok": 0, "failed": 0})

    def collect(self) -> Iterator[Metric]:
        """Called by the registry of metrics."""
        name = "dynsched_order_writes"
        text = "Writes and deletions of the order, by result."
        writes = CounterMetricFamily(name, text, labels=["result"])
        for result, count in self.calls.items():
            writes.add_metric([result], count)
        yield writes
        if self.in_force is not None:
            yield gauge("order_last_write_timestamp_seconds", value=self.in_force.at)
        snapshot = self.snapshot()
        if snapshot is None or snapshot.order is None:
            return
        order, pods = snapshot.order, snapshot.pods
        yield gauge("order_nodes", "pool", {pool: _length(order, pool) for pool in order.lists})
        unlisted = {kind: order.counts[kind] for kind in UNLISTED}
        yield gauge("order_unlisted_nodes", "reason", unlisted)
        yield gauge("order_left_out_pools", value=len(order.left_out))
        if pods.running is not None:
            yield gauge("order_pods", value=pods.with_order)


class NodeInOrder(msgspec.Struct, frozen=True, gc=False):
    """``rank``: by load, from 1 in each pool. ``list``, from 1: in which of the pool's lists it is,
    with this ``weight``. ``load``: the expected one, in points; None: it is not known.
    """

    node: str
    rank: int
    list: int
    weight: int
    load: float | None


def nodes_of(order: Order, pool: str) -> Iterator[NodeInOrder]:
    """By rank."""
    lists = [
        [(node, level.weight) for level in levels for node in level.nodes]
        for levels in order.lists[pool]
    ]
    # Each list has every nth node by rank.
    by_rank = (found for row in zip_longest(*lists) for found in row if found is not None)
    for at, (node, weight) in enumerate(by_rank):
        load = order.loads.get(node)
        points = None if load is None else load / TENTHS
        yield NodeInOrder(node, at + 1, at % len(lists) + 1, weight, points)


def order_answer(
    snapshot: Snapshot, order: Order | None, status: OrderStatus | None, leader: str | None
) -> dict[str, Any]:
    """The body of `/order`. ``order``: None while none is in force."""
    written = status and status.in_force
    return {
        "taken_at": format_time(snapshot.taken_at),
        "dry_run": snapshot.dry_run,
        "leading": snapshot.leading,
        "leader": leader,
        "written_at": written and format_time(written.at),
        "until": written and format_time(written.until),
        "error": status and status.error,
        "counts": order and order.counts,
        "left_out_pools": order and first_of(order.left_out),
        "pools": [{"pool": pool, "nodes": list(nodes_of(order, pool))} for pool in order.lists]
        if order
        else [],
    }


def place_of(snapshot: Snapshot, order: Order, name: str) -> dict[str, Any]:
    """Where a node is in the order, by its pool and for pods that choose none, or why it is not."""
    nodes = snapshot.nodes
    host = nodes.inventory.nodes[name].labels.get(HOSTNAME_LABEL)
    own = nodes.pools_at(nodes.indices_of([name]))
    pools = [pool for pool in ("", *own) if pool in order.lists]
    found = {
        pool: {"rank": each.rank, "of": _length(order, pool), "weight": each.weight}
        for pool in pools
        for each in nodes_of(order, pool)
        if each.node == host
    }
    why = None if found else why_unlisted(nodes, snapshot.pods, name)
    return {"pools": found, "why": why}


def for_the_page(order: Order) -> dict[str, Any]:
    """The order for pods that choose no pool: of each node by rank its load and its weight."""
    nodes = list(nodes_of(order, ""))
    return {
        "counts": order.counts,
        "lists": len(order.lists[""]),
        "loads": [node.load for node in nodes],
        "weights": [node.weight for node in nodes],
    }


def _length(order: Order, pool: str) -> int:
    return sum(len(level.nodes) for levels in order.lists[pool] for level in levels)
