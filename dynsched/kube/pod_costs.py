"""Deletion costs of pods, which versions before 0.3.0 wrote: `prune` removes them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final
from urllib.parse import quote

import msgspec

from dynsched.kube.client import merge
from dynsched.kube.failures import ApiRequest, in_namespace
from dynsched.kube.lists import METADATA_ONLY, ObjectMeta, pages
from dynsched.kube.transport import KubeApi
from dynsched.rules.keys import COST_ANNOTATION, DELETION_COST

_LIST: Final = ApiRequest("list", "pods", "/api/v1/pods")


class _Annotations(msgspec.Struct, gc=False):
    cost: str | None = msgspec.field(name=DELETION_COST, default=None)
    ours: str | None = msgspec.field(name=COST_ANNOTATION, default=None)


class PodMeta(ObjectMeta, gc=False):
    annotations: _Annotations = msgspec.field(default_factory=_Annotations)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class _Pod(msgspec.Struct, gc=False):
    metadata: PodMeta


async def costed_pods(api: KubeApi) -> AsyncIterator[PodMeta]:
    """Every pod that has a deletion cost of dynsched's. Raises ClusterError."""
    async for page in pages(api, _LIST, _Pod, headers=METADATA_ONLY):
        for pod in page.items or ():
            if pod.metadata.annotations.ours is not None:
                yield pod.metadata
        del page


async def remove_cost(api: KubeApi, pod: PodMeta) -> None:
    """Remove it; a cost that somebody else set since stays. Raises NotFoundError, ClusterError."""
    changes = {COST_ANNOTATION: None}
    if pod.annotations.cost == pod.annotations.ours:
        changes[DELETION_COST] = None
    body = {"metadata": {"resourceVersion": pod.version, "annotations": changes}}
    path = f"/api/v1{in_namespace(pod.namespace)}/pods/{quote(pod.name, safe='')}"
    await api.call(ApiRequest("patch", "pods", path, str(pod)), **merge(body))
