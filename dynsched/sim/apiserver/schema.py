"""The shapes of the served kinds: what is kept, in which order, and of which type.

The real server decodes into Go structs: unknown fields fall away (with a warning), a wrong type
is refused, times are normalised. So it is here, with msgspec's structs in the place of Go's.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from dynsched.sim.apiserver import resources
from dynsched.sim.apiserver.resources import Resource

_TIME: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)(T)(\d\d:\d\d:\d\d)(\.\d+)?(Z|[+-]\d\d:\d\d)", re.ASCII
)
_QUANTITY: Final = re.compile(r"[+-]?[0-9.]+(?:[eE][-+]?[0-9]+|[numkKMGTPE]i?)?", re.ASCII)

_STRING_MAPS: Final = frozenset({"labels", "annotations"})


class DecodeError(ValueError):
    """An object that is not of its kind; the message is worded like Go's decoder."""


class Time(str):
    """``metav1.Time``: RFC 3339, kept to the second, in UTC."""

    __slots__ = ()


class MicroTime(str):
    """``metav1.MicroTime``: exactly six digits of a second; anything else is refused."""

    __slots__ = ()


class Quantity(str):
    """An amount such as ``64Gi``; a JSON number is accepted too."""

    __slots__ = ()


class _Object(msgspec.Struct, omit_defaults=True, rename="camel"):
    """The base of all: empty fields are left out, as ``omitempty`` does."""


class _ObjectMeta(_Object):
    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: Time | None = None
    deletion_timestamp: Time | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: list[dict[str, Any]] = []
    finalizers: list[str] = []
    managed_fields: list[dict[str, Any]] = []


class _Taint(_Object):
    # Empty keys and effects are refused by validation, so leaving them out loses nothing.
    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: Time | None = None


class _NodeSpec(_Object):
    pod_cidr: str = msgspec.field(default="", name="podCIDR")
    pod_cidrs: list[str] = msgspec.field(default_factory=list, name="podCIDRs")
    provider_id: str = msgspec.field(default="", name="providerID")
    unschedulable: bool = False
    taints: list[_Taint] = []
    config_source: dict[str, Any] | None = None
    external_id: str = msgspec.field(default="", name="externalID")


class _Condition(msgspec.Struct, rename="camel"):
    type: str = ""
    status: str = ""
    # Always written, null where unset: these have no ``omitempty`` in Go.
    last_heartbeat_time: Time | None = None
    last_transition_time: Time | None = None
    reason: str | msgspec.UnsetType = msgspec.UNSET
    message: str | msgspec.UnsetType = msgspec.UNSET


class _Address(msgspec.Struct):
    type: str = ""
    address: str = ""


class _NodeInfo(msgspec.Struct, rename="camel"):
    machine_id: str = msgspec.field(default="", name="machineID")
    system_uuid: str = msgspec.field(default="", name="systemUUID")
    boot_id: str = msgspec.field(default="", name="bootID")
    kernel_version: str = ""
    os_image: str = ""
    container_runtime_version: str = ""
    kubelet_version: str = ""
    kube_proxy_version: str = ""
    operating_system: str = ""
    architecture: str = ""


class _Port(msgspec.Struct):
    port: int = msgspec.field(default=0, name="Port")


class _DaemonEndpoints(msgspec.Struct, rename="camel"):
    kubelet_endpoint: _Port = msgspec.field(default_factory=_Port)


class _NodeStatus(_Object):
    capacity: dict[str, Quantity] = {}
    allocatable: dict[str, Quantity] = {}
    phase: str = ""
    conditions: list[_Condition] = []
    addresses: list[_Address] = []
    daemon_endpoints: _DaemonEndpoints | None = None
    node_info: _NodeInfo | None = None
    images: list[dict[str, Any]] = []
    volumes_in_use: list[str] = []
    volumes_attached: list[dict[str, Any]] = []
    config: dict[str, Any] | None = None
    runtime_handlers: list[dict[str, Any]] = []
    features: dict[str, Any] | None = None
    declared_features: list[str] = []


