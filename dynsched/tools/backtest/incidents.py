"""What a mark should come before: containers killed for memory, pods evicted, CPUs that stall."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from dynsched.sources.prometheus import LongSeries, PrometheusSource
from dynsched.sources.prometheus.answer_limit import AnswerLimit
from dynsched.tools.backtest.steps import Window

STALL: Final = 0.25
"""The share of time in which something waited for a CPU, from which on a node's CPU stalls."""
_POINTS: Final = 10_000
_LIMIT: Final = AnswerLimit(0, 20_000, 128 << 20)
_QUIET: Final = 600.0
"""Seconds: what goes on within this time after the last one is the same incident."""

_POD_INFO: Final = "max by (namespace, pod, uid, node) (kube_pod_info{node!=''})"
_REASON: Final = "kube_pod_container_status_last_terminated_reason"
_KINDS: Final = (
    (
        "OOMKilled",
        f"(max by (namespace, pod, uid) ({_REASON}{{reason='OOMKilled'}}) == 1)",
    ),
    ("Evicted", '(max by (namespace, pod, uid) (kube_pod_status_reason{reason="Evicted"}) == 1)'),
)
_RESTARTS: Final = (
    "(max by (namespace, pod, uid) "
    "(changes(kube_pod_container_status_restarts_total[{step}s])) > 0)"
)
_STALLS: Final = f"rate(node_pressure_cpu_waiting_seconds_total[5m]) > {STALL}"


@dataclass(frozen=True, slots=True)
class Incident:
    """``lane``: the place of its node; None where it is not known."""

    kind: str
    lane: int | None
    at: float


async def incidents_of(
    source: PrometheusSource, window: Window, find: Callable[[str], int | None]
) -> list[Incident]:
    """As far as kube-state-metrics and node-exporter are in this Prometheus."""
    step = max(60.0, window.step, (window.end - window.start) / _POINTS)

    async def ask(expr: str) -> Iterable[LongSeries]:
        answer = await source.query_long(expr, window.start, window.end, step, limit=_LIMIT)
        return answer.series

    found = []
    for kind, expr in _KINDS:
        placed = f"{expr} * on (namespace, pod, uid) group_left (node) {_POD_INFO}"
        for one in await ask(placed):
            # What is there when the window begins was before.
            begun = [one.times[0]] if one.times[0] > window.start + step else []
            found += [Incident(kind, find(one.labels.get("node", "")), at) for at in begun]
    again = f"{_RESTARTS.format(step=round(step))} and on (namespace, pod, uid) {_KINDS[0][1]}"
    for one in await ask(f"({again}) * on (namespace, pod, uid) group_left (node) {_POD_INFO}"):
        lane = find(one.labels.get("node", ""))
        found += [Incident("OOMKilled", lane, at) for at in _apart(one, step)]
    for one in await ask(_STALLS):
        lane = find(one.labels.get("node") or one.labels.get("instance", ""))
        found += [Incident("CPU stall", lane, at) for at in _apart(one, step)]
    return _once(found, step)


def _apart(one: LongSeries, step: float) -> Iterable[float]:
    """The beginnings of stretches."""
    last = None
    for at in one.times:
        if last is None or at - last > max(_QUIET, 2 * step):
            yield at
        last = at


def _once(found: Iterable[Incident], step: float) -> list[Incident]:
    """Without those that two expressions show, within two steps."""
    kept: list[Incident] = []
    for one in sorted(found, key=lambda one: (one.kind, one.lane or -1, one.at)):
        last = kept[-1] if kept else None
        same = last and (last.kind, last.lane) == (one.kind, one.lane)
        if not (same and last and one.at - last.at <= 2 * step):
            kept.append(one)
    return kept
