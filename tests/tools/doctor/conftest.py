"""A real Prometheus with half an hour of history, whose metrics have every defect of a rule."""

import time
from collections.abc import Iterator

import pytest
from blocks_support import Points, prometheus_of
from prometheus_support import Process

_NOW = int(time.time())
_BEGAN = _NOW - 1800
_TIMES = range(_BEGAN, _NOW + 3600, 15)  # up to an hour ahead


def line(value: float, per_second: float = 0.0) -> Points:
    return [(at, value + per_second * (at - _BEGAN)) for at in _TIMES]


def _past() -> dict[str, list[tuple[str, Points]]]:
    found: dict[str, list[tuple[str, Points]]] = {}
    for number, busy in enumerate((0.2, 0.5, 0.95)):
        node = f'instance="10.0.0.{number + 1}:9100"'
        for metric, labels, points in (
            ("cpu_busy_seconds_total", "", line(0, busy)),
            ("memory_used_ratio", "", line(busy * 0.9)),
            ("memory_free_bytes", "", line(8e9 * (1 - busy))),
            ("requests_open", "", line(number)),
            ("shared_load", 'cluster="blue",', line(50)),
            ("shared_load", 'cluster="green",', line(50)),
            ("disk_busy", 'device="sda",', line(50)),
            ("disk_busy", 'device="sdb",', line(50)),
            ("twice_load", 'job="a",', line(30)),
            ("twice_load", 'job="b",', line(30)),
            ("kubelet_load", 'job="kubelet",service="old-kubelet",', line(30)),
            ("kubelet_load", 'job="kubelet",service="new-kubelet",', line(30)),
            ("paths_load", 'job="kubelet",metrics_path="/metrics/cadvisor",', line(30)),
            ("paths_load", 'job="kubelet",metrics_path="/metrics/resource",', line(30)),
            ("ha_load", 'prometheus_replica="0",', line(30)),
            ("ha_load", 'prometheus_replica="1",', line(30)),
            ("named_load", 'k8s_cluster_name="blue",', line(30)),
            ("named_load", 'k8s_cluster_name="green",', line(30)),
            ("fleet_load", 'clusterID="1",', line(30)),
            ("fleet_load", 'clusterID="2",', line(30)),
        ):
            found.setdefault(metric, []).append((labels + node, points))
        # Scraped through a program on w2, without honor_labels.
        exported = f'node="w2",instance="10.0.0.2:8080",exported_node="w{number + 1}"'
        found.setdefault("told_load", []).append((exported, line(100 * busy)))
        pushed = f'instance="10.0.0.2:9091",exported_instance="10.0.0.{number + 1}"'
        found.setdefault("pushed_load", []).append((pushed, line(100 * busy)))
        # Scraped at the address of the exporter's pod.
        pod = f'instance="10.244.{number}.7:9100",kubernetes_node="w{number + 1}"'
        found.setdefault("pod_load", []).append((pod, line(100 * busy)))
        # dcgm-exporter's label with the pod's name, and a target label with the node's.
        gpu = f'Hostname="dcgm-{number}",host_node="w{number + 1}"'
        found.setdefault("gpu_load", []).append((gpu, line(100 * busy)))
        found.setdefault("kube_node_info", []).append((f'node="w{number + 1}"', line(1)))
    # Scrape intervals of 5 s and of one minute.
    for name, target, seconds in (
        ("fast", 'instance="10.0.0.1:9100"', 5),
        ("slow", 'node="w1"', 60),
    ):
        times = range(_NOW - 3600, _NOW + 3600, seconds)
        found[f"{name}_seconds_total"] = [(target, [(at, float(at - times[0])) for at in times])]
        found.setdefault("up", []).append((target, [(at, 1.0) for at in times]))
    return found


@pytest.fixture(scope="session")
def history(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    folder = tmp_path_factory.mktemp("history")
    with prometheus_of(_past(), folder) as running:
        yield running
