"""Reads objects that others own, for the doctor and `order`. Every call raises ClusterError, and
returns None where the server does not know the resource.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from http import HTTPStatus
from operator import add
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import msgspec

from dynsched.kube.failures import ApiRequest, in_namespace
from dynsched.kube.lists import Named, Owner, pages
from dynsched.kube.pod_requests import (
    ASSIGNED_NOT_TERMINATED,
    PodMeta,
    PodSpec,
    PodStatus,
    limits_of,
    requests_of,
)
from dynsched.kube.transport import KubeApi
from dynsched.rules import keys

_REVIEWS: Final = "authorization.k8s.io/v1"
POLICIES: Final = "mutatingadmissionpolicies"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
"""The key of the soft node affinity in a pod's specification."""
WEBHOOKS: Final = "mutatingwebhookconfigurations"
_LIST_PODS: Final = ApiRequest("list", "pods", "/api/v1/pods")


class Right(NamedTuple):
    """One verb on one resource, as RBAC names it. ``namespace`` empty: in the whole cluster."""

    verb: str
    resource: str
    group: str = ""
    namespace: str = ""
    name: str = ""


async def whoami(api: KubeApi) -> str | None:
    """The name of our account; None where the server has no such review."""
    resource = "selfsubjectreviews"
    call = ApiRequest("create", resource, f"/apis/authentication.k8s.io/v1/{resource}")
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    answer = await api.call(call, body=body, accept=(HTTPStatus.NOT_FOUND,))
    name = None if answer.body is None else _at(answer.body, "status", "userInfo", "username")
    return name if isinstance(name, str) else None


async def is_allowed(api: KubeApi, right: Right) -> bool:
    """Whether we have a right."""
    resource, _, subresource = right.resource.partition("/")
    attributes = {**right._asdict(), "resource": resource, "subresource": subresource}
    spec = {"resourceAttributes": {name: text for name, text in attributes.items() if text}}
    body = {"apiVersion": _REVIEWS, "kind": "SelfSubjectAccessReview", "spec": spec}
    resource = "selfsubjectaccessreviews"
    call = ApiRequest("create", resource, f"/apis/{_REVIEWS}/{resource}")
    return bool(_at((await api.call(call, body=body)).body, "status", "allowed"))


async def core(api: KubeApi, resource: str, name: str, namespace: str = "") -> Any:
    """An object of the API group without a name; None where it is not there."""
    path = f"/api/v1{in_namespace(namespace)}/{resource}/{quote(name, safe='')}"
    call = ApiRequest("get", resource, path, name, namespace)
    return (await api.call(call, accept=(HTTPStatus.NOT_FOUND,))).body


async def policy(api: KubeApi, resource: str, name: str) -> Any:
    """An admission policy; None where it is not there."""
    path = f"/apis/admissionregistration.k8s.io/v1/{resource}/{name}"
    return (
        await api.call(ApiRequest("get", resource, path, name), accept=(HTTPStatus.NOT_FOUND,))
    ).body


async def mutating_policy(api: KubeApi, name: str) -> tuple[Any, Any]:
    """The policy and the binding of this name; None for each that is not there."""
    found = await policy(api, POLICIES, name)
    return found, await policy(api, "mutatingadmissionpolicybindings", name)


async def resources(api: KubeApi, api_version: str) -> set[str]:
    """The names of what the server serves in a version of a group."""
    call = ApiRequest("get", "APIs", f"/apis/{api_version}")
    found = await api.call(call, accept=(HTTPStatus.NOT_FOUND,))
    return {each["name"] for each in _at(found.body, "resources") or ()}


async def namespaces_that_ask(api: KubeApi) -> list[str]:
    """The names of those with the label that has pods avoid hot nodes, sorted."""
    call = ApiRequest("list", "namespaces", "/api/v1/namespaces")
    query = {"labelSelector": f"{keys.AVOID_LABEL}=true"}
    names: list[str] = []
    async for page in pages(api, call, Named, query=query):
        names += [each.metadata.name for each in page.items or ()]
    return sorted(names)


class _Metadata(PodMeta, gc=False):
    owners: list[Owner] | None = msgspec.field(name="ownerReferences", default=None)


class _Spec(PodSpec, gc=False):
    scheduler: str = msgspec.field(name="schedulerName", default="default-scheduler")
    affinity: Any = None
    tolerations: Any = None


class Pod(msgspec.Struct, gc=False):
    """A pod; ``affinity`` and ``tolerations`` are as in its JSON."""

    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: PodStatus = msgspec.field(default_factory=PodStatus)


class PodTotals(NamedTuple):
    """Requests and limits of the pods on one node that have not ended, in cores and bytes."""

    pods: int = 0
    cpu: float = 0.0
    memory: float = 0.0
    cpu_limits: float = 0.0
    memory_limits: float = 0.0


async def placed_pods(api: KubeApi) -> AsyncIterator[Pod]:
    """All that have a node and have not ended."""
    async for page in pages(api, _LIST_PODS, Pod, query=ASSIGNED_NOT_TERMINATED):
        for pod in page.items or ():
            yield pod
        del page  # or two pages would be in memory while the next one comes


async def pod_totals(api: KubeApi) -> dict[str, PodTotals]:
    """By node, of those that have pods."""
    totals: dict[str, PodTotals] = {}
    async for pod in placed_pods(api):
        requests = requests_of(pod.spec, pod.status, least=(0.0, 0.0))
        count, *sums = totals.get(pod.spec.node, PodTotals())
        more = map(add, sums, (*requests, *limits_of(pod.spec)))
        totals[pod.spec.node] = PodTotals(count + 1, *more)
    return totals


def _at(body: Any, *path: str) -> Any:
    for key in path:
        body = (body or {}).get(key)
    return body
