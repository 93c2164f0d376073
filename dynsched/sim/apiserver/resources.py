"""What the server serves: the kinds, their names, scopes and selectable fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

_META_FIELDS: Final = {
    "metadata.name": ("metadata", "name"),
    "metadata.namespace": ("metadata", "namespace"),
}


@dataclass(frozen=True, slots=True, eq=False)
class Resource:
    """One served resource; compared by identity, so it can be a key.

    ``fields`` maps what a field selector may name to where the value is in the object.
    ``stored_as`` is set where this is another version's view of the same stored objects.
    """

    group: str
    version: str
    plural: str
    singular: str
    kind: str
    namespaced: bool
    short_names: tuple[str, ...] = ()
    has_status: bool = False
    unconditional_update: bool = True
    """Whether a PUT without a resourceVersion is accepted."""
    read_only: bool = False
    fields: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: dict(_META_FIELDS))
    stored_as: Resource | None = None

    @property
    def api_version(self) -> str:
        """``group/version``, or the bare version in the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified_kind(self) -> str:
        """``Kind.group`` as it stands in error messages."""
        return f"{self.kind}.{self.group}" if self.group else self.kind

    @property
    def qualified_plural(self) -> str:
        """``plural.group`` as it stands in error messages."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def storage(self) -> Resource:
        """The resource under which the objects are stored."""
        return self.stored_as or self

    @property
    def verbs(self) -> tuple[str, ...]:
        """The verbs that discovery advertises."""
        if self.read_only:
            return ("get", "list")
        every = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
        # The real server has no deletecollection on namespaces either.
        return tuple(v for v in every if v != "deletecollection" or self.plural != "namespaces")


NODES: Final = Resource(
    group="",
    version="v1",
    plural="nodes",
    singular="node",
    kind="Node",
    namespaced=False,
    short_names=("no",),
    has_status=True,
    fields={
        "metadata.name": ("metadata", "name"),
        "spec.unschedulable": ("spec", "unschedulable"),
    },
)
NAMESPACES: Final = Resource(
    group="",
    version="v1",
    plural="namespaces",
    singular="namespace",
    kind="Namespace",
    namespaced=False,
    short_names=("ns",),
    has_status=True,
    fields={"metadata.name": ("metadata", "name"), "status.phase": ("status", "phase")},
)
PODS: Final = Resource(
    group="",
    version="v1",
    plural="pods",
    singular="pod",
    kind="Pod",
    namespaced=True,
    short_names=("po",),
    has_status=True,
    fields={
        **_META_FIELDS,
        "spec.nodeName": ("spec", "nodeName"),
        "spec.schedulerName": ("spec", "schedulerName"),
        "status.phase": ("status", "phase"),
    },
)
SERVICES: Final = Resource(
    group="",
    version="v1",
    plural="services",
    singular="service",
    kind="Service",
    namespaced=True,
    short_names=("svc",),
)
EVENTS: Final = Resource(
    group="",
    version="v1",
    plural="events",
    singular="event",
    kind="Event",
    namespaced=True,
    short_names=("ev",),
    fields={
        **_META_FIELDS,
        "involvedObject.kind": ("involvedObject", "kind"),
        "involvedObject.namespace": ("involvedObject", "namespace"),
        "involvedObject.name": ("involvedObject", "name"),
        "involvedObject.uid": ("involvedObject", "uid"),
        "involvedObject.apiVersion": ("involvedObject", "apiVersion"),
        "involvedObject.resourceVersion": ("involvedObject", "resourceVersion"),
        "involvedObject.fieldPath": ("involvedObject", "fieldPath"),
        "reason": ("reason",),
        "reportingComponent": ("reportingComponent",),
        "source": ("source", "component"),
        "type": ("type",),
    },
)
EVENTS_V1: Final = Resource(
    group="events.k8s.io",
    version="v1",
    plural="events",
    singular="event",
    kind="Event",
    namespaced=True,
    short_names=("ev",),
    # As the real server: regarding.* selects on what is stored as involvedObject.*
    fields={
        name.replace("involvedObject", "regarding"): path for name, path in EVENTS.fields.items()
    },
    stored_as=EVENTS,
)
LEASES: Final = Resource(
    group="coordination.k8s.io",
    version="v1",
    plural="leases",
    singular="lease",
    kind="Lease",
    namespaced=True,
    unconditional_update=False,
)
# Served by metrics-server where there is one: see `dynsched.sim.apiserver.metrics`. Nothing of it
# is stored.
NODE_METRICS: Final = Resource(
    group="metrics.k8s.io",
    version="v1beta1",
    plural="nodes",
    singular="",
    kind="NodeMetrics",
    namespaced=False,
    read_only=True,
)

ALL: Final = (NODES, NAMESPACES, PODS, SERVICES, EVENTS, EVENTS_V1, LEASES)
STORED: Final = tuple(r for r in ALL if r.stored_as is None)

_BY_PATH: Final = {(r.group, r.version, r.plural): r for r in ALL}
_BY_PLURAL: Final = {r.plural: r for r in STORED}


def find(group: str, version: str, plural: str) -> Resource | None:
    """The resource behind a URL's parts; None when it is not served."""
    return _BY_PATH.get((group, version, plural))


def named(resource: Resource | str) -> Resource:
    """A resource by its plural (``"nodes"``), for callers in the same process."""
    return _BY_PLURAL[resource] if isinstance(resource, str) else resource
