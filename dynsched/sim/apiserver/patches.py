"""The three patch formats: JSON merge patch, strategic merge patch, JSON patch.

All are pure: they return a new document and leave the given one alone.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Final

from dynsched.sim.apiserver import resources
from dynsched.sim.apiserver.resources import Resource
from dynsched.sim.apiserver.status import bad_request, rejected


def merge_patch(document: Any, patch: Any) -> Any:
    """RFC 7386: null removes, mappings merge, everything else replaces (lists too)."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(document) if isinstance(document, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


# --- strategic merge patch -------------------------------------------------------------------

# The lists that merge instead of being replaced: by the key of their elements, or, where that is
# None, as sets of plain values. ``spec.taints`` is not among them: it is atomic in the real
# server's types, under a strategic merge patch too.
_META_LISTS: Final[dict[tuple[str, ...], str | None]] = {
    ("metadata", "ownerReferences"): "uid",
    ("metadata", "finalizers"): None,
}
_MERGING: Final[dict[Resource, dict[tuple[str, ...], str | None]]] = {
    resources.NODES: {
        **_META_LISTS,
        ("spec", "podCIDRs"): None,
        ("status", "conditions"): "type",
        ("status", "addresses"): "type",
    },
    resources.PODS: {
        **_META_LISTS,
        ("spec", "containers"): "name",
        ("spec", "initContainers"): "name",
        ("spec", "volumes"): "name",
        ("spec", "imagePullSecrets"): "name",
        ("status", "conditions"): "type",
    },
    resources.NAMESPACES: {**_META_LISTS, ("status", "conditions"): "type"},
}


def strategic_patch(
    resource: Resource, document: Mapping[str, Any], patch: Mapping[str, Any]
) -> dict[str, Any]:
    """As ``kubectl taint`` and kubelets send it: lists with a merge key merge by element."""
    merging = _MERGING.get(resource.storage, _META_LISTS)
    merged = _merge_map(dict(document), patch, (), merging)
    return merged if merged is not None else {}


def _merge_map(
    document: dict[str, Any],
    patch: Mapping[str, Any],
    path: tuple[str, ...],
    merging: Mapping[tuple[str, ...], str | None],
) -> dict[str, Any] | None:
    directive = patch.get("$patch")
    if directive == "delete":
        return None
    if directive == "replace":
        return {k: v for k, v in patch.items() if k != "$patch"}
    if directive not in {None, "merge"}:
        raise bad_request(f"unknown patch directive found: {directive}")
    merged = dict(document)
    retained = patch.get("$retainKeys")
    if isinstance(retained, list):
        merged = {k: v for k, v in merged.items() if k in retained}
    for key, value in patch.items():
        field = key.partition("/")[2]
        if key.startswith("$deleteFromPrimitiveList/"):
            merged[field] = [v for v in merged.get(field, []) if v not in value]
        if key.startswith("$"):
            continue
        result = _merge_value(merged.get(key), value, (*path, key), merging, patch)
        if result is None:
            merged.pop(key, None)
        else:
            merged[key] = result
    return merged


def _merge_value(
    current: Any,
    value: Any,
    path: tuple[str, ...],
    merging: Mapping[tuple[str, ...], str | None],
    around: Mapping[str, Any],
) -> Any:
    """``around`` is the mapping that ``value`` stands in: it may order the list's elements."""
    if value is None:
        return None
    if isinstance(value, dict):
        return _merge_map(current if isinstance(current, dict) else {}, value, path, merging)
    if not isinstance(value, list) or path not in merging:
        return value
    current = current if isinstance(current, list) else []
    key = merging[path]
    if key is None:
        return current + [v for v in value if v not in current]
    return _merge_list(current, value, key, around.get(f"$setElementOrder/{path[-1]}"))


