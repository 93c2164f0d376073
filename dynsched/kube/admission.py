"""What is asked of the API server about the soft affinity: the admission policy, the namespaces
that ask for it, and their pods. Nothing is written.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

import msgspec

from dynsched.engine.avoidance import PodFacts, Term
from dynsched.kube.failures import Call
from dynsched.kube.pages import ListMeta, pages
from dynsched.kube.pod_requests import RUNNING
from dynsched.kube.transport import KubeApi
from dynsched.rules import keys

_GROUP: Final = "/apis/admissionregistration.k8s.io/v1"
_FOUND: Final = (HTTPStatus.NOT_FOUND,)


class _Meta(msgspec.Struct):
    name: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owners: list[_Owner] | None = msgspec.field(name="ownerReferences", default=None)


class _Owner(msgspec.Struct):
    kind: str = ""


class _Expression(msgspec.Struct):
    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class _Selector(msgspec.Struct):
    expressions: list[_Expression] | None = msgspec.field(name="matchExpressions", default=None)


class _Preferred(msgspec.Struct):
    preference: _Selector = msgspec.field(default_factory=_Selector)


class _NodeAffinity(msgspec.Struct):
    preferred: list[_Preferred] | None = msgspec.field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default=None
    )


class _Affinity(msgspec.Struct):
    node: _NodeAffinity | None = msgspec.field(name="nodeAffinity", default=None)


class _Spec(msgspec.Struct):
    affinity: _Affinity | None = None


class _Item(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)
    spec: _Spec = msgspec.field(default_factory=_Spec)


class _List(msgspec.Struct):
    """A page of namespaces or pods; whatever else the server sends is skipped."""

    metadata: ListMeta = msgspec.field(default_factory=ListMeta)
    items: list[_Item] | None = None


async def find_policy(api: KubeApi) -> tuple[Any, Any]:
    """The policy and its binding as stored, each None where there is none: also where the API
    server is too old to know the kind. Raises ClusterError.
    """
    found = []
    for resource in ("mutatingadmissionpolicies", "mutatingadmissionpolicybindings"):
        path = f"{_GROUP}/{resource}/{keys.AVOID_POLICY}"
        call = Call("get", resource, "GET", path, keys.AVOID_POLICY)
        found.append((await api.call(call, accept=_FOUND)).body)
    return found[0], found[1]


async def namespaces_that_ask(api: KubeApi) -> list[str]:
    """The namespaces whose label asks for the preference, by name. Raises ClusterError."""
    call = Call("list", "namespaces", "GET", "/api/v1/namespaces")
    query = {"labelSelector": f"{keys.AVOID_LABEL}=true"}
    return sorted([item.metadata.name async for item in _items(api, call, query)])


async def running_pods(api: KubeApi, namespace: str) -> AsyncIterator[PodFacts]:
    """The pods of a namespace that have a node and have not ended. Raises ClusterError."""
    path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods"
    call = Call("list", "pods", "GET", path)
    async for item in _items(api, call, RUNNING):
        meta, affinity = item.metadata, item.spec.affinity
        preferred = (affinity.node.preferred if affinity and affinity.node else None) or ()
        yield PodFacts(
            meta.labels or {},
            meta.annotations or {},
            tuple(owner.kind for owner in meta.owners or ()),
            tuple(
                Term(each.key, each.operator, tuple(each.values or ()))
                for term in preferred
                for each in term.preference.expressions or ()
            ),
        )


async def _items(api: KubeApi, call: Call, query: dict[str, str]) -> AsyncIterator[_Item]:
    """The items of all pages, one page in memory at a time."""
    async for page in pages(api, call, _List, query=query):
        for item in page.items or ():
            yield item
        del page
