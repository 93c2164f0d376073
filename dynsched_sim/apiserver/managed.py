"""``metadata.managedFields``: who wrote which field last.

Coarser than the real server's: one field for each label, annotation and child of spec and status.
Enough to ask who wrote what.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

_Path = tuple[str, ...]

_SECTIONS: Final = (("metadata", "labels"), ("metadata", "annotations"), ("spec",), ("status",))


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
        fields = dict(_leaves(entry["fieldsV1"], "f:")).keys() & after.keys()
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


def _leaves(document: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[_Path, Any]]:
    """``prefix``: of every key of the document."""
    for section in _SECTIONS:
        part: Any = document
        for name in section:
            part = part.get(prefix + name) or {}
        yield from (((*section, key.removeprefix(prefix)), part[key]) for key in part)


def _tree(paths: set[_Path]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for path in sorted(paths):
        level = fields
        for part in path:
            level = level.setdefault(f"f:{part}", {})
    return fields
