"""The served resources, and the discovery documents and version made from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final


@dataclass(frozen=True, slots=True, eq=False)
class Resource:
    """One served resource; compared by identity, so that it can be a dict key.

    ``fields`` maps the field selectors, in addition to name and namespace, to their path in the
    object. ``unconditional_update``: whether a PUT without a resourceVersion is accepted.
    """

    group: str
    plural: str
    kind: str
    version: str = "v1"
    namespaced: bool = True
    short_name: str = ""
    has_status: bool = False
    unconditional_update: bool = True
    fields: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def root(self) -> str:
        return f"/apis/{self.api_version}" if self.group else f"/api/{self.version}"

    @property
    def name(self) -> str:
        """The name in records, faults and ``forbidden``: the plural, or for NodeMetrics, whose
        plural is ``nodes`` too, the plural with its group.
        """
        return self.qualified_plural if self is NODE_METRICS else self.plural

    @property
    def qualified_plural(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


NODES: Final = Resource(
    *("", "nodes", "Node"),
    namespaced=False,
    short_name="no",
    has_status=True,
    fields={"spec.unschedulable": ("spec", "unschedulable")},
)
NAMESPACES: Final = Resource(
    *("", "namespaces", "Namespace"), namespaced=False, short_name="ns", has_status=True
)
PODS: Final = Resource(
    *("", "pods", "Pod"),
    short_name="po",
    has_status=True,
    fields={
        "spec.nodeName": ("spec", "nodeName"),
        "spec.schedulerName": ("spec", "schedulerName"),
        "status.phase": ("status", "phase"),
    },
)
SERVICES: Final = Resource("", "services", "Service", short_name="svc")
CONFIG_MAPS: Final = Resource("", "configmaps", "ConfigMap", short_name="cm")
_ABOUT: Final = ("apiVersion", "kind", "name", "namespace", "uid", "fieldPath")
EVENTS: Final = Resource(
    *("", "events", "Event"),
    short_name="ev",
    fields={
        **{f"involvedObject.{part}": ("involvedObject", part) for part in _ABOUT},
        "reason": ("reason",),
        "reportingComponent": ("reportingComponent",),
        "type": ("type",),
    },
)
LEASES: Final = Resource("coordination.k8s.io", "leases", "Lease", unconditional_update=False)
NODE_ORDERS: Final = Resource("dynsched.io", "nodeorders", "NodeOrder")

# Served by metrics-server if it is installed.
NODE_METRICS: Final = Resource(
    "metrics.k8s.io", "nodes", "NodeMetrics", "v1beta1", namespaced=False
)

ALWAYS: Final = (NODES, NAMESPACES, PODS, SERVICES, CONFIG_MAPS, EVENTS, LEASES, NODE_ORDERS)
ALL: Final = (*ALWAYS, NODE_METRICS)

_BY_NAME: Final = {resource.name: resource for resource in ALL}


def named(resource: Resource | str) -> Resource:
    """Look up a resource by its plural (``"nodes"``), for callers in the same process."""
    return _BY_NAME[resource] if isinstance(resource, str) else resource


# --- discovery ---

_VERBS: Final = ("create", "delete", "get", "list", "patch", "update", "watch")
_STATUS_VERBS: Final = ("get", "patch", "update")
_VERSION: Final = {"major": "1", "minor": "36", "gitVersion": "v1.36.0+dynsched-sim"}


def _listed(resource: Resource) -> Iterator[dict[str, Any]]:
    shown: dict[str, Any] = {
        "name": resource.plural,
        "singularName": resource.kind.lower(),
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": _VERBS,
        "shortNames": [resource.short_name] if resource.short_name else [],
    }
    yield shown
    if resource.has_status:
        part = {"name": f"{resource.plural}/status", "singularName": "", "shortNames": []}
        yield shown | part | {"verbs": _STATUS_VERBS}


def _documents() -> dict[str, dict[str, Any]]:
    groups: dict[str, dict[str, Any]] = {}
    documents: dict[str, dict[str, Any]] = {
        "/version": {**_VERSION},
        "/api": {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []},
    }
    for resource in ALWAYS:
        version = {"groupVersion": resource.api_version, "version": resource.version}
        head = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": resource.api_version}
        documents.setdefault(resource.root, {**head, "resources": []})
        documents[resource.root]["resources"].extend(_listed(resource))
        if resource.group:
            about = {"name": resource.group, "versions": [version], "preferredVersion": version}
            groups[resource.group] = about
            path = f"/apis/{resource.group}"
            documents[path] = {"kind": "APIGroup", "apiVersion": "v1", **about}
    found = {"kind": "APIGroupList", "apiVersion": "v1", "groups": [*groups.values()]}
    return {**documents, "/apis": found}


DOCUMENTS: Final = _documents()
"""Discovery documents by path. The metrics API is never listed, even while it is served."""
