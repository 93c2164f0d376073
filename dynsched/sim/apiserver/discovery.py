"""What the server says about itself: version, groups, resources, and as much OpenAPI as needed."""

from __future__ import annotations

from typing import Any, Final

from dynsched.sim.apiserver import resources
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
_STATUS_VERBS: Final = ("get", "patch", "update")


def document(path: str, *, metrics: bool = False) -> dict[str, Any] | None:
    """The discovery document at ``path``; None when there is none.

    ``metrics``: whether metrics.k8s.io is served.
    """
    return _DOCUMENTS[metrics].get(path.rstrip("/"))


def _resource_list(api_version: str, found: list[Resource]) -> dict[str, Any]:
    listed = []
    for resource in found:
        shown: dict[str, Any] = {
            "name": resource.plural,
            "singularName": resource.kind.lower(),
            "namespaced": resource.namespaced,
            "kind": resource.kind,
            "verbs": resource.verbs,
            "shortNames": [resource.short_name] if resource.short_name else [],
        }
        listed.append(shown)
        if resource.has_status:
            sub = {"name": f"{resource.plural}/status", "singularName": "", "shortNames": []}
            listed.append(shown | sub | {"verbs": _STATUS_VERBS})
    head = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version}
    return {**head, "resources": listed}


def _documents(*, metrics: bool) -> dict[str, dict[str, Any]]:
    by_version: dict[str, list[Resource]] = {}
    for resource in (*resources.ALL, resources.NODE_METRICS) if metrics else resources.ALL:
        by_version.setdefault(resource.api_version, []).append(resource)
    documents: dict[str, dict[str, Any]] = {
        "/version": dict(VERSION),
        "/api": {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []},
    }
    groups = []
    for api_version, found in by_version.items():
        group, root = found[0].group, found[0].root
        documents[root] = _resource_list(api_version, found)
        if group:
            named = {"groupVersion": api_version, "version": found[0].version}
            about = {"name": group, "versions": [named], "preferredVersion": named}
            groups.append(about)
            documents[f"/apis/{group}"] = {"kind": "APIGroup", "apiVersion": "v1", **about}
    documents["/apis"] = {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
    return documents


_DOCUMENTS: Final = {served: _documents(metrics=served) for served in (False, True)}
