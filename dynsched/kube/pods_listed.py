"""All pods that have a node and have not finished, page by page: of each only what is asked of its
reaction to the mark. No page is kept.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from dynsched.engine.avoiders import DEFAULT_SCHEDULER, Owner, PodShape
from dynsched.kube.failures import Call
from dynsched.kube.pages import ObjectMeta, Page, pages
from dynsched.kube.pod_requests import RUNNING, PodSpec, PodStatus, requests_of
from dynsched.kube.transport import KubeApi

_LIST: Final = Call("list", "pods", "GET", "/api/v1/pods")
_EMPTY: Final = frozenset({b"", b"null", b"{}", b"[]"})
_NOTHING: Final = msgspec.Raw(b"")


class _Owner(msgspec.Struct, gc=False):
    kind: str = ""
    name: str = ""
    controller: bool = False


class _Labels(msgspec.Struct, gc=False):
    template_hash: str = msgspec.field(name="pod-template-hash", default="")


class _Metadata(ObjectMeta, gc=False):
    owners: list[_Owner] | None = msgspec.field(name="ownerReferences", default=None)
    labels: _Labels | None = None


class _Spec(PodSpec, gc=False):
    scheduler: str = msgspec.field(name="schedulerName", default=DEFAULT_SCHEDULER)
    affinity: msgspec.Raw = _NOTHING
    tolerations: msgspec.Raw = _NOTHING
    selector: msgspec.Raw = msgspec.field(name="nodeSelector", default=_NOTHING)
    spreading: msgspec.Raw = msgspec.field(name="topologySpreadConstraints", default=_NOTHING)


class _Pod(msgspec.Struct, gc=False):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: PodStatus = msgspec.field(default_factory=PodStatus)


async def fold_pods(api: KubeApi, take: Callable[[Iterable[PodShape]], None]) -> int:
    """Call ``take`` with the pods of each page; how many requests that were.

    Raises ClusterError; ConflictError when the list's snapshot expired between two pages.
    """
    asked = 0
    async for page in pages(api, _LIST, _Pod, query=RUNNING):
        asked += 1
        await asyncio.to_thread(_take, take, page)
        del page  # or two pages would be in memory while the next one comes
    return asked


def _take(take: Callable[[Iterable[PodShape]], None], page: Page[_Pod]) -> None:
    take(map(_shape, page.items or ()))


def _shape(pod: _Pod) -> PodShape:
    metadata, spec = pod.metadata, pod.spec
    cpu, memory = requests_of(spec, pod.status)
    owner = next((each for each in metadata.owners or () if each.controller), None)
    return PodShape(
        sys.intern(metadata.namespace),
        metadata.name,
        None if owner is None else Owner(owner.kind, owner.name),
        metadata.labels.template_hash if metadata.labels else "",
        spec.scheduler,
        affinity=_bytes(spec.affinity),
        tolerations=_bytes(spec.tolerations),
        selector=_bytes(spec.selector),
        spreading=_bytes(spec.spreading),
        cpu=cpu,
        memory=memory,
    )


def _bytes(raw: msgspec.Raw) -> bytes:
    found = bytes(raw)
    return b"" if found in _EMPTY else found