class _Node(msgspec.Struct, omit_defaults=True):
    metadata: _ObjectMeta = msgspec.field(default_factory=_ObjectMeta)
    spec: _NodeSpec | None = None
    status: _NodeStatus | None = None


class _Namespace(msgspec.Struct, omit_defaults=True):
    metadata: _ObjectMeta = msgspec.field(default_factory=_ObjectMeta)
    spec: dict[str, Any] | None = None
    status: dict[str, Any] | None = None


class _Pod(msgspec.Struct, omit_defaults=True):
    metadata: _ObjectMeta = msgspec.field(default_factory=_ObjectMeta)
    spec: dict[str, Any] | None = None
    status: dict[str, Any] | None = None


class _LeaseSpec(_Object):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: MicroTime | None = None
    renew_time: MicroTime | None = None
    lease_transitions: int | None = None
    strategy: str | None = None
    preferred_holder: str | None = None


class _Lease(msgspec.Struct, omit_defaults=True):
    metadata: _ObjectMeta = msgspec.field(default_factory=_ObjectMeta)
    spec: _LeaseSpec | None = None


class _Reference(_Object):
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    resource_version: str = ""
    field_path: str = ""


class _ServicePort(_Object):
    name: str = ""
    protocol: str = "TCP"
    app_protocol: str = ""
    port: int = 0
    target_port: int | str | None = None


class _ServiceSpec(_Object):
    ports: list[_ServicePort] | None = None
    selector: dict[str, str] | None = None
    cluster_ip: str = msgspec.field(name="clusterIP", default="")
    type: str = ""


class _Service(msgspec.Struct, rename="camel"):
    metadata: _ObjectMeta = msgspec.field(default_factory=_ObjectMeta)
    spec: _ServiceSpec = msgspec.field(default_factory=_ServiceSpec)


class _EventSource(_Object):
    component: str = ""
    host: str = ""


class _EventSeries(_Object):
    count: int = 0
    last_observed_time: MicroTime | None = None


class _Event(msgspec.Struct, rename="camel"):
    metadata: _ObjectMeta = msgspec.field(default_factory=_ObjectMeta)
    involved_object: _Reference = msgspec.field(default_factory=_Reference)
    reason: str | msgspec.UnsetType = msgspec.UNSET
    message: str | msgspec.UnsetType = msgspec.UNSET
    source: _EventSource = msgspec.field(default_factory=_EventSource)
    first_timestamp: Time | None = None
    last_timestamp: Time | None = None
    count: int | msgspec.UnsetType = msgspec.UNSET
    type: str | msgspec.UnsetType = msgspec.UNSET
    event_time: MicroTime | None = None
    series: _EventSeries | msgspec.UnsetType = msgspec.UNSET
    action: str | msgspec.UnsetType = msgspec.UNSET
    related: _Reference | msgspec.UnsetType = msgspec.UNSET
    reporting_component: str = ""
    reporting_instance: str = ""


_SHAPES: Final[dict[Resource, type[msgspec.Struct]]] = {
    resources.NODES: _Node,
    resources.NAMESPACES: _Namespace,
    resources.PODS: _Pod,
    resources.SERVICES: _Service,
    resources.LEASES: _Lease,
    resources.EVENTS: _Event,
}


def normalise(resource: Resource, body: dict[str, Any]) -> dict[str, Any]:
    """The object as the server keeps it, without kind and apiVersion; DecodeError."""
    try:
        shaped = msgspec.convert(
            _without_nulls(body), _SHAPES[resource.storage], dec_hook=_decode_special
        )
        if isinstance(shaped, _Node):
            _complete_node(shaped)
        kept: dict[str, Any] = msgspec.to_builtins(shaped, enc_hook=str)
    except msgspec.ValidationError as error:
        raise DecodeError(_as_go_says(str(error), resource)) from None
    return kept


