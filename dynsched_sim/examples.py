"""Realistic Node and Pod objects for the demo, the tests and the benchmarks."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final

_KUBELET: Final = "v1.36.2"
_ZONES: Final = ("a", "b", "c")
_CONDITIONS: Final = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
)


def make_node(
    name: str,
    index: int = 0,
    *,
    control_plane: bool = False,
    labels: dict[str, str] | None = None,
    size: int = 0,
) -> dict[str, Any]:
    """A ready Node with addresses made from ``index`` (10.0.0.1 and 203.0.113.1 for 0, and so on).

    ``size``: minimum size of the Node's JSON, in bytes. Images are added to reach it, because
    images are most of the 9 KB or more of a real Node.
    """
    zone = _ZONES[index % len(_ZONES)]
    meta: dict[str, Any] = {
        "name": name,
        "labels": {
            "kubernetes.io/hostname": name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
            "node.kubernetes.io/instance-type": "m5.2xlarge",
            "topology.kubernetes.io/region": "eu-west-1",
            "topology.kubernetes.io/zone": f"eu-west-1{zone}",
        },
        "annotations": {"node.alpha.kubernetes.io/ttl": "0"},
    }
    spec: dict[str, Any] = {"podCIDR": f"10.{64 + index // 256 % 64}.{index % 256}.0/24"}
    if control_plane:
        role = "node-role.kubernetes.io/control-plane"
        meta["labels"][role] = ""
        spec["taints"] = [{"key": role, "effect": "NoSchedule"}]
    meta["labels"] |= labels or {}
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": meta,
        "spec": spec,
        "status": _status(name, index),
    }
    _pad(node, size)
    return node


def _status(name: str, index: int) -> dict[str, Any]:
    amounts = {"cpu": "8", "ephemeral-storage": "101430960Ki", "memory": "32Gi", "pods": "110"}
    high, low = divmod(index + 1, 250)
    beats = dict.fromkeys(("lastHeartbeatTime", "lastTransitionTime"), "2026-01-01T00:00:00Z")
    parts = ("type", "status", "reason", "message")
    conditions = [dict(zip(parts, each, strict=True)) | beats for each in _CONDITIONS]
    return {
        "capacity": amounts,
        "allocatable": amounts | {"cpu": "7910m", "memory": "31Gi"},
        "conditions": conditions,
        "addresses": [
            {"type": "InternalIP", "address": f"10.0.{high}.{low}"},
            {"type": "ExternalIP", "address": f"203.0.{113 + high}.{low}"},
            {"type": "Hostname", "address": name},
        ],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        "nodeInfo": _info(name),
        "images": [_image(0)],
    }


def _info(name: str) -> dict[str, str]:
    machine = hashlib.sha256(name.encode()).hexdigest()[:32]
    return {
        "machineID": machine,
        "systemUUID": machine,
        "bootID": machine[::-1],
        "kernelVersion": "6.1.0-30-amd64",
        "osImage": "Debian GNU/Linux 12 (bookworm)",
        "containerRuntimeVersion": "containerd://2.0.4",
        "kubeletVersion": _KUBELET,
        "kubeProxyVersion": "",
        "operatingSystem": "linux",
        "architecture": "amd64",
    }


def _image(number: int) -> dict[str, Any]:
    digest = hashlib.sha256(str(number).encode()).hexdigest()
    repository = f"registry.example.com/team-{number % 7}/service-{number}"
    names = [f"{repository}@sha256:{digest}", f"{repository}:v1.{number}.0"]
    return {"names": names, "sizeBytes": 20_000_000 + number * 1_000_003}


def _pad(node: dict[str, Any], size: int) -> None:
    images = node["status"]["images"]
    missing = size - len(json.dumps(node, separators=(",", ":")))
    while missing > 0:
        images.append(_image(len(images)))
        missing -= len(json.dumps(images[-1], separators=(",", ":"))) + 1


def make_pod(workload: str, number: int) -> dict[str, Any]:
    """A pod that belongs to a Deployment, named after it and ``number``."""
    requests = {"requests": {"cpu": "300m", "memory": "512Mi"}}
    containers = [{"name": "main", "image": workload, "resources": requests}]
    return {"metadata": _pod_metadata(workload, number), "spec": {"containers": containers}}


def _pod_metadata(deployment: str, number: int) -> dict[str, Any]:
    template = "7c9d5f"
    replica_set = f"{deployment}-{template}"
    owner = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": replica_set,
        "uid": f"uid-of-{replica_set}",
        "controller": True,
    }
    return {
        "name": f"{replica_set}-{number:05}",
        "labels": {"app": deployment, "pod-template-hash": template},
        "ownerReferences": [owner],
    }
