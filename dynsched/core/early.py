"""Early marks: how far each node's expected load is above the mean of its pool.

Where the scheduler is to prefer a node is decided between nodes: one that has more load than the
mean gets enough pods already. So it is marked before it is hot, and pods go to the others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Final

from dynsched.core.guard import pool_of
from dynsched.core.loads import rule_loads
from dynsched.core.model import Node, Reading
from dynsched.core.pods import Added
from dynsched.core.rules import FileRule
from dynsched.core.sections import GuardRules

_UNSCHEDULABLE: Final = "node.kubernetes.io/unschedulable"


def above_mean(
    rule: FileRule,
    readings: Mapping[str, Reading],
    added: Mapping[str, Added],
    nodes: Mapping[str, Node],
    *,
    eligible: Mapping[str, Node],
    guard: GuardRules,
) -> dict[str, Reading]:
    """A reading in points for each node that has a good one for ``rule``, which has ``early``.

    The mean is that of the ``eligible`` nodes of a pool, without cordoned ones, weighted by what
    they have of the rule's resource: the share of the pool that is used.
    """
    at_least = rule.early.mean_at_least if rule.early else 0.0
    loads = rule_loads(
        rule, {name: reading.value for name, reading in readings.items() if name in nodes}
    )
    for name, more in added.items():
        loads[name] = more.to(loads[name])
    totals: dict[str, float] = defaultdict(float)
    weights: dict[str, float] = defaultdict(float)
    for name, load in loads.items():
        node = eligible.get(name)
        if node is not None and not is_cordoned(node):
            pool = pool_of(node, guard)
            weight = node.allocatable.get(rule.resource, 1.0) if rule.resource else 1.0
            totals[pool] += weight * load
            weights[pool] += weight
    means = {
        pool: max(at_least, totals[pool] / weight) for pool, weight in weights.items() if weight
    }
    return {
        name: Reading(
            name,
            load - means.get(pool_of(nodes[name], guard), at_least),
            readings[name].timestamp,
        )
        for name, load in loads.items()
    }


def is_cordoned(node: Node) -> bool:
    """Whether no pod is placed there: a drained node would pull the mean down."""
    return any(taint.get("key") == _UNSCHEDULABLE for taint in node.taints)
