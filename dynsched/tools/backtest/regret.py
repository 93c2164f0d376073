"""How many pods were placed onto a node that was over its threshold at that moment."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dynsched.engine.columns import Bools, Floats
from dynsched.engine.workloads import workload_of
from dynsched.tools.backtest.fetching import Query
from dynsched.tools.backtest.pod_placements import (
    RESOURCES,
    Placement,
    Placements,
    allocatable,
    requested,
)
from dynsched.tools.backtest.steps import Window
from dynsched.tools.backtest.tallies import Record
from dynsched.util.formatting import format_time

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Room:
    """By resource, shape (looks, nodes): what is not requested of nodes; NaN where not known."""

    window: Window
    free: Mapping[str, Floats]

    def has(self, at: float, requests: Mapping[str, float], nodes: Bools) -> Bools:
        """Which of the nodes had room for a pod at a moment."""
        row = min(max(0, self.window.index(at)), self.window.count - 1)
        found = nodes.copy()
        for resource, free in self.free.items():
            # What is not known is NaN, for which the comparison is false: no room.
            found &= free[row] >= requests.get(resource, 0.0)
        return found


def room_of(placements: Placements, find: Callable[[str], int | None], nodes: int) -> Room | None:
    """None where kube-state-metrics does not tell."""
    window = placements.room_window
    if window is None:
        return None
    free = {}
    for resource in RESOURCES:
        total, taken = (
            _values(placements, make(resource), find, nodes) for make in (allocatable, requested)
        )
        if np.isnan(total).all():
            return None
        # A node without pods has no series of requests.
        free[resource] = total - np.nan_to_num(taken)
    return Room(window, free)


def _values(
    placements: Placements, query: Query, find: Callable[[str], int | None], nodes: int
) -> Floats:
    past, window = placements.room[query], placements.room_window
    count = window.count if window else 0
    lanes = {name: lane for name in past.seen if (lane := find(name)) is not None}
    return past.values(0, count, lanes, nodes, rises=query.rises)


@dataclass(slots=True)
class _Sum:
    placed: int = 0
    hot: int = 0
    room: int = 0


def regret(
    placements: Placements,
    record: Record,
    find: Callable[[str], int | None],
    room: Room | None,
    *,
    first_mark: float | None,
    limits: Iterable[str],
) -> Json:
    """The JSON of it (docs/backtest.md)."""
    total, days, spaces, workloads = _Sum(), _sums(), _sums(), _sums()
    unknown = elsewhere = 0
    any_known = np.logical_or.reduce([*record.known.values()])
    counted = record.counted
    for pod in placements.pods:
        lane = find(pod.node)
        if lane is None:
            elsewhere += 1
            continue
        row = min(max(0, record.window.index(pod.at)), record.window.count - 1)
        hot = bool(record.over[row, lane])
        unknown += not any_known[row, lane]
        others = any_known[row] & counted[row] & ~record.over[row] & ~record.marked[row]
        had_room = hot and _had_room(room, pod, others)
        for each in (
            total,
            days[format_time(pod.at)[:10]],
            spaces[pod.namespace],
            workloads[workload_of(pod.namespace, pod.pod)],
        ):
            each.placed += 1
            each.hot += hot
            each.room += had_room
    told = list(limits)
    if room is None:
        told.append(
            "What nodes have to give is not known (kube_node_status_allocatable): any node that "
            "was neither hot nor marked counts as one with room."
        )
    if elsewhere:
        told.append(f"{elsewhere:,} pods were placed on nodes that are not among those replayed.")
    if unknown:
        told.append(f"Of {unknown:,} pods the load of the node was not known; they are not hot.")
    return {
        **_numbers(total),
        "pods_of_unknown_load": unknown,
        "pods_left_out": placements.pinned + placements.unplaced + elsewhere,
        "room_by": "requests" if room else "load",
        "placed_by": placements.metric,
        "first_mark_day": None if first_mark is None else format_time(first_mark)[:10],
        "days": [{"day": day, **_numbers(days[day])} for day in sorted(days)],
        "namespaces": _worst(spaces, "namespace"),
        "workloads": _worst(workloads, "workload"),
        "limits": told,
    }


def _had_room(room: Room | None, pod: Placement, others: Bools) -> bool:
    return bool((others if room is None else room.has(pod.at, pod.requests, others)).any())


def _sums() -> defaultdict[str, _Sum]:
    return defaultdict(_Sum)


def _numbers(each: _Sum) -> Json:
    return {
        "pods_placed": each.placed,
        "pods_on_hot": each.hot,
        "share_on_hot": round(each.hot / each.placed, 6) if each.placed else None,
        "pods_with_room": each.room,
    }


def _worst(found: Mapping[str, _Sum], name: str) -> list[Json]:
    ordered = sorted(found, key=lambda key: (-found[key].hot, -found[key].placed, key))
    return [{name: key, **_numbers(found[key])} for key in ordered]
