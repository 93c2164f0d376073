"""``metadata.managedFields``: who wrote which field last.

Coarser than the real server's: one field for each label, annotation and child of spec and status.
Enough to ask who wrote what; server-side apply is not offered.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

_Path = tuple[str, ...]

_SECTIONS: Final[tuple[_Path, ...]] = (
    ("metadata", "labels"),
    ("metadata", "annotations"),
    ("spec",),
    ("status",),
)


def record(
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    *,
    manager: str,
    api_version: str,
    subresource: str,
    time: str,
) -> list[dict[str, Any]]:
    """The managedFields of ``new``, written over ``old`` (empty on create) by ``manager``."""
    before, after = dict(_leaves(old)), dict(_leaves(new))
    written = {path for path, value in after.items() if before.get(path) != value}
    entries = []
    for entry in old.get("metadata", {}).get("managedFields", []):
        fields = {path for path in _paths(entry["fieldsV1"]) if path in after}
        if (entry["manager"], entry.get("subresource", "")) == (manager, subresource):
            written |= fields
        elif fields - written:
            entries.append({**entry, "fieldsV1": _tree(fields - written)})
    if not written:
        return entries
    own = {
        "manager": manager,
        "operation": "Update",
        "apiVersion": api_version,
        "time": time,
        "fieldsType": "FieldsV1",
        "fieldsV1": _tree(written),
        **({"subresource": subresource} if subresource else {}),
    }
    return [*entries, own]


def _leaves(document: Mapping[str, Any]) -> Iterator[tuple[_Path, Any]]:
    for section in _SECTIONS:
        part: Any = document
        for name in section:
            part = part.get(name) or {}
        yield from (((*section, key), value) for key, value in part.items())


def _tree(paths: set[_Path]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for path in sorted(paths):
        level = fields
        for part in path:
            level = level.setdefault(f"f:{part}", {})
    return fields


def _paths(fields: Mapping[str, Any], prefix: _Path = ()) -> Iterator[_Path]:
    for key, children in fields.items():
        path = (*prefix, key.removeprefix("f:"))
        if children:
            yield from _paths(children, path)
        else:
            yield path
