"""OOM kills, evictions and CPU stalls, asked of a real Prometheus that has their metrics."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from blocks_support import Past, Points, prometheus_of

from dynsched.backtest.incidents import incidents_of
from dynsched.backtest.steps import Window
from dynsched.sources.prometheus import PrometheusConfig, PrometheusSource

pytestmark = pytest.mark.slow

STEP = 60
COUNT = 6 * 60
START = int(time.time()) // STEP * STEP - COUNT * STEP


def minutes(value: Callable[[int], float], first: int = 0) -> Points:
    """One point a minute, from the minute ``first`` on."""
    return [(START + at * STEP, float(value(at))) for at in range(first, COUNT + 1)]


def of_pod(name: str) -> str:
    return f'namespace="shop",pod="{name}",uid="u-{name}"'


PAST: Past = {
    "kube_pod_info": [
        (f'{of_pod("api")},node="worker-a"', minutes(lambda _: 1)),
        (f'{of_pod("job")},node="worker-b"', minutes(lambda _: 1)),
        (f'{of_pod("old")},node="worker-c"', minutes(lambda _: 1)),
    ],
    # From the first kill on this stays; the second one shows in the number of restarts only.
    "kube_pod_container_status_last_terminated_reason": [
        (f'{of_pod("api")},container="c",reason="OOMKilled"', minutes(lambda _: 1, 120)),
        (f'{of_pod("old")},container="c",reason="OOMKilled"', minutes(lambda _: 1)),
        (f'{of_pod("job")},container="c",reason="Error"', minutes(lambda _: 1, 90)),
    ],
    "kube_pod_container_status_restarts_total": [
        (f'{of_pod("api")},container="c"', minutes(lambda at: (at >= 120) + (at >= 240))),
        (f'{of_pod("old")},container="c"', minutes(lambda _: 7)),
        (f'{of_pod("job")},container="c"', minutes(lambda at: at >= 90)),
    ],
    "kube_pod_status_reason": [
        (f'{of_pod("job")},reason="Evicted"', minutes(lambda at: at >= 200)),
        (f'{of_pod("api")},reason="Evicted"', minutes(lambda _: 0)),
    ],
    "node_pressure_cpu_waiting_seconds_total": [
        ('instance="worker-b"', minutes(lambda at: 30.0 * min(max(at - 300, 0), 20))),
        ('instance="worker-a"', minutes(lambda at: 6.0 * at)),
    ],
}
"""`api` is killed for memory at 120 and 240, `job` fails at 90 and is evicted at 200, `old` was
killed before; CPUs of worker-b wait for half of the time from 300 to 320."""


async def test_each_incident_is_found_once_at_its_node_and_moment(tmp_path: Path) -> None:
    lanes = {"worker-a": 0, "worker-b": 1, "worker-c": 2}
    with prometheus_of(PAST, tmp_path) as prometheus:
        source = PrometheusSource(PrometheusConfig(prometheus.url))
        try:
            found = await incidents_of(source, Window(START, STEP, COUNT + 1), lanes.get)
        finally:
            await source.close()
    told = [(one.kind, one.lane, round((one.at - START) / STEP)) for one in found]
    assert [(kind, lane) for kind, lane, _ in told] == [
        ("CPU stall", 1),
        ("Evicted", 1),
        ("OOMKilled", 0),
        ("OOMKilled", 0),
    ]
    for (_, _, at), expected in zip(told, (303, 200, 120, 240), strict=True):
        assert abs(at - expected) <= 2
