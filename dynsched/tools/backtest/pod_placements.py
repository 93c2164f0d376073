"""Where pods were placed, and what room nodes had, by kube-state-metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from dynsched.engine.columns import Bools, Floats
from dynsched.engine.match import NodeIndex, spellings
from dynsched.engine.model import Series
from dynsched.engine.wording import counted
from dynsched.sources import page_facts
from dynsched.sources.prometheus import PrometheusSource
from dynsched.sources.prometheus.decode import AnswerLimit
from dynsched.tools.backtest.fetching import Fetcher, Query
from dynsched.tools.backtest.steps import Window, window_of
from dynsched.util.formatting import format_time

SLICE: Final = 10_800.0
"""Seconds of placements that one query asks for."""
OVERLAP: Final = 900.0
"""Seconds after its binding within which a pod must have been scraped, to be in the next slice."""
ROOM_STEP: Final = 300.0
"""Seconds between two looks at the room of nodes."""
_LIMIT: Final = AnswerLimit(0, 100_000, 64 << 20)
_PINNED: Final = frozenset({"DaemonSet", "Node"})
"""What makes pods that belong to one node each: no scheduler could have placed them elsewhere."""
_POD: Final = "namespace, pod, uid"
_LOOKS: Final = 24

SCHEDULED: Final = "kube_pod_status_scheduled_time"
CREATED: Final = "kube_pod_created"
RESOURCES: Final = ("cpu", "memory")

PodKey = tuple[str, str, str]
"""Namespace, name, uid."""
Find = Callable[[str], int]
"""The name of a node -> its place; -1 where it has none."""


@dataclass(frozen=True, slots=True)
class Placement:
    """One pod, bound to a node at a moment (Unix seconds)."""

    namespace: str
    pod: str
    place: int
    """Of the node."""
    at: float
    requests: Mapping[str, float]
    """In cores and bytes, by resource; without those that it does not request."""


@dataclass(frozen=True, slots=True)
class Room:
    """By resource, shape (looks, nodes): what is not requested of nodes; NaN where not known."""

    window: Window
    free: Mapping[str, Floats]

    def has(self, pod: Placement, nodes: Bools) -> Bools:
        """Which of the nodes had room for a pod when it was placed."""
        row = self.window.row(pod.at)
        found = nodes.copy()
        for resource, free in self.free.items():
            # What is not known is NaN, for which the comparison is false: no room.
            found &= free[row] >= pod.requests.get(resource, 0.0)
        return found


@dataclass(frozen=True, slots=True)
class Placements:
    """What is known of placements in a window."""

    pods: Sequence[Placement]
    room: Room | None
    """None where kube-state-metrics does not tell."""
    told: Mapping[str, Any]
    """What of the report is the same for every replay."""
    limits: Sequence[str]
    """Of what is said, a sentence each."""


async def placements_of(
    source: PrometheusSource,
    window: Window,
    folder: Path,
    address: str,
    *,
    find: Find,
    nodes: int,
    told: Callable[[int, int], None],
) -> Placements | None:
    """All that were placed in the window; None where kube-state-metrics is not in this Prometheus.
    What fails is told in ``limits``.
    """
    metric = await _metric(source, window)
    if metric is None:
        return None
    seen = _Seen()
    count = max(1, -int(-(window.end - window.start) // SLICE))
    for number in range(count):
        begun = window.start + number * SLICE
        await seen.ask(source, metric, begun, min(window.end, begun + SLICE))
        told(number + 1, count)
    room, missing = await _room(source, window, folder, address, find=find, nodes=nodes)
    placed = seen.nodes.keys() - seen.pinned
    pods = [
        Placement(*key[:2], find(seen.nodes[key]), at, seen.requests.get(key, {}))
        for key, at in seen.times.items()
        if key in placed and window.start <= at <= window.end
    ]
    here = [pod for pod in pods if pod.place >= 0]
    unplaced, elsewhere = len(seen.times.keys() - seen.nodes.keys()), len(pods) - len(here)
    limits = {
        "Pods that lived shorter than a scrape are invisible.": True,
        "Room is room by requests; overhead, taints, affinity and volumes are not looked at.": True,
        (
            f"{SCHEDULED} is not there: a pod counts at the moment when it was created "
            f"({CREATED}), which may be long before it was placed."
        ): metric == CREATED,
        (
            f"{counted(len(seen.pinned), 'pod')} of DaemonSets, or static, are left out: no "
            "scheduler chose their nodes."
        ): seen.pinned,
        f"{counted(unplaced, 'pod')} left out, whose node is not known.": unplaced,
        **{f"A part is missing: {error}.": True for error in sorted(seen.errors | missing)[:3]},
        (
            "What nodes have to give is not known (kube_node_status_allocatable): any node that "
            "was neither hot nor marked counts as one with room."
        ): room is None,
        f"{elsewhere:,} pods were placed on nodes that are not among those replayed.": elsewhere,
    }
    told_of_all = {
        "pods_left_out": len(seen.pinned) + unplaced + elsewhere,
        "room_by": "requests" if room else "load",
        "placed_by": metric,
        "first_mark_day": await _first_mark(source, window),
    }
    return Placements(
        here, room, told_of_all, [said for said, applies in limits.items() if applies]
    )


@dataclass(frozen=True, slots=True)
class _Seen:
    """What came of the pods, slice after slice. Of one that is in several, the last word counts."""

    times: dict[PodKey, float] = field(default_factory=dict)
    nodes: dict[PodKey, str] = field(default_factory=dict)
    requests: dict[PodKey, dict[str, float]] = field(default_factory=dict)
    pinned: set[PodKey] = field(default_factory=set)
    errors: set[str] = field(default_factory=set)

    async def ask(self, source: PrometheusSource, metric: str, begun: float, ended: float) -> None:
        """Pods that were bound between two moments."""

        async def series(expr: str) -> Sequence[Series]:
            answer = await source.query_range(expr, ended, ended, 1.0, limit=_LIMIT)
            self.errors.update([answer.error] if answer.error else [])
            return answer.series

        over = f"[{max(1, round(ended - begun + OVERLAP))}s]"
        placed = f"(max by ({_POD}) (last_over_time({metric}{over})) >= {begun - OVERLAP:.0f})"
        for one in await series(placed):
            self.times[_key(one)] = one.points[-1][1]
        info = f"last_over_time(kube_pod_info{{node!=''}}{over})"
        by = f"max by ({_POD}, node, created_by_kind) ({info}) and on ({_POD}) {placed}"
        for one in await series(by):
            self.nodes[_key(one)] = one.labels["node"]
            if one.labels.get("created_by_kind") in _PINNED:
                self.pinned.add(_key(one))
        asks = page_facts.of_containers(f"resource=~'{'|'.join(RESOURCES)}'", over)
        by = f"sum by ({_POD}, resource) ({asks}) and on ({_POD}) {placed}"
        for one in await series(by):
            wanted = self.requests.setdefault(_key(one), {})
            wanted[one.labels.get("resource", "")] = one.points[-1][1]


def _key(one: Series) -> PodKey:
    labels = one.labels
    return labels.get("namespace", ""), labels.get("pod", ""), labels.get("uid", "")


async def _metric(source: PrometheusSource, window: Window) -> str | None:
    step = max(1.0, (window.end - window.start) / _LOOKS)
    for metric in (SCHEDULED, CREATED):
        answer = await source.query_range(f"count({metric})", window.start, window.end, step)
        if answer.series:
            return metric
    return None


async def _room(
    source: PrometheusSource, window: Window, folder: Path, address: str, *, find: Find, nodes: int
) -> tuple[Room | None, set[str]]:
    """And why a part of it is missing."""
    looks = window_of(window.start, window.end, max(ROOM_STEP, window.step))
    has = [
        f'max by (node) (kube_node_status_allocatable{{resource="{resource}"}})'
        for resource in RESOURCES
    ]
    queries = [Query(expr, ("node",), rises=False) for expr in has]
    queries += [Query(page_facts.requested(each), ("node",), rises=True) for each in RESOURCES]
    pasts = await Fetcher(source, looks, folder, address).fetch(dict.fromkeys(queries, nodes))
    errors = {missing.error for past in pasts.values() for missing in past.missing}
    cpu, memory, *taken = (
        past.values(0, looks.count, find, nodes, rises=query.rises) for query, past in pasts.items()
    )
    if np.isnan(cpu).all() or np.isnan(memory).all():
        return None, errors
    # A node without pods has no series of requests.
    free = [total - np.nan_to_num(used) for total, used in zip((cpu, memory), taken, strict=True)]
    return Room(looks, dict(zip(RESOURCES, free, strict=True))), errors


async def _first_mark(source: PrometheusSource, window: Window) -> str | None:
    step = max(window.step, (window.end - window.start) / 5000)
    expr = "max(dynsched_marked_nodes) > 0"
    answer = await source.query_range(expr, window.start, window.end, step)
    first = min((one.points[0][0] for one in answer.series), default=None)
    return None if first is None else format_time(first)[:10]


async def place_finder(source: PrometheusSource, window: Window, index: NodeIndex) -> Find:
    """For the names that kube-state-metrics gives nodes. Without a cluster ours may be addresses
    with a port, which kube_node_info says whose they are.
    """
    by_spelling: dict[str, set[int]] = {}
    for place, name in enumerate(index.roster.names):
        for spelling in spellings(name):
            by_spelling.setdefault(spelling, set()).add(place)
    over = f"[{max(1, round(window.end - window.start))}s]"
    expr = f"max by (node, internal_ip) (last_over_time(kube_node_info{over}))"
    answer = await source.query_range(expr, window.end, window.end, 1.0, limit=_LIMIT)
    address = {
        one.labels["node"]: one.labels.get("internal_ip", "")
        for one in answer.series
        if "node" in one.labels
    }

    def find(node: str) -> int:
        for text in (node, address.get(node, "")):
            alike = {index.place_of(text)[0]} - {-1} or by_spelling.get(text, set())
            if len(alike) == 1:
                return next(iter(alike))
        return -1

    return find
