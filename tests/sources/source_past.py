"""The data in the real Prometheus of these tests: series of nodes and of kubelets."""

import time
from collections.abc import Iterable
from itertools import product

from blocks_support import Past, Points
from pod_names import PODS

NOW = int(time.time())
STEP = 15
"""Scrape interval in seconds."""
KUBELET = 'job="kubelet"'
CPU_SHARE, MEMORY = 0.25, 64.0 * 2**20
"""Use of each container of the PODS."""


def line(value: float, per_second: float = 0.0) -> Points:
    """Points from half an hour ago until two hours from now, because a test may begin late."""
    for at in range(NOW - 1800, NOW + 7200, STEP):
        yield at, value + per_second * (at - NOW + 1800)


def _kubelets() -> Iterable[tuple[str, str, Points]]:
    """Series of two containers per pod, and of the pod itself: those of cAdvisor, and those of the
    resource endpoint, which have fewer labels and no sums per pod.
    """
    for pod, container in product(PODS, ("main", "side", "")):
        labels = f'{KUBELET},namespace="names",pod="{pod}",container="{container}"'
        of_cadvisor = f'{labels},id="/{pod}/{container}"'
        yield "container_cpu_usage_seconds_total", f'cpu="total",{of_cadvisor}', line(0, CPU_SHARE)
        yield "container_memory_working_set_bytes", of_cadvisor, line(MEMORY)
        if container:
            yield "container_cpu_usage_seconds_total", labels, line(0, CPU_SHARE)
            yield "container_memory_working_set_bytes", labels, line(MEMORY)


def _forged() -> Iterable[tuple[str, str, Points]]:
    """False series about all pods, from a pod that is scraped because of its annotation."""
    for pod in PODS:
        labels = f'job="kubernetes-pods",namespace="names",pod="{pod}",container="forged"'
        yield "container_cpu_usage_seconds_total", labels, line(0, 40.0)
        yield "container_memory_working_set_bytes", labels, line(2.0**40)


def _nodes() -> Iterable[tuple[str, str, Points]]:
    target = 'job="nodes",node="worker-1",zone="ä"'
    yield "busy_seconds_total", target, line(0, 0.4)
    for name, value in (("odd", float("nan")), ("broken", float("inf"))):
        yield name, target, line(value)
    for labels in (target, 'job="nodes",instance="10.0.0.1:9100"'):
        yield "load_percent", labels, line(91.5)
        yield "up", labels, line(1)
    often = ((at, 1.0) for at in range(NOW - 1800, NOW + 7200, STEP // 3))
    yield "up", f'{target},metrics_path="/metrics/slis"', often


def past() -> Past:
    made: dict[str, list[tuple[str, Points]]] = {}
    for each in (_kubelets, _forged, _nodes):
        for metric, labels, points in each():
            made.setdefault(metric, []).append((labels, points))
    return made