def _merge_list(
    current: list[dict[str, Any]], patch: list[dict[str, Any]], key: str, order: Any
) -> list[dict[str, Any]]:
    if any(item.get("$patch") == "replace" for item in patch):
        return [item for item in patch if "$patch" not in item]
    patched: dict[Any, dict[str, Any]] = {}
    deleted = set()
    before = {item.get(key): item for item in current}
    for item in patch:
        if key not in item:
            raise bad_request(f"map: {item} does not contain declared merge key: {key}")
        if item.get("$patch") == "delete":
            deleted.add(item[key])
        else:
            patched[item[key]] = merge_patch(before.get(item[key], {}), item)
    rest = [item for item in current if item.get(key) not in deleted | set(patched)]
    if isinstance(order, list):
        rank = {item.get(key): index for index, item in enumerate(order) if isinstance(item, dict)}
        return sorted([*rest, *patched.values()], key=lambda i: rank.get(i.get(key), len(rank)))
    return _interleave(rest, list(patched.values()), [item.get(key) for item in current], key)


def _interleave(
    rest: list[dict[str, Any]], patched: list[dict[str, Any]], order: list[Any], key: str
) -> list[dict[str, Any]]:
    """The order the real server leaves: patched first, but none before its old predecessors."""
    merged = []
    while rest and patched:
        mine, other = patched[0].get(key), rest[0].get(key)
        behind = mine in order and order.index(other) < order.index(mine)
        merged.append((rest if behind else patched).pop(0))
    return merged + rest + patched


# --- JSON patch ------------------------------------------------------------------------------


def json_patch(document: Any, operations: Any) -> Any:
    """RFC 6902, with the real server's leniency: a mapping's absent key counts as null.

    So it can be replaced, tested for null and copied from; only ``remove`` needs it to be there.
    Whatever does not apply is refused as a whole.
    """
    if not isinstance(operations, list) or not all(isinstance(o, dict) for o in operations):
        raise bad_request(
            "error decoding patch: json: cannot unmarshal object into Go value of type"
            " []handlers.jsonPatchOp"
        )
    document = copy.deepcopy(document)
    for operation in operations:
        try:
            document = _apply(document, operation)
        except (KeyError, IndexError, ValueError, TypeError, AttributeError):
            raise rejected() from None
    return document


def _apply(document: Any, operation: dict[str, Any]) -> Any:
    kind, path = operation["op"], _pointer(operation["path"])
    if kind == "add":
        return _add(document, path, operation.get("value"))
    if kind == "remove":
        _remove(document, path)
    elif kind == "replace":
        if not path:
            return operation.get("value")
        _set(_lookup(document, path[:-1]), path[-1], operation.get("value"))
    elif kind == "test":
        if _value_at(document, path) != operation.get("value"):
            raise ValueError(operation["path"])
    elif kind in {"move", "copy"}:
        source = _pointer(operation["from"])
        value = copy.deepcopy(_value_at(document, source))
        if kind == "move":
            _remove(document, source)
        return _add(document, path, value)
    else:
        raise ValueError(kind)
    return document


def _pointer(text: str) -> list[str]:
    if text and not text.startswith("/"):
        raise ValueError(text)
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _lookup(document: Any, path: list[str]) -> Any:
    for part in path:
        document = document[_index(part)] if isinstance(document, list) else document[part]
    return document


def _value_at(document: Any, path: list[str]) -> Any:
    parent = _lookup(document, path[:-1])
    if path and isinstance(parent, dict):
        return parent.get(path[-1])
    return _lookup(parent, path[-1:])


def _index(part: str) -> int:
    if not part.isdecimal():
        raise IndexError(part)
    return int(part)


def _set(parent: Any, part: str, value: Any) -> None:
    if isinstance(parent, list):
        parent[_index(part)] = value
    else:
        parent[part] = value


def _add(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    parent = _lookup(document, path[:-1])
    if not isinstance(parent, list):
        parent[path[-1]] = value
        return document
    index = len(parent) if path[-1] == "-" else _index(path[-1])
    if index > len(parent):
        raise IndexError(path[-1])
    parent.insert(index, value)
    return document


def _remove(document: Any, path: list[str]) -> None:
    parent = _lookup(document, path[:-1])
    del parent[_index(path[-1]) if isinstance(parent, list) else path[-1]]
