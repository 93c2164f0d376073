"""The deletion costs of pods at the API server (docs/scale-down.md)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Final
from urllib.parse import quote

import msgspec

from dynsched.engine.placing.scale_down import CostedPod
from dynsched.kube.client import merge
from dynsched.kube.failures import Call, in_namespace
from dynsched.kube.lists import METADATA_ONLY, ObjectMeta, pages
from dynsched.kube.pod_requests import Annotations, PodMeta
from dynsched.kube.transport import KubeApi

_LIST: Final = Call("list", "pods", "/api/v1/pods")


class _Pod(msgspec.Struct, gc=False):
    metadata: PodMeta = msgspec.field(default_factory=PodMeta)


def costed(found: ObjectMeta, annotations: Annotations | None, node: str = "") -> CostedPod:
    """What is kept of a pod for its deletion cost; ``node``: empty where it has none."""
    cost, ours = (None, None) if annotations is None else (annotations.cost, annotations.ours)
    return CostedPod(found.namespace, found.name, found.version, node, cost, ours)


async def on_node(api: KubeApi, node: str) -> tuple[list[CostedPod], set[str]]:
    """The pods on a node that are a ReplicaSet's and do not end; and the uids of all of them. From
    the API server's memory, by node: it may be behind by some seconds. Raises ClusterError.
    """
    where = f"spec.nodeName={node},status.phase!=Succeeded,status.phase!=Failed"
    query = {"fieldSelector": where, "resourceVersion": "0"}
    found, uids = [], set()
    async for page in pages(api, _LIST, _Pod, query=query, headers=METADATA_ONLY):
        for meta in (pod.metadata for pod in page.items or ()):
            uids.add(meta.uid)
            owners = [owner.kind for owner in meta.owners or () if owner.controller]
            if owners == ["ReplicaSet"] and meta.ends is None:
                found.append(costed(meta, meta.annotations, node))
        del page
    return found, uids


async def all_of_ours(api: KubeApi) -> AsyncIterator[CostedPod]:
    """Every pod that has a cost of dynsched's. Raises ClusterError."""
    async for page in pages(api, _LIST, _Pod, headers=METADATA_ONLY):
        for meta in (pod.metadata for pod in page.items or ()):
            if meta.annotations is not None and meta.annotations.ours is not None:
                yield costed(meta, meta.annotations)
        del page


async def write_cost(
    api: KubeApi, pod: CostedPod, cost: int | None, may_write: Callable[[], bool]
) -> None:
    """Give it this cost, or take ours back. NotFoundError, ConflictError, ClusterError."""
    path = f"/api/v1{in_namespace(pod.namespace)}/pods/{quote(pod.name, safe='')}"
    call = Call("patch", "pods", path, str(pod))
    await api.call(call, **merge(pod.patch(cost), may_write))
