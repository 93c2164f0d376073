"""What the server refuses with 422: the rules of the real one for what these kinds carry."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from dynsched.rules.labels import is_label_key, is_label_value
from dynsched.sim.apiserver import resources
from dynsched.sim.apiserver.refusals import Cause
from dynsched.sim.apiserver.resources import Resource

_DNS_LABEL: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = re.compile(rf"{_DNS_LABEL}(\.{_DNS_LABEL})*", re.ASCII)
_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def validate(
    resource: Resource, new: Mapping[str, Any], old: Mapping[str, Any] | None
) -> Iterator[Cause]:
    """Everything that is wrong with ``new``; ``old`` is what it replaces, if anything."""
    meta = new["metadata"]
    name, uid = meta.get("name", ""), meta.get("uid", "")
    if not name:
        yield _required("metadata.name")
    elif not _SUBDOMAIN.fullmatch(name):
        yield _invalid("metadata.name", name, "not a lowercase RFC 1123 subdomain")
    if old and uid != old["metadata"]["uid"]:
        yield _invalid("metadata.uid", uid, "field is immutable")
    for key, value in meta.get("labels", {}).items():
        yield from _key_and_value("metadata.labels", "metadata.labels", key, value)
    for key in meta.get("annotations", {}):
        # Upper case is let through in annotations' prefixes, and only there.
        yield from _key_and_value("metadata.annotations", "", key.lower(), "")
    if resource is resources.NODES:
        yield from _taints(new["spec"].get("taints", []))
    if resource is resources.EVENTS:
        yield from _event(new)


def _invalid(field: str, value: str, message: str) -> Cause:
    return Cause("FieldValueInvalid", f"Invalid value: {json.dumps(value)}: {message}", field)


def _required(field: str) -> Cause:
    return Cause("FieldValueRequired", "Required value", field)


def _key_and_value(key_field: str, value_field: str, key: str, value: str) -> Iterator[Cause]:
    if not is_label_key(key):
        yield _invalid(key_field, key, "not a qualified name, as example.com/MyName")
    if not is_label_value(value):
        yield _invalid(value_field, value, "a valid label must have at most 63 characters")


def _taints(taints: list[Mapping[str, str]]) -> Iterator[Cause]:
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(taints):
        # "metadata.taints" is what the real server says, though they are in spec.
        field = f"metadata.taints[{index}]"
        key, value, effect = (taint.get(k, "") for k in ("key", "value", "effect"))
        yield from _key_and_value(f"{field}.key", f"{field}.value", key, value)
        if not effect:
            yield _required(f"{field}.effect")
        elif effect not in _EFFECTS:
            supported = ", ".join(json.dumps(e) for e in _EFFECTS)
            message = f'Unsupported value: "{effect}": supported values: {supported}'
            yield Cause("FieldValueNotSupported", message, f"{field}.effect")
        if (key, effect) in seen:
            message = "Duplicate value: taints must be unique by key and effect pair"
            yield Cause("FieldValueDuplicate", message, field)
        seen.add((key, effect))


def _event(new: Mapping[str, Any]) -> Iterator[Cause]:
    involved = new["involvedObject"].get("namespace", "")
    # An event on a cluster-scoped object lives in ``default``.
    if new["metadata"].get("namespace", "") != (involved or "default"):
        yield _invalid("involvedObject.namespace", involved, "does not match event.namespace")
