"""The schema of each kind: how a body is decoded, and what the server refuses with 422.

The real server decodes into Go structs: it drops unknown fields and refuses wrong types. Here
msgspec structs do the same for metadata, a node's spec and Leases; everything else is stored as
sent.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final

import msgspec

from dynsched.rules.labels import is_label_key, is_label_value
from dynsched_sim.apiserver import resources
from dynsched_sim.apiserver.resources import Resource

_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_STRING_MAPS: Final = frozenset({"labels", "annotations"})
_SECONDS: Final = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d"
_ZONE: Final = r"(Z|[+-]\d\d:\d\d)$"

_Time = Annotated[str, msgspec.Meta(pattern=rf"{_SECONDS}(\.\d+)?{_ZONE}")]
# Exactly six fractional digits; the real server refuses anything else.
_MicroTime = Annotated[str, msgspec.Meta(pattern=rf"{_SECONDS}\.\d{{6}}{_ZONE}")]
_Map = dict[str, Any]


class _Part(msgspec.Struct, omit_defaults=True, rename="camel"):
    """The base of all structs: empty fields are omitted, as with Go's ``omitempty``."""


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


class _LeaseSpec(_Part):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: _MicroTime | None = None
    renew_time: _MicroTime | None = None
    lease_transitions: int | None = None


_SHAPES: Final[dict[Resource, Mapping[str, Any]]] = {
    resources.NODES: {"metadata": _ObjectMeta, "spec": _NodeSpec, "status": _Map},
    resources.LEASES: {"metadata": _ObjectMeta, "spec": _LeaseSpec},
}
_OTHERS: Final = {"metadata": _ObjectMeta}


def normalise(resource: Resource, body: dict[str, Any]) -> dict[str, Any]:
    """The object as it is stored, without kind and apiVersion. Raises msgspec.ValidationError."""
    sent = _without_nulls({k: v for k, v in body.items() if k not in {"kind", "apiVersion"}})
    shapes = _SHAPES.get(resource, _OTHERS).items()
    shaped = {part: msgspec.convert(sent.get(part, {}), shape) for part, shape in shapes}
    kept: dict[str, Any] = {**sent, **msgspec.to_builtins(shaped)}
    if resource is resources.NODES and "capacity" in kept["status"]:
        kept["status"].setdefault("allocatable", kept["status"]["capacity"])
    return kept


def _without_nulls(value: Any) -> Any:
    """Drop nulls: in a Go struct null equals absent. In a Go map of strings it becomes ""."""
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


# --- validation, answered with 422 ---


def validate(resource: Resource, new: Mapping[str, Any]) -> Iterator[str]:
    """All errors in the name, labels, annotations and taints: the field, and why."""
    meta = new["metadata"]
    if not meta.get("name"):
        yield "metadata.name: Required value"
    for key, value in meta.get("labels", {}).items():
        yield from _key_and_value("metadata.labels", "metadata.labels", key, value)
    for key in meta.get("annotations", {}):
        # Upper case is allowed in the prefix of an annotation's key, and nowhere else.
        yield from _key_and_value("metadata.annotations", "", key.lower(), "")
    if resource is resources.NODES:
        yield from _taints(new["spec"].get("taints", []))


def _key_and_value(key_field: str, value_field: str, key: str, value: str) -> Iterator[str]:
    if not is_label_key(key):
        why = "not a qualified name, as example.com/MyName"
        yield f"{key_field}: Invalid value: {json.dumps(key)}: {why}"
    if not is_label_value(value):
        why = "a valid label must have at most 63 characters"
        yield f"{value_field}: Invalid value: {json.dumps(value)}: {why}"


def _taints(taints: list[Mapping[str, str]]) -> Iterator[str]:
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(taints):
        # The real server says "metadata.taints", although taints are in the spec.
        field = f"metadata.taints[{index}]"
        key, value, effect = (taint.get(k, "") for k in ("key", "value", "effect"))
        yield from _key_and_value(f"{field}.key", f"{field}.value", key, value)
        if not effect:
            yield f"{field}.effect: Required value"
        elif effect not in _EFFECTS:
            supported = ", ".join(json.dumps(e) for e in _EFFECTS)
            yield f'{field}.effect: Unsupported value: "{effect}": supported values: {supported}'
        if (key, effect) in seen:
            yield f"{field}: Duplicate value: taints must be unique by key and effect pair"
        seen.add((key, effect))
