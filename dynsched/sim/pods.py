"""Pods as controllers make them, for the demo: some avoid the mark, and some do not know of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from dynsched.rules.labels import LabelMark

_SUFFIXES: Final = "bcdfghjklmnpqrstvwxz2456789"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


class Workload(NamedTuple):
    """A Deployment. ``avoids``: its pods have a soft affinity that avoids the mark."""

    namespace: str
    name: str
    pods: int
    avoids: bool


WORKLOADS: Final = (
    Workload("shop", "web", 16, avoids=True),
    Workload("shop", "api", 12, avoids=True),
    Workload("batch", "report", 8, avoids=False),
)


def make_pods(nodes: Sequence[str], label: LabelMark) -> Iterator[tuple[str, dict[str, Any]]]:
    """Namespaces, each with the body of a pod that has a node: all of WORKLOADS."""
    number = 0
    for workload in WORKLOADS:
        for place in range(workload.pods):
            node = nodes[number % len(nodes)]
            number += 1
            yield workload.namespace, _pod(workload, place, node, label)


def _pod(workload: Workload, place: int, node: str, label: LabelMark) -> dict[str, Any]:
    template = f"{workload.name[::-1].ljust(3, 'x')}7c9d5f"
    replicas = f"{workload.name}-{template}"
    suffix = "".join(_SUFFIXES[(place // 27**power) % 27] for power in range(5))
    owner = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": replicas,
        "uid": f"00000000-0000-4000-8000-{len(workload.name):012d}",
        "controller": True,
    }
    resources = {"requests": {"cpu": "2500m", "memory": "6144Mi"}}
    spec: dict[str, Any] = {
        "nodeName": node,
        "containers": [{"name": "main", "image": workload.name, "resources": resources}],
    }
    if workload.avoids:
        avoid = {"key": label.key, "operator": "NotIn", "values": [label.value]}
        term = {"weight": 100, "preference": {"matchExpressions": [avoid]}}
        spec["affinity"] = {"nodeAffinity": {_PREFERRED: [term]}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{replicas}-{suffix}",
            "labels": {"app": workload.name, "pod-template-hash": template},
            "ownerReferences": [owner],
        },
        "spec": spec,
    }
