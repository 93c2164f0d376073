"""What kube-state-metrics tells: how many pods were placed onto a node that was over its threshold;
and what a mark should come before: containers killed for memory, pods evicted, CPUs that stall.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np

from dynsched.engine.columns import Bools, Floats
from dynsched.engine.model import Series
from dynsched.engine.nodes.match import NodeIndex
from dynsched.engine.pod_values import workload_of
from dynsched.engine.wording import counted
from dynsched.sources import page_queries
from dynsched.sources.prometheus import PrometheusSource
from dynsched.sources.prometheus.decode import AnswerLimit
from dynsched.tools.backtest.engine import Record
from dynsched.tools.backtest.fetching import Fetcher, Query, Window, window_of
from dynsched.util.formatting import format_time

Json = dict[str, Any]

SLICE: Final = 10_800.0
OVERLAP: Final = 900.0
"""Seconds after its binding within which a pod must have been scraped, to be in the next slice."""
ROOM_STEP: Final = 300.0  # seconds between two moments at which the room of nodes is asked for
STALL: Final = 0.25
"""The share of time in which something waited for a CPU, from which on a node's CPU stalls."""
_QUIET: Final = 600.0
"""Seconds: what goes on within this time after the last one is the same incident."""
_POINTS: Final = 10_000
_MOMENTS: Final = 24
LIMIT: Final = AnswerLimit(0, 100_000, 128 << 20)
_PINNED: Final = frozenset({"DaemonSet", "Node"})
"""What makes pods that belong to one node each: no scheduler could have placed them elsewhere."""
SCHEDULED: Final = "kube_pod_status_scheduled_time"
_RESOURCES: Final = ("cpu", "memory")

_POD: Final = "namespace, pod, uid"
_NODE: Final = f"on ({_POD}) group_left (node) max by ({_POD}, node) (kube_pod_info{{node!=''}})"
_KILLED: Final = (
    f"(max by ({_POD}) "
    "(kube_pod_container_status_last_terminated_reason{{reason='OOMKilled'}} {when}) == 1)"
)
_EVICTED: Final = f"(max by ({_POD}) (kube_pod_status_reason{{reason='Evicted'}}) == 1)"
_STALLS: Final = f"rate(node_pressure_cpu_waiting_seconds_total[5m]) > {STALL}"

PodKey = tuple[str, str, str]
Find = Callable[[str], int]
"""The name of a node -> its index; -1 where it has none."""


class Placement(NamedTuple):
    namespace: str
    pod: str
    node: int
    """Its index."""
    at: float
    """Unix seconds."""
    requests: Mapping[str, float]
    """By resource, in cores and bytes; without those that it does not request."""


@dataclass(frozen=True, slots=True)
class PastPlacements:
    """``free``: by resource, what is not requested of nodes, shape (moments, nodes), NaN where it
    is not known; empty where kube-state-metrics does not tell.
    """

    pods: Sequence[Placement]
    moments: Window
    free: Mapping[str, Floats]
    told: Mapping[str, Any]
    """What of the report is the same for every replay."""
    limits: Sequence[str]
    """Of what is said, a sentence each."""

    def has_room(self, pod: Placement, nodes: Bools) -> bool:
        row, found = self.moments.row(pod.at), nodes.copy()
        for resource, free in self.free.items():
            # What is not known is NaN, for which the comparison is false: no room.
            found &= free[row] >= pod.requests.get(resource, 0.0)
        return bool(found.any())


