"""From a raw Node, as the API server sent it, to the small `core.model.Node` that we keep.

Pure, and never raises for an odd object: what cannot be read is left out, so that one node
with a broken field costs that field and not the watch.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

from kubernetes.utils.quantity import parse_quantity

from dynsched.core.formatting import parse_time
from dynsched.core.keys import ANNOTATION_PREFIX, FIELD_MANAGER
from dynsched.core.model import Node
from dynsched.core.untyped import as_mapping

_RESOURCES: Final = ("cpu", "memory")
_NO_KEYS: Final[frozenset[str]] = frozenset()


def project(raw: object) -> Node | None:
    """The projection of one raw Node; None where there is no name to know it by."""
    body = as_mapping(raw)
    metadata = as_mapping(body.get("metadata"))
    name = metadata.get("name")
    if not isinstance(name, str) or not name:
        return None
    spec, status = as_mapping(body.get("spec")), as_mapping(body.get("status"))
    return Node(
        name=sys.intern(name),
        uid=_text(metadata.get("uid")),
        resource_version=_text(metadata.get("resourceVersion")),
        labels=_strings(metadata.get("labels")),
        annotations=_strings(metadata.get("annotations"), prefix=ANNOTATION_PREFIX),
        taints=tuple(taint for taint in _list(spec.get("taints")) if isinstance(taint, Mapping)),
        addresses=_addresses(status.get("addresses")),
        allocatable=_allocatable(status.get("allocatable")),
        created=parse_time(metadata.get("creationTimestamp")) or 0.0,
        owned=_owned(metadata.get("managedFields")),
    )


def quantity(value: object) -> float | None:
    """A Kubernetes quantity (``3920m``, ``7901212Ki``, ``8``) as a number; None when it is none.

    The arithmetic is decimal; only the result is a float.
    """
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        return None
    try:
        number: Decimal = parse_quantity(value)  # type: ignore[no-untyped-call]
    except ValueError:
        return None
    return float(number) if number.is_finite() and number >= 0 else None


def _list(value: object) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _strings(value: object, prefix: str = "") -> dict[str, str]:
    """The string pairs of a mapping, interned: thousands of nodes share most keys and values."""
    return {
        sys.intern(key): sys.intern(text)
        for key, text in as_mapping(value).items()
        if isinstance(key, str) and isinstance(text, str) and key.startswith(prefix)
    }


def _owned(value: object) -> frozenset[str]:
    """The labels that managedFields records as written by dynsched, and by no manager since."""
    keys: list[str] = []
    for entry in map(as_mapping, _list(value)):
        if (
            entry.get("manager") == FIELD_MANAGER
            and entry.get("operation") == "Update"
            and not entry.get("subresource")
        ):
            of_metadata = as_mapping(as_mapping(entry.get("fieldsV1")).get("f:metadata"))
            keys += (key[2:] for key in as_mapping(of_metadata.get("f:labels")) if key[:2] == "f:")
    return _key_set(tuple(sorted(keys))) if keys else _NO_KEYS


@lru_cache(maxsize=64)
def _key_set(keys: tuple[str, ...]) -> frozenset[str]:
    """One set for all nodes that carry the same mark."""
    return frozenset(map(sys.intern, keys))


def _addresses(value: object) -> tuple[tuple[str, str], ...]:
    pairs = ((item.get("type"), item.get("address")) for item in map(as_mapping, _list(value)))
    return tuple(
        (sys.intern(kind), address)
        for kind, address in pairs
        if isinstance(kind, str) and isinstance(address, str) and address
    )


def _allocatable(value: object) -> dict[str, float]:
    amounts = as_mapping(value)
    numbers = ((name, quantity(amounts.get(name))) for name in _RESOURCES)
    return {name: number for name, number in numbers if number is not None}
