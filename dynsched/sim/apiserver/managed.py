"""``metadata.managedFields``: who wrote which field last.

Coarser than the real server's: one field for each label, annotation and child of spec and
status. Enough to ask who wrote what; server-side apply is not offered.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

_Path = tuple[str, ...]

_DEEP: Final = {("metadata", "labels"), ("metadata", "annotations"), ("spec",), ("status",)}
_OF_SYSTEM: Final = {
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
}


@dataclass(frozen=True, slots=True)
class Writer:
    """Who writes: the field manager's name, through which API version and subresource, when."""

    manager: str
    api_version: str
    time: str
    subresource: str = ""

    def owns(self, entry: Mapping[str, Any]) -> bool:
        """Whether ``entry`` is this writer's."""
        return (
            entry.get("manager") == self.manager
            and entry.get("apiVersion") == self.api_version
            and entry.get("subresource", "") == self.subresource
        )


def record(old: Mapping[str, Any], new: Mapping[str, Any], writer: Writer) -> list[dict[str, Any]]:
    """The managedFields of ``new``, written by ``writer`` over ``old`` (empty on create)."""
    before, after = dict(_leaves(old)), dict(_leaves(new))
    gone = before.keys() - after.keys()
    changed = {path for path, value in after.items() if before.get(path) != value}
    entries, own = [], None
    for entry in old.get("metadata", {}).get("managedFields", []):
        owned = set(_paths(entry.get("fieldsV1", {})))
        kept = owned - gone
        if writer.owns(entry):
            own = kept | changed
        elif kept - changed:
            entries.append(_with_fields(entry, kept - changed))
    own = changed if own is None else own
    if own:
        entry = {
            "manager": writer.manager,
            "operation": "Update",
            "apiVersion": writer.api_version,
            "time": writer.time,
            "fieldsType": "FieldsV1",
        }
        if writer.subresource:
            entry["subresource"] = writer.subresource
        entries.append(_with_fields(entry, own))
    return entries


def _leaves(document: Mapping[str, Any]) -> Iterator[tuple[_Path, Any]]:
    for top, value in document.items():
        if top in {"kind", "apiVersion"}:
            continue
        if top == "metadata":
            yield from _metadata_leaves(value)
        elif (top,) in _DEEP and isinstance(value, dict):
            yield from (((top, key), child) for key, child in value.items())
        else:
            yield (top,), value


def _metadata_leaves(meta: Mapping[str, Any]) -> Iterator[tuple[_Path, Any]]:
    for key, value in meta.items():
        if key in _OF_SYSTEM:
            continue
        if ("metadata", key) in _DEEP:
            yield from ((("metadata", key, child), text) for child, text in value.items())
        else:
            yield ("metadata", key), value


def _with_fields(entry: Mapping[str, Any], paths: set[_Path]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for path in sorted(paths):
        level = fields
        for part in path:
            level = level.setdefault(f"f:{part}", {})
    return {**entry, "fieldsV1": fields}


def _paths(fields: Mapping[str, Any], prefix: _Path = ()) -> Iterator[_Path]:
    for key, children in fields.items():
        path = (*prefix, key.removeprefix("f:"))
        if children:
            yield from _paths(children, path)
        else:
            yield path
