"""A model of the descheduler as manifests/components/descheduler configures it.

Its plugin LowNodeUtilization uses the verdict of every node.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from closedloop.workload import Pod
from dynsched.web.node_series import COOL, HOT

EVERY: Final = 300
"""Seconds between two cycles: covers the rate's range, a scrape, and a pod's stop and start."""
PER_NODE: Final = 1
TOTAL: Final = 3
"""Limits on evictions in one cycle."""
MIN_AGE: Final = 1800.0
"""Minimum age of an evicted pod in seconds (``minPodAge``)."""
NUMBER_OF_NODES: Final = 1
"""Pods are evicted only if more nodes than this are clean."""


class Running(NamedTuple):
    """A running pod: its node, since when (in seconds), and its current use (in cores)."""

    pod: Pod
    node: int
    since: float
    uses: float


def evictions(
    verdicts: Mapping[int, float], running: Mapping[str, Running], now: float
) -> list[Running]:
    """The pods that one cycle evicts. ``verdicts``: by node. ``running``: by pod uid."""
    clean = sum(verdict == COOL for verdict in verdicts.values())
    if clean <= NUMBER_OF_NODES:
        return []
    per_node: dict[int, list[Running]] = {node: [] for node, it in verdicts.items() if it == HOT}
    for each in running.values():
        if each.node in per_node and now - each.since >= MIN_AGE:
            per_node[each.node].append(each)
    chosen = [each for found in per_node.values() for each in found[:PER_NODE]]
    return chosen[:TOTAL]
