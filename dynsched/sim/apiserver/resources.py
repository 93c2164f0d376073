"""What the server serves: the kinds, their names, scopes and selectable fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True, eq=False)
class Resource:
    """One served resource; compared by identity, so it can be a key.

    ``fields`` maps what a field selector may name, besides the name and the namespace, to where the
    value is in the object. ``unconditional_update``: whether a PUT without a resourceVersion is
    accepted.
    """

    group: str
    plural: str
    kind: str
    version: str = "v1"
    namespaced: bool = True
    short_name: str = ""
    has_status: bool = False
    unconditional_update: bool = True
    verbs: tuple[str, ...] = ("create", "delete", "get", "list", "patch", "update", "watch")
    fields: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def api_version(self) -> str:
        """``group/version``, or the bare version in the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def root(self) -> str:
        """Where the resources of this group and version are served."""
        return f"/apis/{self.api_version}" if self.group else f"/api/{self.version}"

    @property
    def qualified_kind(self) -> str:
        """``Kind.group`` as it stands in error messages."""
        return f"{self.kind}.{self.group}" if self.group else self.kind

    @property
    def qualified_plural(self) -> str:
        """``plural.group`` as it stands in error messages."""
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

# Served by metrics-server where there is one: see `dynsched.sim.apiserver.metrics`. Nothing of it
# is stored.
NODE_METRICS: Final = Resource(
    *("metrics.k8s.io", "nodes", "NodeMetrics", "v1beta1"),
    namespaced=False,
    verbs=("get", "list"),
)

ALL: Final = (NODES, NAMESPACES, PODS, SERVICES, EVENTS, LEASES)

_BY_PATH: Final = {(r.group, r.version, r.plural): r for r in ALL}
_BY_PLURAL: Final = {r.plural: r for r in ALL}


def find(group: str, version: str, plural: str) -> Resource | None:
    """The resource behind a URL's parts; None when it is not served."""
    return _BY_PATH.get((group, version, plural))


def named(resource: Resource | str) -> Resource:
    """A resource by its plural (``"nodes"``), for callers in the same process."""
    return _BY_PLURAL[resource] if isinstance(resource, str) else resource
