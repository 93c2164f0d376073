"""Where pods were placed, and what room nodes had, by kube-state-metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from dynsched.engine.match import NodeIndex, spellings
from dynsched.engine.wording import counted
from dynsched.sources import page_queries
from dynsched.sources.prometheus import LongSeries, PrometheusSource
from dynsched.sources.prometheus.answer_limit import AnswerLimit
from dynsched.tools.backtest.fetching import Fetcher, Past, Query
from dynsched.tools.backtest.steps import Window, window_of
from dynsched.tools.backtest.world import World

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


@dataclass(frozen=True, slots=True)
class Placement:
    """One pod, bound to a node at a moment (Unix seconds)."""

    namespace: str
    pod: str
    node: str
    at: float
    requests: Mapping[str, float]
    """In cores and bytes, by resource; without those that it does not request."""


@dataclass(frozen=True, slots=True)
class Placements:
    """What is known of placements in a window."""

    metric: str
    """By which metric the moments are known: SCHEDULED or CREATED."""
    pods: tuple[Placement, ...]
    pinned: int
    """Pods that belong to one node each; they are not among ``pods``."""
    unplaced: int
    """Pods whose node is not known."""
    room: Mapping[Query, Past] = field(default_factory=dict)
    """What nodes have to give, and what is requested of it, over ``room_window``."""
    room_window: Window | None = None
    errors: tuple[str, ...] = ()
    """Why a part of it is missing."""


def allocatable(resource: str) -> Query:
    """What nodes have to give."""
    return Query(
        f'max by (node) (kube_node_status_allocatable{{resource="{resource}"}})',
        ("node",),
        rises=False,
    )


def requested(resource: str) -> Query:
    """What the pods that run on nodes, or are about to, request."""
    return Query(page_queries.requested(resource), ("node",), rises=True)


async def metric_of_placements(source: PrometheusSource, window: Window) -> str | None:
    """By what moments are known; None where kube-state-metrics is not in this Prometheus."""
    step = max(1.0, (window.end - window.start) / _LOOKS)
    for metric in (SCHEDULED, CREATED):
        answer = await source.query_range(f"count({metric})", window.start, window.end, step)
        if answer.series:
            return metric
    return None


async def placements_of(
    source: PrometheusSource,
    window: Window,
    metric: str,
    folder: Path,
    address: str,
    *,
    nodes: int,
    told: Callable[[int, int], None],
) -> Placements:
    """All that were placed in the window. What fails is in ``errors``."""
    asked = _Slices(source, metric)
    count = max(1, -int(-(window.end - window.start) // SLICE))
    for number in range(count):
        begun = window.start + number * SLICE
        await asked.ask(begun, min(window.end, begun + SLICE))
        told(number + 1, count)
    room_window = window_of(window.start, window.end, max(ROOM_STEP, window.step))
    queries = [make(resource) for resource in RESOURCES for make in (allocatable, requested)]
    room = await Fetcher(source, room_window, folder, address).fetch(dict.fromkeys(queries, nodes))
    errors = {missing.error for past in room.values() for missing in past.missing}
    inside = [pod for pod in asked.found() if window.start <= pod.at <= window.end]
    return Placements(
        metric=metric,
        pods=tuple(sorted(inside, key=lambda pod: (pod.at, pod.namespace, pod.pod))),
        pinned=len(asked.pinned),
        unplaced=len(asked.times.keys() - asked.nodes.keys()),
        room=room,
        room_window=room_window,
        errors=tuple(sorted(errors | asked.errors)),
    )


class _Slices:
    """Gathers slice after slice. Of a pod that is in several, the last word counts."""

    def __init__(self, source: PrometheusSource, metric: str) -> None:
        self._source = source
        self._metric = metric
        self.times: dict[PodKey, float] = {}
        self.nodes: dict[PodKey, str] = {}
        self.requests: dict[PodKey, dict[str, float]] = {}
        self.pinned: set[PodKey] = set()
        self.errors: set[str] = set()

    async def ask(self, begun: float, ended: float) -> None:
        """Pods that were bound between two moments."""
        over = f"[{max(1, round(ended - begun + OVERLAP))}s]"
        placed = (
            f"(max by ({_POD}) (last_over_time({self._metric}{over})) >= {begun - OVERLAP:.0f})"
        )
        for one in await self._series(placed, ended):
            self.times[_key(one)] = one.values[-1]
        info = f"last_over_time(kube_pod_info{{node!=''}}{over})"
        by = f"max by ({_POD}, node, created_by_kind) ({info}) and on ({_POD}) {placed}"
        for one in await self._series(by, ended):
            self.nodes[_key(one)] = one.labels["node"]
            if one.labels.get("created_by_kind") in _PINNED:
                self.pinned.add(_key(one))
        resources = "|".join(RESOURCES)
        asks = page_queries.of_containers(f"resource=~'{resources}'", over)
        by = f"sum by ({_POD}, resource) ({asks}) and on ({_POD}) {placed}"
        for one in await self._series(by, ended):
            wanted = self.requests.setdefault(_key(one), {})
            wanted[one.labels.get("resource", "")] = one.values[-1]

    async def _series(self, expr: str, at: float) -> Iterable[LongSeries]:
        answer = await self._source.query_long(expr, at, at, 1.0, limit=_LIMIT)
        if answer.error is not None:
            self.errors.add(answer.error)
        return answer.series

    def found(self) -> Iterable[Placement]:
        """Those whose node is known, but for pinned ones."""
        for key, at in self.times.items():
            node = self.nodes.get(key)
            if node is not None and key not in self.pinned:
                yield Placement(key[0], key[1], node, at, self.requests.get(key, {}))


def _key(one: LongSeries) -> PodKey:
    labels = one.labels
    return labels.get("namespace", ""), labels.get("pod", ""), labels.get("uid", "")


async def lanes_by_node(
    source: PrometheusSource, window: Window, index: NodeIndex, world: World
) -> Callable[[str], int | None]:
    """From the names that kube-state-metrics gives nodes to their places in ``world``. Without a
    cluster these may be addresses with a port, which kube_node_info says whose they are.
    """
    places = {name: number for number, name in enumerate(world.names)}
    by_spelling: dict[str, set[int]] = {}
    for name, number in places.items():
        for spelling in spellings(name):
            by_spelling.setdefault(spelling, set()).add(number)
    over = f"[{max(1, round(window.end - window.start))}s]"
    expr = f"max by (node, internal_ip) (last_over_time(kube_node_info{over}))"
    answer = await source.query_long(expr, window.end, window.end, 1.0, limit=_LIMIT)
    address = {
        one.labels["node"]: one.labels.get("internal_ip", "")
        for one in answer.series
        if "node" in one.labels
    }

    def find(node: str) -> int | None:
        for text in (node, address.get(node, "")):
            try:
                name = index.find(text)
            except ValueError:
                continue
            if name is not None and name in places:
                return places[name]
            alike = by_spelling.get(text, set())
            if len(alike) == 1:
                return next(iter(alike))
        return None

    return find


async def first_mark(source: PrometheusSource, window: Window) -> float | None:
    """When dynsched first had a mark on a node, as its own metrics say."""
    step = max(window.step, (window.end - window.start) / 5000)
    expr = "max(dynsched_marked_nodes) > 0"
    answer = await source.query_range(expr, window.start, window.end, step)
    return min((one.points[0][0] for one in answer.series), default=None)


def about(found: Placements) -> list[str]:
    """The limits of what is said, a sentence each."""
    told = [
        "Pods that lived shorter than a scrape are invisible.",
        "Room is room by requests; overhead, taints, affinity and volumes are not looked at.",
    ]
    if found.metric == CREATED:
        told.append(
            f"{SCHEDULED} is not there: a pod counts at the moment when it was created "
            f"({CREATED}), which may be long before it was placed."
        )
    if found.pinned:
        told.append(
            f"{counted(found.pinned, 'pod')} of DaemonSets, or static, are left out: no scheduler "
            "chose their nodes."
        )
    if found.unplaced:
        told.append(f"{counted(found.unplaced, 'pod')} left out, whose node is not known.")
    told += [f"A part is missing: {error}." for error in found.errors[:3]]
    return told
