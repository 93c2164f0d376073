"""Looks at objects that others own, for the doctor: read-only, each list in pages and projected.

Every call raises ClusterError; where a server does not know a resource, there is None.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import msgspec

from dynsched.kube.failures import Call
from dynsched.kube.pages import ListMeta, ObjectName, pages
from dynsched.kube.transport import KubeApi

_REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_ADMISSION: Final = "/apis/admissionregistration.k8s.io"


class Right(NamedTuple):
    """One verb on one resource, as RBAC names it. ``namespace`` empty: in the whole cluster."""

    verb: str
    resource: str
    group: str = ""
    namespace: str = ""
    name: str = ""


class _Named(msgspec.Struct, gc=False):
    name: str = ""


class _Variable(msgspec.Struct, gc=False):
    name: str = ""
    value: str = ""


class _Container(msgspec.Struct, gc=False):
    image: str = ""
    command: list[str] | None = None
    args: list[str] | None = None
    env: list[_Variable] | None = None


class _Volume(msgspec.Struct, gc=False):
    config_map: _Named | None = msgspec.field(name="configMap", default=None)


class _PodSpec(msgspec.Struct, gc=False):
    containers: list[_Container] | None = None
    volumes: list[_Volume] | None = None


class _Template(msgspec.Struct, gc=False):
    spec: _PodSpec = msgspec.field(default_factory=_PodSpec)


class _JobSpec(msgspec.Struct, gc=False):
    template: _Template = msgspec.field(default_factory=_Template)


class _JobTemplate(msgspec.Struct, gc=False):
    spec: _JobSpec = msgspec.field(default_factory=_JobSpec)


class _Spec(msgspec.Struct, gc=False):
    template: _Template = msgspec.field(default_factory=_Template)
    job: _JobTemplate | None = msgspec.field(name="jobTemplate", default=None)


class _Item(msgspec.Struct, gc=False):
    metadata: ObjectName = msgspec.field(default_factory=ObjectName)
    spec: _Spec = msgspec.field(default_factory=_Spec)


class _Page(msgspec.Struct, gc=False):
    metadata: ListMeta = msgspec.field(default_factory=ListMeta)
    items: list[_Item] | None = None


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
    asked = {
        "verb": right.verb,
        "group": right.group,
        "resource": resource,
        "subresource": subresource,
        "namespace": right.namespace,
        "name": right.name,
    }
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {name: text for name, text in asked.items() if text}},
    }
    call = Call("create", "selfsubjectaccessreviews", "POST", _REVIEWS)
    answer = await api.call(call, body=body, accept=(HTTPStatus.NOT_FOUND,))
    if answer.status == HTTPStatus.NOT_FOUND or not isinstance(answer.body, dict):
        return None
    return bool((answer.body.get("status") or {}).get("allowed"))


async def programs(api: KubeApi, images: tuple[str, ...]) -> list[Program]:
    """The containers of all Deployments and CronJobs whose image has one of ``images`` in it."""
    found: list[Program] = []
    for kind, path in (("Deployment", "apps/v1/deployments"), ("CronJob", "batch/v1/cronjobs")):
        call = Call("list", path.rpartition("/")[2], "GET", f"/apis/{path}")
        async for page in pages(api, call, _Page, may_be_unknown=True):
            for item in page.items or ():
                found += _programs(kind, item, images)
            del page
    return found


async def config_map(api: KubeApi, namespace: str, name: str) -> dict[str, str] | None:
    """The data of a ConfigMap; None where there is none."""
    where = f"/api/v1/namespaces/{quote(namespace, safe='')}/configmaps/{quote(name, safe='')}"
    found = await _object(api, Call("get", "configmaps", "GET", where, name, namespace))
    data = None if found is None else found.get("data")
    return None if not isinstance(data, dict) else {key: str(text) for key, text in data.items()}


async def policy(api: KubeApi, resource: str, name: str) -> dict[str, Any] | None:
    """An admission policy of the whole cluster, in the newest version that the server has; None
    where there is none.
    """
    for version in ("v1", "v1beta1", "v1alpha1"):
        path = f"{_ADMISSION}/{version}/{resource}/{name}"
        found = await _object(api, Call("get", resource, "GET", path, name))
        if found is not None:
            return found
    return None


async def _object(api: KubeApi, call: Call) -> dict[str, Any] | None:
    answer = await api.call(call, accept=(HTTPStatus.NOT_FOUND,))
    is_found = answer.status != HTTPStatus.NOT_FOUND and isinstance(answer.body, dict)
    return answer.body if is_found else None


def _programs(kind: str, item: _Item, images: tuple[str, ...]) -> list[Program]:
    template = item.spec.job.spec.template if item.spec.job else item.spec.template
    pod = template.spec
    maps = tuple(each.config_map.name for each in pod.volumes or () if each.config_map)
    return [
        Program(
            kind,
            item.metadata.namespace,
            item.metadata.name,
            each.image,
            (*(each.command or ()), *(each.args or ())),
            tuple((variable.name, variable.value) for variable in each.env or ()),
            maps,
        )
        for each in pod.containers or ()
        if any(name in each.image for name in images)
    ]
