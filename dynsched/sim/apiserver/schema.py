"""The shapes of the served kinds: what is kept, in which order, and of which type.

The real server decodes into Go structs: unknown fields fall away, a wrong type is refused. So it
is here for what dynsched writes (metadata, a node's spec, leases and events), with msgspec's
structs in the place of Go's; all else is kept as it is sent.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from dynsched.sim.apiserver import resources
from dynsched.sim.apiserver.resources import Resource

_STRING_MAPS: Final = frozenset({"labels", "annotations"})
_SECONDS: Final = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d"
_ZONE: Final = r"(Z|[+-]\d\d:\d\d)$"

_Time = Annotated[str, msgspec.Meta(pattern=rf"{_SECONDS}(\.\d+)?{_ZONE}")]
# Exactly six digits of a second; the real server refuses anything else.
_MicroTime = Annotated[str, msgspec.Meta(pattern=rf"{_SECONDS}\.\d{{6}}{_ZONE}")]
_Map = dict[str, Any]


class DecodeError(ValueError):
    """An object that is not of its kind."""


class _Part(msgspec.Struct, omit_defaults=True, rename="camel"):
    """The base of all: empty fields are left out, as ``omitempty`` does."""


class _ObjectMeta(_Part):
    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: _Time | None = None
    deletion_timestamp: _Time | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: list[_Map] = []
    finalizers: list[str] = []
    managed_fields: list[_Map] = []


class _Taint(_Part):
    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: _Time | None = None


class _NodeSpec(_Part):
    pod_cidr: str = msgspec.field(default="", name="podCIDR")
    pod_cidrs: list[str] = msgspec.field(default_factory=list, name="podCIDRs")
    provider_id: str = msgspec.field(default="", name="providerID")
    unschedulable: bool = False
    taints: list[_Taint] = []


class _Object(_Part):
    metadata: _ObjectMeta = msgspec.field(default_factory=_ObjectMeta)
    spec: _Map = {}
    status: _Map = {}


class _Node(msgspec.Struct):
    metadata: _ObjectMeta = msgspec.field(default_factory=_ObjectMeta)
    spec: _NodeSpec = msgspec.field(default_factory=_NodeSpec)
    status: _Map = {}


class _LeaseSpec(_Part):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: _MicroTime | None = None
    renew_time: _MicroTime | None = None
    lease_transitions: int | None = None


class _Lease(_Part):
    metadata: _ObjectMeta = msgspec.field(default_factory=_ObjectMeta)
    spec: _LeaseSpec | None = None


class _Event(msgspec.Struct, rename="camel"):
    metadata: _ObjectMeta = msgspec.field(default_factory=_ObjectMeta)
    involved_object: dict[str, str] = {}
    reason: str = ""
    message: str = ""
    source: dict[str, str] = {}
    first_timestamp: _Time | None = None
    last_timestamp: _Time | None = None
    count: int = 0
    type: str = ""
    event_time: _MicroTime | None = None
    series: _Map | None = None
    action: str = ""
    reporting_component: str = ""
    reporting_instance: str = ""


_SHAPES: Final[dict[Resource, type[msgspec.Struct]]] = {
    resources.NODES: _Node,
    resources.LEASES: _Lease,
    resources.EVENTS: _Event,
}


def normalise(resource: Resource, body: dict[str, Any]) -> dict[str, Any]:
    """The object as the server keeps it, without kind and apiVersion; DecodeError."""
    try:
        shaped = msgspec.convert(_without_nulls(body), _SHAPES.get(resource, _Object))
    except msgspec.ValidationError as error:
        raise DecodeError(str(error)) from None
    kept: dict[str, Any] = msgspec.to_builtins(shaped)
    if resource is resources.NODES and "capacity" in kept["status"]:
        kept["status"].setdefault("allocatable", kept["status"]["capacity"])
    return kept


def _without_nulls(value: Any) -> Any:
    """Null is as good as absent for a Go struct's field; in a Go map of strings it is empty."""
    if isinstance(value, dict):
        return {
            k: {n: "" if s is None else s for n, s in v.items()}
            if k in _STRING_MAPS and isinstance(v, dict)
            else _without_nulls(v)
            for k, v in value.items()
            if v is not None
        }
    if isinstance(value, list):
        return [_without_nulls(v) for v in value]
    return value
