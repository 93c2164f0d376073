"""Early marks: how far each node's expected load is above the mean of its pool.

Where the scheduler is to prefer a node is decided between nodes: one that has more load than the
mean gets enough pods already. So it is marked before it is hot, and pods go to the others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from dynsched.core.guard import pool_of
from dynsched.core.loads import rule_load
from dynsched.core.model import Node, Quality, Reading
from dynsched.core.pods import Added
from dynsched.core.rules import FileRule, GuardRules

_NOTHING = Added(0.0, 0.0)


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

    The mean is that of the ``eligible`` nodes of a pool, weighted by what they have of the rule's
    resource: the share of the pool that is used.
    """
    at_least = rule.early.mean_at_least if rule.early else 0.0
    loads: dict[str, float] = {}
    totals: dict[str, float] = defaultdict(float)
    weights: dict[str, float] = defaultdict(float)
    for name, reading in readings.items():
        load = rule_load(rule, reading.value)
        if load is None or name not in nodes:
            continue
        loads[name] = added.get(name, _NOTHING).to(load)
        if name in eligible:
            pool = pool_of(eligible[name], guard)
            weight = eligible[name].allocatable.get(rule.resource, 1.0) if rule.resource else 1.0
            totals[pool] += weight * loads[name]
            weights[pool] += weight
    means = {
        pool: max(at_least, totals[pool] / weight) for pool, weight in weights.items() if weight
    }
    return {
        name: replace(
            readings[name],
            value=load - means.get(pool_of(nodes[name], guard), at_least),
            quality=Quality.OK,
        )
        for name, load in loads.items()
    }
