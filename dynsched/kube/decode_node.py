"""Decodes a raw Node to the small `core.nodes.Node`. Only its fields are decoded; the rest, nine
tenths of the bytes, is skipped. An object with fields of unexpected types is rejected, because a
patch of it might undo what others wrote.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

import msgspec
from kubernetes.utils.quantity import parse_quantity

from dynsched.core.nodes import Node
from dynsched.kube.lists import ObjectMeta
from dynsched.rules.keys import ANNOTATION_PREFIX
from dynsched.util.formatting import parse_time

_NO_TEXTS: Final[Mapping[str, str]] = {}


class _Metadata(ObjectMeta, gc=False):
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    created: str = msgspec.field(name="creationTimestamp", default="")


class _Spec(msgspec.Struct, gc=False):
    taints: list[dict[str, Any]] | None = None


class _Address(msgspec.Struct, gc=False):
    type: str = ""
    address: str = ""


class Amounts(msgspec.Struct, gc=False):
    """Kubernetes quantities, not parsed."""

    cpu: str | int | float | None = None
    memory: str | int | float | None = None


class _Allocatable(Amounts, gc=False):
    pods: str | int | float | None = None


class _Status(msgspec.Struct, gc=False):
    addresses: list[_Address] | None = None
    allocatable: _Allocatable = msgspec.field(default_factory=_Allocatable)


class _Body(msgspec.Struct, gc=False):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


_BODY: Final = msgspec.json.Decoder(_Body)


def decode_node(body: bytes | msgspec.Raw) -> Node | None:
    """The Node in ``body``; None if it is not a Node. ValueError if it is not JSON."""
    try:
        found = _BODY.decode(body)
    except msgspec.ValidationError:
        return None
    metadata, status = found.metadata, found.status
    if not metadata.name:
        return None
    name = sys.intern(metadata.name)
    ours = (
        (key, text)
        for key, text in (metadata.annotations or {}).items()
        if key.startswith(ANNOTATION_PREFIX)
    )
    return Node(
        name=name,
        uid=metadata.uid,
        resource_version=metadata.version,
        labels=_interned((metadata.labels or {}).items()),
        annotations=dict(ours) or _NO_TEXTS,
        taints=tuple(found.spec.taints or ()),
        addresses=tuple(
            # The hostname usually equals the name; then both share one string.
            (sys.intern(each.type), name if each.address == name else each.address)
            for each in status.addresses or ()
            if each.address
        ),
        allocatable=_numbers(msgspec.structs.asdict(status.allocatable)),
        created=parse_time(metadata.created) or 0.0,
    )


def node_of(raw: object) -> Node | None:
    """Like `decode_node`, for an object that is already parsed from JSON."""
    return decode_node(msgspec.json.encode(raw))


def quantity(value: object) -> float | None:
    """A Kubernetes quantity (``3920m``, ``7901212Ki``, ``8``) as a number; None if invalid."""
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        return None
    try:
        number: Decimal = parse_quantity(value)  # type: ignore[no-untyped-call]
        amount = float(number)  # infinity if the number has hundreds of digits
    except ValueError:
        return None
    return amount if math.isfinite(amount) and amount >= 0 else None


def _interned(pairs: Iterable[tuple[str, str]]) -> Mapping[str, str]:
    """A mapping with shared strings: thousands of nodes have mostly the same keys and values. Empty
    mappings are one object.
    """
    return {sys.intern(key): _shared_text(text) for key, text in pairs} or _NO_TEXTS


@lru_cache(maxsize=8192)
def _shared_text(text: str) -> str:
    """One object for equal texts. Not `sys.intern`: Python 3.12 never frees interned strings."""
    return text


def _numbers(amounts: Mapping[str, object]) -> Mapping[str, float]:
    numbers = ((name, quantity(amount)) for name, amount in amounts.items())
    return {name: number for name, number in numbers if number is not None}
