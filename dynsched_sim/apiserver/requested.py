"""Parses method, path and query of a request into target, verb and selector."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from dynsched.rules.labels import Selector as LabelSelector
from dynsched.rules.labels import parse_selector
from dynsched_sim.apiserver import api_errors, resources
from dynsched_sim.apiserver.resources import Resource
from dynsched_sim.apiserver.store import Entry

_ON_COLLECTION: Final = {"GET": "list", "POST": "create"}
_ON_OBJECT: Final = {"GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_ON_SUBRESOURCE: Final = {
    "status": {"GET": "get", "PUT": "update", "PATCH": "patch"},
    "binding": {"POST": "create"},
    "proxy": {"GET": "get"},
}
_PATH: Final = re.compile(
    r"/(?:api|apis/(?P<group>[^/]+))/(?P<version>[^/]+)"
    r"(?:/namespaces/(?P<namespace>[^/]+)(?=/(?!status$)))?"
    r"/(?P<plural>[^/]+)(?:/(?P<name>[^/]+)(?:/(?P<subresource>.+))?)?"
)
_FIELD_TERM: Final = re.compile(r"\s*([^=!]+?)\s*(!=|==?)\s*(.*?)\s*")


class Target(NamedTuple):
    resource: Resource
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def parse(path: str, served: Collection[Resource]) -> Target | None:
    """None if the path or its group is not served; ApiError 404 if only the rest is unknown."""
    found = _PATH.fullmatch(path.rstrip("/"))
    if found is None or (found["group"] or "") not in {each.group for each in served}:
        return None
    wanted = found["group"] or "", found["version"], found["plural"]
    resource = next((r for r in served if (r.group, r.version, r.plural) == wanted), None)
    namespace, name, part = (found[each] or "" for each in ("namespace", "name", "subresource"))
    if resource is None:
        raise api_errors.no_such_resource()
    # A single object of a namespaced resource is served under its namespace only.
    in_place = resource.namespaced if namespace else not (name and resource.namespaced)
    parts = {"": True, "status": resource.has_status, "binding": resource is resources.PODS}
    if not (in_place and parts.get(part)):
        raise api_errors.no_such_resource()
    return Target(resource, namespace, name, part)


def verb_of(method: str, target: Target, query: Mapping[str, str]) -> str:
    offered = _ON_OBJECT if target.name else _ON_COLLECTION
    if target.subresource:
        offered = _ON_SUBRESOURCE[target.subresource]
    verb = offered.get(method)
    if verb == "list" and query.get("watch", "").lower() in {"1", "true"}:
        return "watch"
    if verb is None or (target.resource.namespaced and not target.namespace and verb != "list"):
        message = "the server does not allow this method on the requested resource"
        raise api_errors.ApiError(405, "MethodNotAllowed", message, {})
    return verb


def number(query: Mapping[str, str], name: str) -> int:
    return int(query.get(name) or 0)


class _Field(NamedTuple):
    name: str
    value: str
    negated: bool


class ListSelector(NamedTuple):
    """The filter of a list or a watch. An empty one matches everything."""

    labels: LabelSelector
    fields: tuple[_Field, ...]
    namespace: str

    @property
    def everything(self) -> bool:
        return not (self.labels.requirements or self.fields or self.namespace)

    def __call__(self, entry: Entry) -> bool:
        return (
            self.namespace in {"", entry.namespace}
            and self.labels.matches(entry.labels)
            and all((entry.fields.get(f.name, "") == f.value) != f.negated for f in self.fields)
        )


def selector_of(target: Target, query: Mapping[str, str]) -> ListSelector:
    try:
        labels = parse_selector(query.get("labelSelector", ""))
    except ValueError as error:
        raise api_errors.bad_request(f"unable to parse requirement: {error}") from None
    terms = filter(None, query.get("fieldSelector", "").split(","))
    fields = tuple(_field(target.resource, term) for term in terms)
    return ListSelector(labels, fields, target.namespace)


def _field(resource: Resource, term: str) -> _Field:
    found = _FIELD_TERM.fullmatch(term)
    name, operator, value = found.groups() if found else (term, "", "")
    if name not in resource.fields and name not in {"metadata.name", "metadata.namespace"}:
        raise api_errors.bad_request(f"field label not supported: {name}")
    return _Field(name, value, negated=operator == "!=")
