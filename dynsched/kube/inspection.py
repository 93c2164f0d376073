"""Reads objects of other owners, for `doctor` and `order`. Every function raises ClusterError. A
resource that the server does not know counts as an object that does not exist.
"""

from __future__ import annotations

from http import HTTPStatus
from operator import add
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import msgspec

from dynsched.kube.failures import ApiRequest, in_namespace
from dynsched.kube.lists import Named, pages
from dynsched.kube.pod_requests import (
    ASSIGNED_NOT_TERMINATED,
    PodSpec,
    PodStatus,
    limits_of,
    requests_of,
)
from dynsched.kube.transport import KubeApi
from dynsched.rules import keys
from dynsched.util.formatting import as_mapping, as_mappings

POLICIES: Final = "mutatingadmissionpolicies"
WEBHOOKS: Final = "mutatingwebhookconfigurations"
_LIST_PODS: Final = ApiRequest("list", "pods", "/api/v1/pods")


async def core(api: KubeApi, resource: str, name: str, namespace: str = "") -> Any:
    """An object of the core API group; None if it does not exist."""
    path = f"/api/v1{in_namespace(namespace)}/{resource}/{quote(name, safe='')}"
    call = ApiRequest("get", resource, path, name, namespace)
    return (await api.call(call, accept=(HTTPStatus.NOT_FOUND,))).body


async def policy(api: KubeApi, resource: str, name: str) -> Any:
    """An admission policy; None if it does not exist."""
    path = f"/apis/admissionregistration.k8s.io/v1/{resource}/{name}"
    return (
        await api.call(ApiRequest("get", resource, path, name), accept=(HTTPStatus.NOT_FOUND,))
    ).body


async def mutating_policy(api: KubeApi, name: str) -> tuple[Any, Any]:
    """The policy and the binding of this name; each is None if it does not exist."""
    found = await policy(api, POLICIES, name)
    return found, await policy(api, "mutatingadmissionpolicybindings", name)


async def resources(api: KubeApi, api_version: str) -> set[str]:
    """The names of the resources in an API version, such as ``apps/v1``; empty if unknown."""
    call = ApiRequest("get", "APIs", f"/apis/{api_version}")
    found = await api.call(call, accept=(HTTPStatus.NOT_FOUND,))
    return {each["name"] for each in as_mappings(as_mapping(found.body).get("resources"))}


async def namespaces_that_ask(api: KubeApi) -> list[str]:
    """The sorted names of the namespaces whose label makes new pods avoid hot nodes."""
    call = ApiRequest("list", "namespaces", "/api/v1/namespaces")
    query = {"labelSelector": f"{keys.AVOID_LABEL}=true"}
    names: list[str] = []
    async for page in pages(api, call, Named, query=query):
        names += [each.metadata.name for each in page.items or ()]
    return sorted(names)


class _Pod(msgspec.Struct, gc=False):
    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: PodStatus = msgspec.field(default_factory=PodStatus)


class PodTotals(NamedTuple):
    """Number, requests and limits of a node's pods that have not ended; in cores and bytes."""

    pods: int = 0
    cpu: float = 0.0
    memory: float = 0.0
    cpu_limits: float = 0.0
    memory_limits: float = 0.0


async def pod_totals(api: KubeApi) -> dict[str, PodTotals]:
    """Totals of the pods that have not ended, by node. Nodes without such pods are left out."""
    totals: dict[str, PodTotals] = {}
    async for page in pages(api, _LIST_PODS, _Pod, query=ASSIGNED_NOT_TERMINATED):
        for pod in page.items or ():
            requests = requests_of(pod.spec, pod.status, least=(0.0, 0.0))
            count, *sums = totals.get(pod.spec.node, PodTotals())
            more = map(add, sums, (*requests, *limits_of(pod.spec)))
            totals[pod.spec.node] = PodTotals(count + 1, *more)
        del page  # else two pages would be in memory while the next one arrives
    return totals
