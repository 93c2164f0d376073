"""How kubectl gets its columns: Tables, and objects cut down to their metadata."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from dynsched.sim.apiserver import resources
from dynsched.sim.apiserver.resources import Resource

_META_API: Final = "meta.k8s.io/v1"
_ROLE_PREFIX: Final = "node-role.kubernetes.io/"
_UNITS: Final = (("d", 86400), ("h", 3600), ("m", 60))

_Cells = Callable[[Mapping[str, Any]], list[Any]]


def table(
    resource: Resource,
    bodies: Iterable[Mapping[str, Any]],
    metadata: Mapping[str, Any],
    *,
    whole: bool = False,
) -> dict[str, Any]:
    """A Table of ``bodies``; each row carries its object, ``whole`` or only the metadata."""
    head = {"kind": resource.kind, "apiVersion": resource.api_version}
    names, cells = _COLUMNS.get(resource, _ANY)
    definitions = [
        {
            "name": name.rstrip("*"),
            "type": "string",
            "format": "name" if name == "Name" else "",
            "description": "",
            "priority": name.count("*"),
        }
        for name in names.split("|")
    ]
    return {
        "kind": "Table",
        "apiVersion": _META_API,
        "metadata": metadata,
        "columnDefinitions": definitions,
        "rows": [
            {"cells": cells(body), "object": {**head, **body} if whole else partial(body)}
            for body in bodies
        ],
    }


def partial(body: Mapping[str, Any]) -> dict[str, Any]:
    kind = {"kind": "PartialObjectMetadata", "apiVersion": _META_API}
    return {**kind, "metadata": body["metadata"]}


def partial_list(bodies: Iterable[Mapping[str, Any]], metadata: Mapping[str, Any]) -> Any:
    return {
        "kind": "PartialObjectMetadataList",
        "apiVersion": _META_API,
        "metadata": metadata,
        "items": [partial(body) for body in bodies],
    }


def _age(since: str | None) -> str:
    """How long ago, nearly as kubectl writes it: 90s, 5m, 3h, 2d."""
    if not since:
        return "<unknown>"
    seconds = max(0, int((datetime.now(UTC) - datetime.fromisoformat(since)).total_seconds()))
    fitting = (f"{seconds // size}{unit}" for unit, size in _UNITS if seconds >= 2 * size)
    return next(fitting, f"{seconds}s")


def _node(body: Mapping[str, Any]) -> list[Any]:
    meta, spec, state = body["metadata"], body["spec"], body["status"]
    ready = [c["status"] for c in state.get("conditions", []) if c["type"] == "Ready"]
    shown = {"True": "Ready"}.get(ready[0], "NotReady") if ready else "Unknown"
    shown += ",SchedulingDisabled" if spec.get("unschedulable") else ""
    roles = [
        key.removeprefix(_ROLE_PREFIX)
        for key in meta.get("labels", {})
        if key.startswith(_ROLE_PREFIX)
    ]
    addresses = {each["type"]: each["address"] for each in state.get("addresses", [])}
    info = state.get("nodeInfo", {})
    return [
        meta["name"],
        shown,
        ",".join(sorted(roles)) or "<none>",
        _age(meta["creationTimestamp"]),
        info.get("kubeletVersion", ""),
        *(addresses.get(kind, "<none>") for kind in ("InternalIP", "ExternalIP")),
        info.get("osImage", "<unknown>"),
        f"{info.get('kernelVersion', '<unknown>')} ({info.get('architecture', '<unknown>')})",
        info.get("containerRuntimeVersion", "<unknown>"),
    ]


def _event(body: Mapping[str, Any]) -> list[Any]:
    involved = body["involvedObject"]
    about = f"{involved.get('kind', '').lower()}/{involved.get('name', '')}"
    last = _age(body["lastTimestamp"] or body["eventTime"])
    return [last, body["type"], body["reason"], about, body["message"].strip()]


def _any(body: Mapping[str, Any]) -> list[Any]:
    return [body["metadata"]["name"], _age(body["metadata"]["creationTimestamp"])]


# Names of columns; those with a star are shown by ``-o wide`` only.
_OF_NODES: Final = (
    "Name|Status|Roles|Age|Version"
    "|Internal-IP*|External-IP*|OS-Image*|Kernel-Version*|Container-Runtime*"
)
_ANY: Final = ("Name|Age", _any)
_COLUMNS: Final[dict[Resource, tuple[str, _Cells]]] = {
    resources.NODES: (_OF_NODES, _node),
    resources.EVENTS: ("Last Seen|Type|Reason|Object|Message", _event),
}
