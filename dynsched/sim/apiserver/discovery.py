"""What the server says about itself: version, groups, resources, and as much OpenAPI as needed."""

from __future__ import annotations

from typing import Any, Final

from dynsched.sim.apiserver import resources
from dynsched.sim.apiserver.render import encode
from dynsched.sim.apiserver.resources import Resource

VERSION: Final = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.0+dynsched-sim",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "linux/amd64",
}
_AGGREGATED: Final = ("apidiscovery.k8s.io", ("v2", "v2beta1"), "APIGroupDiscoveryList")
_OPENAPI_V2_PROTOBUF: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_STATUS_VERBS: Final = ("get", "patch", "update")


def document(path: str, accept: str, *, metrics: bool = False) -> tuple[bytes, str] | None:
    """The discovery document at ``path`` and its media type; None when there is none.

    ``metrics``: whether metrics.k8s.io is served.
    """
    path = path.rstrip("/")
    if path == "/openapi/v2" and "protobuf" in accept:
        return _openapi_v2_protobuf(), _OPENAPI_V2_PROTOBUF
    if path in {"/api", "/apis"} and (version := _wants_aggregated(accept)):
        group, _, kind = _AGGREGATED
        media = f"application/json;g={group};v={version};as={kind}"
        return encode(_aggregated(version, core=path == "/api", metrics=metrics)), media
    found = _DOCUMENTS[metrics].get(path)
    return (encode(found), "application/json") if found is not None else None


def _wants_aggregated(accept: str) -> str:
    """The version of aggregated discovery that the Accept header names first, if any."""
    group, versions, kind = _AGGREGATED
    for option in accept.replace(" ", "").split(","):
        media, *parameters = option.split(";")
        given = dict(p.partition("=")[::2] for p in parameters)
        if media == "application/json" and (given.get("g"), given.get("as")) == (group, kind):
            if given.get("v") in versions:
                return given["v"]
        elif media == "application/json" and "as" not in given:
            return ""
    return ""


def _versions(*, metrics: bool) -> dict[tuple[str, str], list[Resource]]:
    found: dict[tuple[str, str], list[Resource]] = {}
    for resource in (*resources.ALL, resources.NODE_METRICS) if metrics else resources.ALL:
        found.setdefault((resource.group, resource.version), []).append(resource)
    return found


def _aggregated(version: str, *, core: bool, metrics: bool) -> dict[str, Any]:
    items = [
        {
            "metadata": {"name": group} if group else {},
            "versions": [
                {
                    "version": served,
                    "resources": [_aggregated_resource(r) for r in found],
                    "freshness": "Current",
                }
            ],
        }
        for (group, served), found in _versions(metrics=metrics).items()
        if (group == "") == core
    ]
    head = {"kind": _AGGREGATED[2], "apiVersion": f"{_AGGREGATED[0]}/{version}", "metadata": {}}
    return {**head, "items": items}


def _aggregated_resource(resource: Resource) -> dict[str, Any]:
    kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    shown: dict[str, Any] = {
        "resource": resource.plural,
        "responseKind": kind,
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": list(resource.verbs),
    }
    if resource.short_names:
        shown["shortNames"] = list(resource.short_names)
    if resource.has_status:
        sub = {"subresource": "status", "responseKind": kind, "verbs": list(_STATUS_VERBS)}
        shown["subresources"] = [sub]
    return shown


def _group(group: str, version: str) -> dict[str, Any]:
    named = {"groupVersion": f"{group}/{version}", "version": version}
    return {"name": group, "versions": [named], "preferredVersion": named}


def _resource_list(api_version: str, found: list[Resource]) -> dict[str, Any]:
    listed = []
    for resource in found:
        shown: dict[str, Any] = {
            "name": resource.plural,
            "singularName": resource.singular,
            "namespaced": resource.namespaced,
            "kind": resource.kind,
            "verbs": list(resource.verbs),
        }
        if resource.short_names:
            shown["shortNames"] = list(resource.short_names)
        listed.append(shown)
        if resource.has_status:
            sub = {"name": f"{resource.plural}/status", "singularName": ""}
            listed.append(shown | sub | {"verbs": list(_STATUS_VERBS)})
    head = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version}
    return {**head, "resources": listed}


def _openapi(found: list[Resource], root: str) -> dict[str, Any]:
    """OpenAPI v3 with nothing but what kubectl asks it: does a PATCH take ``fieldValidation``?"""
    parameter = {"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}
    paths = {}
    for resource in found:
        scope = "/namespaces/{namespace}" if resource.namespaced else ""
        kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
        operation = {
            "parameters": [parameter],
            "x-kubernetes-action": "patch",
            "x-kubernetes-group-version-kind": kind,
            "responses": {"200": {"description": "OK"}},
        }
        paths[f"{root}{scope}/{resource.plural}/{{name}}"] = {"patch": operation}
    info = {"title": "dynsched sim", "version": VERSION["gitVersion"]}
    return {"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": {}}}


def _openapi_v2_protobuf() -> bytes:
    """An OpenAPI v2 document without definitions, as the ``Document`` message of gnostic.

    Kubectl before 1.27 reads it to validate what it sends, and skips the kinds it does not find.
    """
    info = _field(1, b"dynsched sim") + _field(2, VERSION["gitVersion"].encode())
    return _field(1, b"2.0") + _field(2, info)


def _field(number: int, value: bytes) -> bytes:
    """A protobuf field of bytes, shorter than 128."""
    return bytes([number << 3 | 2, len(value)]) + value


def _documents(*, metrics: bool) -> dict[str, dict[str, Any]]:
    documents: dict[str, dict[str, Any]] = {
        "/version": dict(VERSION),
        "/api": {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []},
    }
    groups, roots = [], {}
    for (group, version), found in _versions(metrics=metrics).items():
        api_version = f"{group}/{version}" if group else version
        root = f"apis/{api_version}" if group else f"api/{api_version}"
        roots[root] = {"serverRelativeURL": f"/openapi/v3/{root}?hash=0"}
        documents[f"/{root}"] = _resource_list(api_version, found)
        documents[f"/openapi/v3/{root}"] = _openapi(found, f"/{root}")
        if group:
            groups.append(_group(group, version))
            head = {"kind": "APIGroup", "apiVersion": "v1"}
            documents[f"/apis/{group}"] = {**head, **_group(group, version)}
    documents["/apis"] = {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
    documents["/openapi/v3"] = {"paths": roots}
    info = {"title": "dynsched sim", "version": VERSION["gitVersion"]}
    documents["/openapi/v2"] = {"swagger": "2.0", "info": info, "paths": {}, "definitions": {}}
    return documents


_DOCUMENTS: Final = {served: _documents(metrics=served) for served in (False, True)}
