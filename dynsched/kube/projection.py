"""From a raw Node, as the API server sent it, to the small `core.model.Node` that we keep.

Pure, and never raises for an odd object: what cannot be read is left out, so that one node
with a broken field costs that field and not the watch.

There are two ways to the same result. `read_node` decodes from JSON only the fields that are kept
and skips the rest, which is nine tenths of the bytes; an object that does not have the expected
types goes through `project`, which takes anything.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

import msgspec
from kubernetes.utils.quantity import parse_quantity

from dynsched.engine.model import Node
from dynsched.rules.keys import ANNOTATION_PREFIX, FIELD_MANAGER
from dynsched.util.formatting import parse_time
from dynsched.util.untyped import as_mapping

_NO_KEYS: Final[frozenset[str]] = frozenset()
_NO_TEXTS: Final[Mapping[str, str]] = {}


class _Writer(msgspec.Struct, gc=False):
    """An entry of managedFields. The fields themselves are the larger part, and are decoded only
    for the writer that is looked for.
    """

    manager: str = ""
    operation: str = ""
    subresource: str = ""
    fields: msgspec.Raw = msgspec.field(name="fieldsV1", default=msgspec.Raw(b"{}"))


class _Metadata(msgspec.Struct, gc=False):
    name: str = ""
    uid: str = ""
    version: str = msgspec.field(name="resourceVersion", default="")
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    created: str = msgspec.field(name="creationTimestamp", default="")
    writers: list[_Writer] | None = msgspec.field(name="managedFields", default=None)


class _Spec(msgspec.Struct, gc=False):
    taints: list[dict[str, Any]] | None = None


class _Address(msgspec.Struct, gc=False):
    type: str | None = None
    address: str = ""


class _Amounts(msgspec.Struct, gc=False):
    cpu: str | int | float | None = None
    memory: str | int | float | None = None


class _Status(msgspec.Struct, gc=False):
    addresses: list[_Address] | None = None
    allocatable: _Amounts = msgspec.field(default_factory=_Amounts)


class _Body(msgspec.Struct, gc=False):
    """The fields of a Node that are read, with the types that the API server gives them."""

    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


_BODY: Final = msgspec.json.Decoder(_Body)


def read_node(body: bytes | msgspec.Raw) -> Node | None:
    """As `project`, of a Node's JSON. ValueError for what is no JSON."""
    try:
        found = _BODY.decode(body)
    except (msgspec.DecodeError, UnicodeError):
        return project(json.loads(bytes(body)))
    metadata, status = found.metadata, found.status
    if not metadata.name:
        return None
    name = sys.intern(metadata.name)
    return Node(
        name=name,
        uid=metadata.uid,
        resource_version=metadata.version,
        labels=_interned(metadata.labels.items()) if metadata.labels else _NO_TEXTS,
        annotations=_interned(_ours(metadata.annotations)) if metadata.annotations else _NO_TEXTS,
        taints=tuple(found.spec.taints or ()),
        addresses=_named(name, ((each.type, each.address) for each in status.addresses or ())),
        allocatable=_allocatable(status.allocatable.cpu, status.allocatable.memory),
        created=parse_time(metadata.created) or 0.0,
        owned=_key_set(
            tuple(
                key
                for each in metadata.writers or ()
                if _is_ours(each.manager, each.operation, each.subresource)
                for key in _labels_in(json.loads(bytes(each.fields)))
            )
        ),
    )


def project(raw: object) -> Node | None:
    """The projection of one raw Node; None where there is no name to know it by."""
    body = as_mapping(raw)
    metadata = as_mapping(body.get("metadata"))
    name = metadata.get("name")
    if not isinstance(name, str) or not name:
        return None
    name = sys.intern(name)
    spec, status = as_mapping(body.get("spec")), as_mapping(body.get("status"))
    addresses = map(as_mapping, _list(status.get("addresses")))
    amounts = as_mapping(status.get("allocatable"))
    return Node(
        name=name,
        uid=_text(metadata.get("uid")),
        resource_version=_text(metadata.get("resourceVersion")),
        labels=_interned(_texts(metadata.get("labels"))),
        annotations=_interned(_ours(dict(_texts(metadata.get("annotations"))))),
        taints=tuple(taint for taint in _list(spec.get("taints")) if isinstance(taint, Mapping)),
        addresses=_named(name, ((each.get("type"), each.get("address")) for each in addresses)),
        allocatable=_allocatable(_amount(amounts.get("cpu")), _amount(amounts.get("memory"))),
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
    if not number.is_finite() or number < 0:
        return None
    amount = float(number)  # infinity, where the number has hundreds of digits
    return amount if math.isfinite(amount) else None


def _list(value: object) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _texts(value: object) -> Iterable[tuple[str, str]]:
    """The pairs of strings of a mapping."""
    for key, text in as_mapping(value).items():
        if isinstance(key, str) and isinstance(text, str):
            yield key, text


def _ours(annotations: Mapping[str, str]) -> Iterable[tuple[str, str]]:
    return (pair for pair in annotations.items() if pair[0].startswith(ANNOTATION_PREFIX))


def _interned(pairs: Iterable[tuple[str, str]]) -> Mapping[str, str]:
    """Thousands of nodes share most keys and values; those that have none share the mapping."""
    return {sys.intern(key): sys.intern(text) for key, text in pairs} or _NO_TEXTS


def _owned(value: object) -> frozenset[str]:
    """The labels that managedFields records as written by dynsched, and by no manager since."""
    return _key_set(
        tuple(
            key
            for each in map(as_mapping, _list(value))
            if _is_ours(each.get("manager"), each.get("operation"), each.get("subresource"))
            for key in _labels_in(each.get("fieldsV1"))
        )
    )


def _is_ours(manager: object, operation: object, subresource: object) -> bool:
    return manager == FIELD_MANAGER and operation == "Update" and not subresource


def _labels_in(fields: object) -> Iterable[str]:
    """The keys of the labels in the fields of one entry of managedFields."""
    of_metadata = as_mapping(as_mapping(fields).get("f:metadata"))
    return (key[2:] for key in as_mapping(of_metadata.get("f:labels")) if key[:2] == "f:")


def _key_set(keys: tuple[str, ...]) -> frozenset[str]:
    return _shared_set(tuple(sorted(keys))) if keys else _NO_KEYS


@lru_cache(maxsize=64)
def _shared_set(keys: tuple[str, ...]) -> frozenset[str]:
    """One set for all nodes that carry the same mark."""
    return frozenset(map(sys.intern, keys))


def _named(name: str, addresses: Iterable[tuple[object, object]]) -> tuple[tuple[str, str], ...]:
    """The addresses. The hostname usually is the name, and then the same object."""
    return tuple(
        (sys.intern(kind), name if address == name else address)
        for kind, address in addresses
        if isinstance(kind, str) and isinstance(address, str) and address
    )


def _amount(value: object) -> str | float | None:
    is_amount = isinstance(value, str | int | float) and not isinstance(value, bool)
    return value if is_amount else None  # type: ignore[return-value]  # as was just looked


@lru_cache(maxsize=1024, typed=True)
def _allocatable(cpu: str | float | None, memory: str | float | None) -> Mapping[str, float]:
    """One mapping for all nodes of a size; of these a cluster has a few."""
    numbers = (("cpu", quantity(cpu)), ("memory", quantity(memory)))
    return {name: number for name, number in numbers if number is not None}