def unknown_fields(body: Any, kept: Any, path: str = "") -> list[str]:
    """The fields of ``body`` that did not survive ``normalise``, by their paths."""
    if isinstance(body, dict) and isinstance(kept, dict):
        lost = []
        for key, value in body.items():
            here = f"{path}.{key}" if path else key
            if key in kept:
                lost += unknown_fields(value, kept[key], here)
            elif value and here not in {"kind", "apiVersion"}:  # empty known fields are omitted
                lost.append(here)
        return lost
    if isinstance(body, list) and isinstance(kept, list):
        return [
            lost
            for index, (one, other) in enumerate(zip(body, kept, strict=False))
            for lost in unknown_fields(one, other, f"{path}[{index}]")
        ]
    return []


def _complete_node(node: _Node) -> None:
    """What the real server's defaulting adds, and fields that Go always writes."""
    spec = node.spec = node.spec or _NodeSpec()
    if spec.pod_cidr and not spec.pod_cidrs:
        spec.pod_cidrs = [spec.pod_cidr]
    status = node.status = node.status or _NodeStatus()
    status.allocatable = status.allocatable or status.capacity
    status.daemon_endpoints = status.daemon_endpoints or _DaemonEndpoints()
    status.node_info = status.node_info or _NodeInfo()


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


def _decode_special(wanted: type, raw: Any) -> Any:
    if wanted is Quantity:
        if isinstance(raw, bool) or not isinstance(raw, str | int | float):
            raise ValueError(f"json: cannot unmarshal {_go_type(raw)} into Quantity")
        if not _QUANTITY.fullmatch(str(raw)):
            raise ValueError(
                "quantities must match the regular expression"
                " '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
            )
        return Quantity(raw)
    return _decode_time(wanted, raw)


def _decode_time(wanted: type, raw: Any) -> Any:
    if not isinstance(raw, str):
        message = f"json: cannot unmarshal {_go_type(raw)} into Go value of type string"
        raise ValueError(message)  # noqa: TRY004 - msgspec reports only ValueError
    layout = (
        "2006-01-02T15:04:05.000000Z07:00" if wanted is MicroTime else "2006-01-02T15:04:05Z07:00"
    )
    found = _TIME.fullmatch(raw)
    if found is None:
        raise ValueError(f'parsing time "{raw}" as "{layout}": cannot parse "{raw}" as "2006"')
    fraction = found[4] or ""
    if wanted is MicroTime and len(fraction) != len(".000000"):
        rest = f"{fraction}{found[5]}"
        raise ValueError(f'parsing time "{raw}" as "{layout}": cannot parse "{rest}" as ".000000"')
    try:
        moment = datetime.fromisoformat(f"{found[1]}T{found[3]}{found[5]}").astimezone(UTC)
    except ValueError:
        raise ValueError(f'parsing time "{raw}": day or hour out of range') from None
    stamp = moment.strftime("%Y-%m-%dT%H:%M:%S")
    return MicroTime(f"{stamp}{fraction}Z") if wanted is MicroTime else Time(f"{stamp}Z")


_EXPECTED: Final = re.compile(
    r"Expected `(\w+)[^`]*`, got `(\w+)`(?: - at `(?:key in )?\$\.?([^`]*)`)?"
)
_GOT: Final = {"str": "string", "int": "number", "float": "number"}
_WANTED: Final = {"str": "string", "int": "int32", "array": "[]struct", "object": "map"}


def _go_type(raw: Any) -> str:
    names = {dict: "object", list: "array", bool: "bool", int: "number", float: "number"}
    return names.get(type(raw), "string")


def _as_go_says(message: str, resource: Resource) -> str:
    """``Expected `str`, got `int` - at `$.metadata.labels[...]``` in the words of Go."""
    found = _EXPECTED.match(message)
    if found is None:
        return message.partition(" - at `")[0]
    want, got = _WANTED.get(found[1], found[1]), _GOT.get(found[2], found[2])
    path = re.sub(r"\[[^\]]*\]", "", found[3] or "")
    top = path.partition(".")[0]
    struct = "ObjectMeta" if top == "metadata" else f"{resource.kind}{top.title()}"
    return f"json: cannot unmarshal {got} into Go struct field {struct}.{path} of type {want}"
