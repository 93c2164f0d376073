"""Encodes stored objects for the wire: whole, as Tables, or as metadata only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import msgspec

from dynsched.util.durations import format_duration
from dynsched_sim.apiserver.resources import NODES, Resource
from dynsched_sim.apiserver.store import Entry

encode: Final = msgspec.json.Encoder().encode

_JSON_TYPES: Final = frozenset({"application/json", "application/*", "*/*", ""})
_META_API: Final = "meta.k8s.io/v1"
_ROLE_PREFIX: Final = "node-role.kubernetes.io/"
_PARTIAL: Final = "PartialObjectMetadataList"


def negotiate(accept: str) -> str:
    """The requested form: ``Table``, _PARTIAL, or "" for whole objects."""
    for option in accept.split(","):
        media, *parameters = (part.strip() for part in option.split(";"))
        wanted = dict(p.partition("=")[::2] for p in parameters).get("as", "")
        if media in _JSON_TYPES and wanted in {"", "Table", _PARTIAL}:
            return wanted
    return ""


class Renderer(NamedTuple):
    resource: Resource
    form: str

    def one(self, entry: Entry) -> bytes:
        if self.form == "Table":
            return encode(self._table([entry], {"resourceVersion": str(entry.version)}))
        head = f'{{"kind":"{self.resource.kind}","apiVersion":"{self.resource.api_version}",'
        return head.encode() + entry.raw[1:]

    def many(self, entries: Sequence[Entry], metadata: Mapping[str, Any]) -> bytes:
        if self.form == "Table":
            return encode(self._table(entries, metadata))
        if self.form == _PARTIAL:
            kind = {"kind": _PARTIAL, "apiVersion": _META_API}
            items = [_partial(entry.decode()) for entry in entries]
            return encode({**kind, "metadata": metadata, "items": items})
        head = (
            f'{{"kind":"{self.resource.kind}List","apiVersion":"{self.resource.api_version}",'
            f'"metadata":{encode(metadata).decode()},"items":['
        )
        return b"".join([head.encode(), b",".join(entry.raw for entry in entries), b"]}"])

    def _table(self, entries: Sequence[Entry], metadata: Mapping[str, Any]) -> dict[str, Any]:
        """A Table, as kubectl requests it; each row includes its object's metadata."""
        names, cells = _OF_NODES if self.resource is NODES else _OF_OTHERS
        about = {"type": "string", "description": "", "priority": 0}
        bodies = [entry.decode() for entry in entries]
        return {
            "kind": "Table",
            "apiVersion": _META_API,
            "metadata": metadata,
            "columnDefinitions": [
                {"name": name, "format": "name" if name == "Name" else "", **about}
                for name in names
            ],
            "rows": [{"cells": cells(body), "object": _partial(body)} for body in bodies],
        }


def event(kind: str, body: bytes) -> bytes:
    return b'{"type":"%s","object":%s}\n' % (kind.encode(), body)


def _partial(body: Mapping[str, Any]) -> dict[str, Any]:
    kind = {"kind": "PartialObjectMetadata", "apiVersion": _META_API}
    return {**kind, "metadata": body["metadata"]}


def _age(body: Mapping[str, Any]) -> str:
    created = datetime.fromisoformat(body["metadata"]["creationTimestamp"])
    return format_duration(max(0, int((datetime.now(UTC) - created).total_seconds())))


def _node_cells(body: Mapping[str, Any]) -> list[Any]:
    meta, state = body["metadata"], body["status"]
    ready = {each["type"]: each["status"] for each in state.get("conditions", [])}.get("Ready")
    shown = "Ready" if ready == "True" else "NotReady"
    shown += ",SchedulingDisabled" if body["spec"].get("unschedulable") else ""
    labels = meta.get("labels", {})
    roles = [key.removeprefix(_ROLE_PREFIX) for key in labels if key.startswith(_ROLE_PREFIX)]
    version = state.get("nodeInfo", {}).get("kubeletVersion", "")
    return [meta["name"], shown, ",".join(sorted(roles)) or "<none>", _age(body), version]


_OF_NODES: Final = (("Name", "Status", "Roles", "Age", "Version"), _node_cells)
_OF_OTHERS: Final = (("Name", "Age"), lambda body: [body["metadata"]["name"], _age(body)])
