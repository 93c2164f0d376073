"""Looks at objects that others own, for the doctor and `inject --check`: read-only, lists in pages.

Every call raises ClusterError; where a server does not know a resource, there is None.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from http import HTTPStatus
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from dynsched.engine.avoidance import PodFacts, Term
from dynsched.kube.failures import Call
from dynsched.kube.pages import pages
from dynsched.kube.pod_requests import RUNNING
from dynsched.kube.transport import KubeApi
from dynsched.rules import keys

_REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_ADMISSION: Final = "/apis/admissionregistration.k8s.io"
_VERSIONS: Final = ("v1", "v1beta1", "v1alpha1")
_PREFERRED: Final = (
    "spec",
    "affinity",
    "nodeAffinity",
    "preferredDuringSchedulingIgnoredDuringExecution",
)
_PROGRAMS: Final = (
    ("Deployment", "apps/v1/deployments", ("spec", "template", "spec")),
    ("CronJob", "batch/v1/cronjobs", ("spec", "jobTemplate", "spec", "template", "spec")),
)
"""What runs programs: the kind, its URL, and where in it the pod's specification is."""


class Right(NamedTuple):
    """One verb on one resource, as RBAC names it. ``namespace`` empty: in the whole cluster."""

    verb: str
    resource: str
    group: str = ""
    namespace: str = ""
    name: str = ""


class Program(NamedTuple):
    """A container that a Deployment or CronJob runs: its image, its words (command and arguments),
    its environment, and the ConfigMaps that its pod mounts.
    """

    kind: str
    namespace: str
    name: str
    image: str
    words: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    config_maps: tuple[str, ...]


async def is_allowed(api: KubeApi, right: Right) -> bool | None:
    """Whether we have a right; None where the server makes no reviews."""
    resource, _, subresource = right.resource.partition("/")
    asked = {**right._asdict(), "resource": resource, "subresource": subresource}
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {name: text for name, text in asked.items() if text}},
    }
    call = Call("create", "selfsubjectaccessreviews", "POST", _REVIEWS)
    answer = await api.call(call, body=body, accept=(HTTPStatus.NOT_FOUND,))
    return None if answer.body is None else bool(_at(answer.body, "status", "allowed"))


async def programs(api: KubeApi, images: tuple[str, ...]) -> list[Program]:
    """The containers of all Deployments and CronJobs whose image has one of ``images`` in it."""
    return [
        Program(
            kind,
            item["metadata"]["namespace"],
            item["metadata"]["name"],
            each["image"],
            (*(each.get("command") or ()), *(each.get("args") or ())),
            tuple((entry["name"], entry.get("value", "")) for entry in each.get("env") or ()),
            tuple(
                volume["configMap"]["name"]
                for volume in _at(item, *where, "volumes") or ()
                if "configMap" in volume
            ),
        )
        for kind, path, where in _PROGRAMS
        async for item in _items(api, path.rpartition("/")[2], f"/apis/{path}")
        for each in _at(item, *where, "containers") or ()
        if any(name in each.get("image", "") for name in images)
    ]


async def config_map(api: KubeApi, namespace: str, name: str) -> dict[str, str] | None:
    where = f"/api/v1/namespaces/{quote(namespace, safe='')}/configmaps/{quote(name, safe='')}"
    found = await _object(api, Call("get", "configmaps", "GET", where, name, namespace))
    data: dict[str, str] | None = _at(found, "data")
    return data


async def policy(
    api: KubeApi,
    resource: str,
    name: str,
    versions: tuple[str, ...] = _VERSIONS,
) -> Any:
    """An admission policy of the whole cluster, in the first of the ``versions`` that the server
    has; None where there is none.
    """
    for version in versions:
        path = f"{_ADMISSION}/{version}/{resource}/{name}"
        found = await _object(api, Call("get", resource, "GET", path, name))
        if found is not None:
            return found
    return None


async def avoid_policy(api: KubeApi) -> tuple[Any, Any]:
    """The policy of the soft affinity and its binding, each None where there is none: also where
    the API server is too old to know the kind.
    """
    policies = ("mutatingadmissionpolicies", "mutatingadmissionpolicybindings")
    first, second = [await policy(api, each, keys.AVOID_POLICY, ("v1",)) for each in policies]
    return first, second


async def namespaces_that_ask(api: KubeApi) -> list[str]:
    query = {"labelSelector": f"{keys.AVOID_LABEL}=true"}
    found = _items(api, "namespaces", "/api/v1/namespaces", query)
    return sorted([item["metadata"]["name"] async for item in found])


async def running_pods(api: KubeApi, namespace: str) -> AsyncIterator[PodFacts]:
    path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods"
    async for item in _items(api, "pods", path, RUNNING):
        yield PodFacts(
            _at(item, "metadata", "labels") or {},
            _at(item, "metadata", "annotations") or {},
            tuple(owner["kind"] for owner in _at(item, "metadata", "ownerReferences") or ()),
            tuple(
                Term(each["key"], each["operator"], tuple(each.get("values") or ()))
                for term in _at(item, *_PREFERRED) or ()
                for each in _at(term, "preference", "matchExpressions") or ()
            ),
        )


async def _items(
    api: KubeApi, resource: str, path: str, query: Mapping[str, str] | None = None
) -> AsyncIterator[dict[str, Any]]:
    """The items of all pages, one page in memory at a time."""
    call = Call("list", resource, "GET", path)
    async for page in pages(api, call, dict[str, Any], query=query, may_be_unknown=True):
        for item in page.items or ():
            yield item
        del page


async def _object(api: KubeApi, call: Call) -> Any:
    return (await api.call(call, accept=(HTTPStatus.NOT_FOUND,))).body


def _at(body: Any, *path: str) -> Any:
    """What is at this place in an object; None where there is nothing."""
    for key in path:
        body = (body or {}).get(key)
    return body