async def placements_of(fetcher: Fetcher, find: Find, nodes: int) -> PastPlacements | None:
    """None where kube-state-metrics is not in this Prometheus. What fails is told in ``limits``."""
    source, window = fetcher.source, fetcher.window
    apart = max(1.0, (window.end - window.start) / _MOMENTS)
    there = await source.query_range(f"count({SCHEDULED})", window.start, window.end, apart)
    if not there.series:
        return None
    seen = _Seen()
    for begun in np.arange(window.start, max(window.end, window.start + 1), SLICE).tolist():
        await seen.ask(source, begun, min(window.end, begun + SLICE))
    moments = window_of(window.start, window.end, max(ROOM_STEP, window.step))
    free, missing = await _free(replace(fetcher, window=moments), find, nodes)
    placed = seen.nodes.keys() - seen.pinned
    pods = [
        Placement(*key[:2], find(seen.nodes[key]), at, seen.requests.get(key, {}))
        for key, at in seen.times.items()
        if key in placed and window.start <= at <= window.end
    ]
    here = [pod for pod in pods if pod.node >= 0]
    unplaced, elsewhere = len(seen.times.keys() - seen.nodes.keys()), len(pods) - len(here)
    pinned = f"{counted(len(seen.pinned), 'pod')} of DaemonSets, or static, are left out: no "
    limits = {
        "Pods that lived shorter than a scrape are invisible.": True,
        "Room is room by requests; overhead, taints, affinity and volumes are not looked at.": True,
        f"{pinned}scheduler chose their nodes.": seen.pinned,
        f"{counted(unplaced, 'pod')} left out, whose node is not known.": unplaced,
        **{f"A part is missing: {error}.": True for error in sorted(seen.errors | missing)[:3]},
        "What nodes have to give is not known (kube_node_status_allocatable): any node that "
        "was neither hot nor marked counts as one with room.": not free,
        f"{elsewhere:,} pods were placed on nodes that are not among those replayed.": elsewhere,
    }
    first = await first_moment(source, window, "max(dynsched_marked_nodes) > 0")
    told_of_all = {
        "pods_left_out": len(seen.pinned) + unplaced + elsewhere,
        "room_by": "requests" if free else "load",
        "placed_by": SCHEDULED,
        "first_mark_day": None if first is None else format_time(first)[:10],
    }
    said = [sentence for sentence, applies in limits.items() if applies]
    return PastPlacements(here, moments, free, told_of_all, said)


class _Seen:
    """What came of the pods, slice after slice. Of one that is in several, the last word counts."""

    def __init__(self) -> None:
        self.times: dict[PodKey, float] = {}
        self.nodes: dict[PodKey, str] = {}
        self.requests: defaultdict[PodKey, dict[str, float]] = defaultdict(dict)
        self.pinned: set[PodKey] = set()
        self.errors: set[str] = set()

    async def ask(self, source: PrometheusSource, begun: float, ended: float) -> None:
        async def series(expr: str) -> Sequence[Series]:
            answer = await source.query_range(expr, ended, ended, 1.0, limit=LIMIT)
            self.errors.update([answer.error] if answer.error else [])
            return answer.series

        over = f"[{max(1, round(ended - begun + OVERLAP))}s]"
        placed = f"(max by ({_POD}) (last_over_time({SCHEDULED}{over})) >= {begun - OVERLAP:.0f})"
        for one in await series(placed):
            self.times[_key(one)] = one.points[-1][1]
        info = f"last_over_time(kube_pod_info{{node!=''}}{over})"
        by = f"max by ({_POD}, node, created_by_kind) ({info}) and on ({_POD}) {placed}"
        for one in await series(by):
            self.nodes[_key(one)] = one.labels["node"]
            if one.labels.get("created_by_kind") in _PINNED:
                self.pinned.add(_key(one))
        asks = page_queries.of_containers(f"resource=~'{'|'.join(_RESOURCES)}'", over)
        by = f"sum by ({_POD}, resource) ({asks}) and on ({_POD}) {placed}"
        for one in await series(by):
            self.requests[_key(one)][one.labels.get("resource", "")] = one.points[-1][1]


def _key(one: Series) -> PodKey:
    namespace, pod, uid = (one.labels.get(name, "") for name in ("namespace", "pod", "uid"))
    return namespace, pod, uid


async def _free(fetcher: Fetcher, find: Find, nodes: int) -> tuple[Mapping[str, Floats], set[str]]:
    """By resource, what is not requested of nodes; and why a part of it is missing."""
    has = "max by (node) (kube_node_status_allocatable{{resource='{}'}})"
    queries = [Query(has.format(each), ("node",), rises=False) for each in _RESOURCES]
    queries += [Query(page_queries.requested(each), ("node",), rises=True) for each in _RESOURCES]
    pasts = await fetcher.fetch(dict.fromkeys(queries, nodes))
    errors = {missing.error for past in pasts.values() for missing in past.missing}
    cpu, memory, *taken = (
        past.values(0, fetcher.window.count, find, nodes, rises=query.rises)
        for query, past in pasts.items()
    )
    if np.isnan(cpu).all() or np.isnan(memory).all():
        return {}, errors
    # A node without pods has no series of requests.
    free = [total - np.nan_to_num(used) for total, used in zip((cpu, memory), taken, strict=True)]
    return dict(zip(_RESOURCES, free, strict=True)), errors


