"""What a mark should come before: containers killed for memory, pods evicted, CPUs that stall."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf
from typing import Final, NamedTuple

from dynsched.engine.model import Series
from dynsched.sources.prometheus import PrometheusSource
from dynsched.sources.prometheus.decode import AnswerLimit
from dynsched.tools.backtest.pod_placements import Find
from dynsched.tools.backtest.steps import Window

STALL: Final = 0.25
"""The share of time in which something waited for a CPU, from which on a node's CPU stalls."""
_POINTS: Final = 10_000
_LIMIT: Final = AnswerLimit(0, 20_000, 128 << 20)
_QUIET: Final = 600.0
"""Seconds: what goes on within this time after the last one is the same incident."""

_NODE: Final = (
    "on (namespace, pod, uid) group_left (node) "
    "max by (namespace, pod, uid, node) (kube_pod_info{node!=''})"
)
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


class Incident(NamedTuple):
    kind: str
    place: int
    """Of its node."""
    at: float


async def incidents_of(source: PrometheusSource, window: Window, find: Find) -> list[Incident]:
    """As far as kube-state-metrics and node-exporter are in this Prometheus; those of nodes that
    are known, each once.
    """
    step = max(60.0, window.step, (window.end - window.start) / _POINTS)
    found: list[Incident] = []

    async def ask(kind: str, expr: str, begins: Callable[[Series], Iterable[float]]) -> None:
        answer = await source.query_range(expr, window.start, window.end, step, limit=_LIMIT)
        for one in answer.series:
            place = find(one.labels.get("node") or one.labels.get("instance", ""))
            if place >= 0:
                found.extend(Incident(kind, place, at) for at in begins(one))

    def first(one: Series) -> Iterable[float]:
        # What is there when the window begins was before.
        at, _ = one.points[0]
        return [at] if at > window.start + step else []

    def stretches(one: Series) -> Iterable[float]:
        last = -inf
        for at, _ in one.points:
            if at - last > max(_QUIET, 2 * step):
                yield at
            last = at

    for kind, expr in _KINDS:
        await ask(kind, f"{expr} * {_NODE}", first)
    again = f"{_RESTARTS.format(step=round(step))} and on (namespace, pod, uid) {_KINDS[0][1]}"
    await ask("OOMKilled", f"({again}) * {_NODE}", stretches)
    await ask("CPU stall", _STALLS, stretches)
    found.sort()
    # Two expressions show the same within two steps.
    return [
        one
        for one, before in zip(found, [None, *found], strict=False)
        if not (before and before[:2] == one[:2] and one.at - before.at <= 2 * step)
    ]
