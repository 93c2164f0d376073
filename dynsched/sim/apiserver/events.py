"""Two versions of one kind: events.k8s.io/v1 Events are core/v1 Events with other field names."""

from __future__ import annotations

from typing import Any, Final

from dynsched.sim.apiserver.resources import Resource

# core/v1 -> events.k8s.io/v1, in the order of the latter's fields
_NAMES: Final = {
    "metadata": "metadata",
    "eventTime": "eventTime",
    "series": "series",
    "reportingComponent": "reportingController",
    "reportingInstance": "reportingInstance",
    "action": "action",
    "reason": "reason",
    "involvedObject": "regarding",
    "related": "related",
    "message": "note",
    "type": "type",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
}
_BACK: Final = {new: old for old, new in _NAMES.items()}


def from_storage(resource: Resource, body: dict[str, Any]) -> dict[str, Any]:
    """A stored object as ``resource`` shows it; unchanged where that is how it is stored."""
    if resource.stored_as is None:
        return body
    return {new: body[old] for old, new in _NAMES.items() if old in body}


def to_storage(resource: Resource, body: dict[str, Any]) -> dict[str, Any]:
    """An object as sent to ``resource``, in the form in which it is stored."""
    if resource.stored_as is None:
        return body
    return {_BACK.get(key, key): value for key, value in body.items()}
