"""How kubectl gets its columns: Tables, and objects cut down to their metadata."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from dynsched.sim.apiserver import resources
from dynsched.sim.apiserver.resources import Resource

_META_API: Final = "meta.k8s.io/v1"
_NONE: Final = "<none>"
_UNKNOWN: Final = "<unknown>"
_ROLE_PREFIX: Final = "node-role.kubernetes.io/"
_ROLE_LABEL: Final = "kubernetes.io/role"

# kubectl's durations: below so many seconds, written in this unit, and with a finer one or none.
_MINUTE, _HOUR, _DAY, _YEAR = 60, 3600, 86400, 365 * 86400
_UNITS: Final = {1: "s", _MINUTE: "m", _HOUR: "h", _DAY: "d", _YEAR: "y"}
_STEPS: Final = (
    (2 * _MINUTE, 1, 0),
    (10 * _MINUTE, _MINUTE, 1),
    (3 * _HOUR, _MINUTE, 0),
    (8 * _HOUR, _HOUR, _MINUTE),
    (2 * _DAY, _HOUR, 0),
    (8 * _DAY, _DAY, _HOUR),
    (2 * _YEAR, _DAY, 0),
    (8 * _YEAR, _YEAR, _DAY),
    (float("inf"), _YEAR, 0),
)
_CLOCK_SKEW: Final = -1  # seconds into the future that still count as now


@dataclass(frozen=True, slots=True)
class _Columns:
    """Names with their priority (1 is shown by ``-o wide`` only), and a row's cells."""

    names: tuple[tuple[str, int], ...]
    cells: Callable[[Mapping[str, Any], datetime], list[Any]]


def table(
    resource: Resource,
    bodies: Iterable[Mapping[str, Any]],
    metadata: Mapping[str, Any],
    now: datetime,
    *,
    include: str = "Metadata",
) -> dict[str, Any]:
    """A Table of ``bodies``. ``include``: what each row carries: Metadata, Object or None."""
    columns = _COLUMNS.get(resource.storage, _ANY)
    definitions = [
        {
            "name": name,
            "type": "string",
            "format": "name" if name == "Name" else "",
            "description": "",
            "priority": priority,
        }
        for name, priority in columns.names
    ]
    rows = [
        {"cells": columns.cells(body, now), "object": _row_object(resource, body, include)}
        for body in bodies
    ]
    return {
        "kind": "Table",
        "apiVersion": _META_API,
        "metadata": metadata,
        "columnDefinitions": definitions,
        "rows": rows,
    }


def partial(body: Mapping[str, Any]) -> dict[str, Any]:
    """PartialObjectMetadata of an object."""
    kind = {"kind": "PartialObjectMetadata", "apiVersion": _META_API}
    return {**kind, "metadata": body["metadata"]}


def partial_list(bodies: Iterable[Mapping[str, Any]], metadata: Mapping[str, Any]) -> Any:
    """PartialObjectMetadataList of objects."""
    return {
        "kind": "PartialObjectMetadataList",
        "apiVersion": _META_API,
        "metadata": metadata,
        "items": [partial(body) for body in bodies],
    }


def _row_object(resource: Resource, body: Mapping[str, Any], include: str) -> Any:
    if include == "None":
        return None
    if include == "Object":
        return {"kind": resource.kind, "apiVersion": resource.api_version, **body}
    return partial(body)


def age(since: str | None, now: datetime) -> str:
    """As kubectl writes durations: 90s, 5m30s, 3h, 2d4h."""
    if not since:
        return _UNKNOWN
    seconds = int((now - datetime.fromisoformat(since)).total_seconds())
    if seconds < _CLOCK_SKEW:
        return "<invalid>"
    seconds = max(seconds, 0)
    unit, finer = next((unit, finer) for limit, unit, finer in _STEPS if seconds < limit)
    rest = seconds % unit // finer if finer else 0
    return f"{seconds // unit}{_UNITS[unit]}" + (f"{rest}{_UNITS[finer]}" if rest else "")