async def first_moment(source: PrometheusSource, window: Window, expr: str) -> float | None:
    """Unix seconds; None where the expression has no value in the window."""
    step = max(window.step, (window.end - window.start) / 5000)
    answer = await source.query_range(expr, window.start, window.end, step)
    return min((one.points[0][0] for one in answer.series), default=None)


async def node_finder(source: PrometheusSource, window: Window, index: NodeIndex) -> Find:
    """For the names that kube-state-metrics gives nodes. Without a cluster ours may be addresses
    with a port, which kube_node_info says whose they are.
    """
    over = f"[{max(1, round(window.end - window.start))}s]"
    expr = f"max by (node, internal_ip) (last_over_time(kube_node_info{over}))"
    answer = await source.query_range(expr, window.end, window.end, 1.0, limit=LIMIT)
    labels = [one.labels for one in answer.series]
    address = {each.get("node", ""): each.get("internal_ip", "") for each in labels}

    def find(node: str) -> int:
        found, _ = index.find(node)
        return found if found >= 0 else index.find(address.get(node, ""))[0]

    return find


def regret(placements: PastPlacements, record: Record) -> Json:
    known, unknown = record.any_known, 0
    # By kind and name: pods that were placed, on a hot node, and while another one had room.
    sums: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    may = known & record.counted & ~record.over & ~record.marked
    for pod in placements.pods:
        row = record.window.row(pod.at)
        hot = bool(record.over[row, pod.node])
        unknown += not known[row, pod.node]
        had_room = hot and placements.has_room(pod, may[row])
        for kind, name in (
            ("total", ""),
            ("day", format_time(pod.at)[:10]),
            ("namespace", pod.namespace),
            ("workload", workload_of(pod.namespace, pod.pod)),
        ):
            sums[kind, name].update(placed=1, hot=int(hot), room=int(had_room))
    told = f"Of {unknown:,} pods the load of the node was not known; they are not hot."

    def entries(kind: str) -> list[Json]:
        return [{kind: name, **_numbers(each)} for (of, name), each in sums.items() if of == kind]

    def worst(one: Json) -> tuple[Any, ...]:
        return -one["pods_on_hot"], -one["pods_placed"], *map(str, one.values())

    return {
        **_numbers(sums["total", ""]),
        "pods_of_unknown_load": unknown,
        **placements.told,
        "days": sorted(entries("day"), key=lambda one: one["day"]),
        **{f"{kind}s": sorted(entries(kind), key=worst) for kind in ("namespace", "workload")},
        "limits": [*placements.limits, *([told] if unknown else ())],
    }


def _numbers(each: Counter[str]) -> Json:
    return {
        "pods_placed": each["placed"],
        "pods_on_hot": each["hot"],
        "share_on_hot": round(each["hot"] / each["placed"], 6) if each["placed"] else None,
        "pods_with_room": each["room"],
    }


class Incident(NamedTuple):
    kind: str
    node: int
    at: float


async def incidents_of(source: PrometheusSource, window: Window, find: Find) -> list[Incident]:
    """Each once; none of nodes that are not known, or of exporters that are not there."""
    step = round(max(60.0, window.step, (window.end - window.start) / _POINTS))
    killed = _KILLED.format(when="")
    restarts = f"changes(kube_pod_container_status_restarts_total[{step}s])"
    # That a container was killed stays; that it was once more shows in its restarts only.
    again = f"((max by ({_POD}) ({restarts}) > 0) and on ({_POD}) {killed})"
    begins = f"({killed} unless on ({_POD}) {_KILLED.format(when=f'offset {step}s')})"
    exprs = {
        "CPU stall": _STALLS,
        "Evicted": f"{_EVICTED} * {_NODE}",
        "OOMKilled": f"({begins} or on ({_POD}) {again}) * {_NODE}",
    }
    found = []
    for kind, expr in exprs.items():
        answer = await source.query_range(expr, window.start, window.end, step, limit=LIMIT)
        for one in answer.series:
            node = find(one.labels.get("node") or one.labels.get("instance", ""))
            # What is there when the window begins was before.
            times = [at for at, _ in one.points]
            gaps = zip(times, (window.start, *times), strict=False)
            moments = [at for at, last in gaps if at - last > max(_QUIET, 2 * step)]
            found += [Incident(kind, node, at) for at in moments if node >= 0]
    return sorted(found)
