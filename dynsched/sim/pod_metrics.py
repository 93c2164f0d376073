"""What kube-state-metrics and the kubelets (cAdvisor) say of the demo's pods, as text: the pods on
a node share its load evenly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

CORES: Final = 7.91
"""What a node can give to pods; memory is given to its exporter."""


class Use(NamedTuple):
    """Of one node: seconds of all its CPUs together, and bytes."""

    cpu_seconds: float
    memory: float


class _Pod(NamedTuple):
    labels: str
    node: str
    cpu: float
    memory: float


class PodMetrics:
    """``pods``: namespaces and bodies, as of `make_pods`; ``began``: when they were created, in
    Unix seconds.
    """

    def __init__(self, pods: Iterable[tuple[str, Mapping[str, Any]]], began: float) -> None:
        self._pods = [_read(namespace, body) for namespace, body in pods]
        self._on_node = Counter(pod.node for pod in self._pods)
        self._began = began

    def page(self, uses: Mapping[str, Use]) -> str:
        """All series now; ``uses`` by node."""
        lines = [
            f"{name}{{{pod.labels}{more}}} {value:.4f}\n"
            for pod in self._pods
            for name, more, value in self._of(pod, uses[pod.node])
        ]
        return "".join(sorted(lines))  # the series of a metric stand together

    def _of(self, pod: _Pod, use: Use) -> Iterable[tuple[str, str, float]]:
        node, container = f',node="{pod.node}"', ',container="main"'
        share = 1 / self._on_node[pod.node]
        requests = "kube_pod_container_resource_requests"
        return (
            ("kube_pod_info", f'{node},created_by_kind="ReplicaSet"', 1),
            ("kube_pod_created", "", self._began),
            ("kube_pod_status_phase", ',phase="Running"', 1),
            (requests, f'{node}{container},resource="cpu"', pod.cpu),
            (requests, f'{node}{container},resource="memory"', pod.memory),
            ("container_cpu_usage_seconds_total", container, share * use.cpu_seconds),
            ("container_memory_working_set_bytes", container, share * use.memory),
        )


def _read(namespace: str, body: Mapping[str, Any]) -> _Pod:
    name = body["metadata"]["name"]
    requests = body["spec"]["containers"][0]["resources"]["requests"]
    return _Pod(
        labels=f'namespace="{namespace}",pod="{name}",uid="{name}"',
        node=body["spec"]["nodeName"],
        cpu=float(requests["cpu"].removesuffix("m")) / 1000,
        memory=float(requests["memory"].removesuffix("Mi")) * 2**20,
    )
