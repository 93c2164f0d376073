"""What the server refuses with 422: the rules of the real one for what these kinds carry."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from dynsched.sim.apiserver import resources
from dynsched.sim.apiserver.resources import Resource
from dynsched.sim.apiserver.status import Cause

_NAME_PART: Final = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]", re.ASCII)
_LABEL_VALUE: Final = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?", re.ASCII)
_DNS_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", re.ASCII)
_SUBDOMAIN: Final = re.compile(
    r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII
)

_MUST: Final = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an"
    " alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for"
    " validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_VALUE_MUST: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or"
    " '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or"
    " 'my_value',  or '12345', regex used for validation is"
    " '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_SUBDOMAIN_MUST: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or"
    " '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used"
    r" for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_MAX_NAME_PART: Final = 63
_MAX_SUBDOMAIN: Final = 253
_MAX_ANNOTATIONS: Final = 256 * 1024
_MAX_EVENT_FIELD: Final = 128
_MAX_EVENT_MESSAGE: Final = 1024


def validate(
    resource: Resource, new: Mapping[str, Any], old: Mapping[str, Any] | None
) -> list[Cause]:
    """Everything that is wrong with ``new``; ``old`` is what it replaces, if anything."""
    causes = list(_metadata(resource, new["metadata"], (old or {}).get("metadata")))
    check = _BY_RESOURCE.get(resource.storage)
    return causes + list(check(new, old)) if check else causes


def _invalid(field: str, value: Any, message: str) -> Cause:
    shown = json.dumps(value, ensure_ascii=False)
    return Cause("FieldValueInvalid", f"Invalid value: {shown}: {message}", field)


def _required(field: str, message: str = "") -> Cause:
    return Cause(
        "FieldValueRequired", "Required value" + (f": {message}" if message else ""), field
    )


def _forbidden(field: str, message: str) -> Cause:
    return Cause("FieldValueForbidden", f"Forbidden: {message}", field)


def _metadata(
    resource: Resource, meta: Mapping[str, Any], old: Mapping[str, Any] | None
) -> Iterator[Cause]:
    name = meta.get("name", "")
    if not name:
        yield _required("metadata.name", "name or generateName is required")
    elif len(name) > _MAX_SUBDOMAIN:
        yield _invalid("metadata.name", name, f"must be no more than {_MAX_SUBDOMAIN} bytes")
    elif not (_DNS_LABEL if resource is resources.NAMESPACES else _SUBDOMAIN).fullmatch(name):
        yield _invalid("metadata.name", name, _SUBDOMAIN_MUST)
    for key, value in meta.get("labels", {}).items():
        yield from _qualified_name("metadata.labels", key)
        yield from _label_value("metadata.labels", value)
    annotations = meta.get("annotations", {})
    for key in annotations:
        # Upper case is let through in annotations' prefixes, and only there.
        yield from _qualified_name("metadata.annotations", key, shown=key, lower=True)
    if sum(len(k) + len(v) for k, v in annotations.items()) > _MAX_ANNOTATIONS:
        message = f"may not be more than {_MAX_ANNOTATIONS} bytes"
        yield Cause("FieldValueTooLong", f"Too long: {message}", "metadata.annotations")
    for field in ("uid", "generateName") if old else ():
        if old is not None and meta.get(field, "") != old.get(field, ""):
            yield _invalid(f"metadata.{field}", meta.get(field, ""), "field is immutable")


def _qualified_name(
    field: str, key: str, *, shown: str | None = None, lower: bool = False
) -> Iterator[Cause]:
    shown = key if shown is None else shown
    prefix, slash, name = (key.lower() if lower else key).rpartition("/")
    if "/" in prefix:
        message = (
            f"a valid label key {_MUST} with an optional DNS subdomain prefix and '/'"
            " (e.g. 'example.com/MyName')"
        )
        yield _invalid(field, shown, message)
        return
    if slash and not prefix:
        yield _invalid(field, shown, "prefix part must be non-empty")
    elif slash and not _SUBDOMAIN.fullmatch(prefix):
        yield _invalid(field, shown, f"prefix part {_SUBDOMAIN_MUST}")
    if not name:
        yield _invalid(field, shown, "name part must be non-empty")
    elif len(name) > _MAX_NAME_PART:
        message = f"name part must be no more than {_MAX_NAME_PART} bytes"
        yield _invalid(field, shown, message)
    if not _NAME_PART.fullmatch(name):
        yield _invalid(field, shown, f"name part {_MUST}")


def _label_value(field: str, value: str) -> Iterator[Cause]:
    if len(value) > _MAX_NAME_PART:
        yield _invalid(field, value, f"must be no more than {_MAX_NAME_PART} bytes")
    if not _LABEL_VALUE.fullmatch(value):
        yield _invalid(field, value, _VALUE_MUST)


def _node(new: Mapping[str, Any], old: Mapping[str, Any] | None) -> Iterator[Cause]:
    spec = new.get("spec", {})
    yield from _taints(spec.get("taints", []))
    if old is None:
        return
    for field, told in (("podCIDRs", "podCIDR"), ("providerID", "providerID")):
        before = old.get("spec", {}).get(field)
        if before and spec.get(field) != before:
            message = f'node updates may not change {told} except from "" to valid'
            yield _forbidden(f"spec.{field}", message)


def _taints(taints: list[Mapping[str, Any]]) -> Iterator[Cause]:
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(taints):
        # "metadata.taints" is what the real server says, though they are in spec.
        field = f"metadata.taints[{index}]"
        key, value, effect = (taint.get(k, "") for k in ("key", "value", "effect"))
        yield from _qualified_name(f"{field}.key", key)
        yield from _label_value(f"{field}.value", value)
        if not effect:
            yield _required(f"{field}.effect")
        elif effect not in _EFFECTS:
            supported = ", ".join(json.dumps(e) for e in _EFFECTS)
            message = f'Unsupported value: "{effect}": supported values: {supported}'
            yield Cause("FieldValueNotSupported", message, f"{field}.effect")
        if (key, effect) in seen:
            shown = {"Key": key, "Value": value, "Effect": effect, "TimeAdded": None}
            told = json.dumps(shown, separators=(",", ":"))
            message = f"Duplicate value: {told}: taints must be unique by key and effect pair"
            yield Cause("FieldValueDuplicate", message, field)
        seen.add((key, effect))


def _lease(new: Mapping[str, Any], _: Mapping[str, Any] | None) -> Iterator[Cause]:
    spec = new.get("spec", {})
    duration, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    if duration is not None and duration <= 0:
        yield _invalid("spec.leaseDurationSeconds", duration, "must be greater than 0")
    if transitions is not None and transitions < 0:
        yield _invalid("spec.leaseTransitions", transitions, "must be greater than or equal to 0")


def _event(new: Mapping[str, Any], _: Mapping[str, Any] | None) -> Iterator[Cause]:
    namespace = new["metadata"].get("namespace", "")
    involved = new["involvedObject"].get("namespace", "")
    # An event on a cluster-scoped object lives in ``default``.
    allowed = {involved} if involved else {"", "default"}
    if new.get("eventTime") is None:
        if namespace not in allowed:
            yield _invalid("involvedObject.namespace", involved, "does not match event.namespace")
        return
    if not involved and namespace not in {"default", "kube-system"}:
        yield _invalid("involvedObject.namespace", involved, "does not match event.namespace")
    for field in ("reportingComponent", "reportingInstance", "action", "reason"):
        value = new.get(field, "")
        if not value:
            yield _required(field)
        if field == "reportingComponent":
            yield from _qualified_name(field, value)
        elif len(value) > _MAX_EVENT_FIELD:
            yield _invalid(field, "", f"can have at most {_MAX_EVENT_FIELD} characters")
    if len(new.get("message", "")) > _MAX_EVENT_MESSAGE:
        yield _invalid("message", "", f"can have at most {_MAX_EVENT_MESSAGE} characters")


_Check = Callable[[Mapping[str, Any], Mapping[str, Any] | None], Iterator[Cause]]
_BY_RESOURCE: Final[dict[Resource, _Check]] = {
    resources.NODES: _node,
    resources.LEASES: _lease,
    resources.EVENTS: _event,
}
