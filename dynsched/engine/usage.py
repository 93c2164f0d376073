"""From what metrics-server measures on nodes to samples: usage in per cent of allocatable."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from dynsched.engine.model import Node, Sample

_SHOWN: Final = 3
"""How many nodes a warning names."""


@dataclass(frozen=True, slots=True)
class NodeUsage:
    """One NodeMetrics: what a node uses, and when that was measured (Unix seconds).

    ``amounts`` are in cores (``cpu``) and bytes (``memory``), without what could not be read;
    ``taken_at`` is None where the time could not be.
    """

    node: str
    amounts: Mapping[str, float]
    taken_at: float | None


def utilization(
    resource: str, usages: Iterable[NodeUsage], nodes: Mapping[str, Node], *, label: str = "node"
) -> tuple[tuple[Sample, ...], tuple[str, ...]]:
    """A sample for each usage, named by ``label``, and warnings about those that have no value.

    Such a sample is NaN, hence unknown, never 0: the usage or its time could not be read, or the
    node has no allocatable. A node that is not in ``nodes`` gives one too, which then matches
    nothing. What was measured before a node was made is of a former one of its name, and left out.
    """
    samples = []
    unreadable: dict[str, list[str]] = {}
    for usage in usages:
        value, problem = math.nan, None
        node = nodes.get(usage.node)
        if node is not None and usage.taken_at is not None and usage.taken_at < node.created:
            continue
        used = usage.amounts.get(resource)
        if used is None:
            problem = f"no {resource} usage in its NodeMetrics"
        elif usage.taken_at is None:
            problem = "no timestamp in its NodeMetrics"
        elif node is not None and not node.allocatable.get(resource):
            problem = f"no allocatable {resource} in the Node's status"
        elif node is not None:
            value = used / node.allocatable[resource] * 100
        if problem is not None:
            unreadable.setdefault(problem, []).append(usage.node)
        samples.append(Sample({label: usage.node}, value, usage.taken_at or 0.0))
    return tuple(samples), tuple(_warning(*entry) for entry in unreadable.items())


def _warning(problem: str, names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{', '.join(sorted(names)[:_SHOWN])}{more}: {problem}"