def _node(body: Mapping[str, Any], now: datetime) -> list[Any]:
    meta, spec, state = body["metadata"], body.get("spec", {}), body.get("status", {})
    ready = [c["status"] for c in state.get("conditions", []) if c["type"] == "Ready"]
    shown = {"True": "Ready"}.get(ready[0], "NotReady") if ready else "Unknown"
    if spec.get("unschedulable"):
        shown += ",SchedulingDisabled"
    info = state.get("nodeInfo", {})
    return [
        meta["name"],
        shown,
        ",".join(_roles(meta.get("labels", {}))) or _NONE,
        age(meta.get("creationTimestamp"), now),
        info.get("kubeletVersion", ""),
        _address(state, "InternalIP"),
        _address(state, "ExternalIP"),
        info.get("osImage") or _UNKNOWN,
        _kernel(info),
        info.get("containerRuntimeVersion") or _UNKNOWN,
    ]


def _kernel(info: Mapping[str, str]) -> str:
    version, architecture = info.get("kernelVersion", ""), info.get("architecture", "")
    return f"{version} ({architecture})" if version and architecture else version or _UNKNOWN


def _roles(labels: Mapping[str, str]) -> list[str]:
    roles = {key.removeprefix(_ROLE_PREFIX) for key in labels if key.startswith(_ROLE_PREFIX)}
    if labels.get(_ROLE_LABEL):
        roles.add(labels[_ROLE_LABEL])
    return sorted(roles - {""})


def _address(state: Mapping[str, Any], kind: str) -> str:
    found = (a["address"] for a in state.get("addresses", []) if a["type"] == kind)
    return next(found, _NONE)


def _event(body: Mapping[str, Any], now: datetime) -> list[Any]:
    first = age(body.get("firstTimestamp") or body.get("eventTime"), now)
    last = age(body["lastTimestamp"], now) if body.get("lastTimestamp") else first
    count = body.get("count") or 1
    if series := body.get("series"):
        last, count = age(series.get("lastObservedTime"), now), series.get("count", count)
    involved = body.get("involvedObject", {})
    kind, name = involved.get("kind", "").lower(), involved.get("name", "")
    source = body.get("source", {})
    component = source.get("component") or body.get("reportingComponent", "")
    host = source.get("host") or body.get("reportingInstance", "")
    return [
        last,
        body.get("type", ""),
        body.get("reason", ""),
        f"{kind}/{name}" if name else kind,
        involved.get("fieldPath", ""),
        ", ".join(filter(None, (component, host))),
        body.get("message", "").strip(),
        first,
        count,
        body["metadata"]["name"],
    ]


def _lease(body: Mapping[str, Any], now: datetime) -> list[Any]:
    meta = body["metadata"]
    holder = body.get("spec", {}).get("holderIdentity", "")
    return [meta["name"], holder, age(meta.get("creationTimestamp"), now)]


def _namespace(body: Mapping[str, Any], now: datetime) -> list[Any]:
    meta = body["metadata"]
    phase = body.get("status", {}).get("phase", "")
    return [meta["name"], phase, age(meta.get("creationTimestamp"), now)]


def _any(body: Mapping[str, Any], now: datetime) -> list[Any]:
    return [body["metadata"]["name"], age(body["metadata"].get("creationTimestamp"), now)]


def _columns(
    cells: Callable[[Mapping[str, Any], datetime], list[Any]], shown: str, wide: str = ""
) -> _Columns:
    """Columns in ``shown`` by name; those that stand in ``wide`` too have priority 1."""
    wider = wide.split("|")
    names = tuple((name, int(name in wider)) for name in shown.split("|"))
    return _Columns(names, cells)


_ANY: Final = _columns(_any, "Name|Age")
_COLUMNS: Final[dict[Resource, _Columns]] = {
    resources.NODES: _columns(
        _node,
        "Name|Status|Roles|Age|Version|Internal-IP|External-IP|OS-Image|Kernel-Version"
        "|Container-Runtime",
        wide="Internal-IP|External-IP|OS-Image|Kernel-Version|Container-Runtime",
    ),
    resources.EVENTS: _columns(
        _event,
        "Last Seen|Type|Reason|Object|Subobject|Source|Message|First Seen|Count|Name",
        wide="Subobject|Source|First Seen|Count|Name",
    ),
    resources.LEASES: _columns(_lease, "Name|Holder|Age"),
    resources.NAMESPACES: _columns(_namespace, "Name|Status|Age"),
}
