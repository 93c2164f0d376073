"""What happens to an object between the request and the store: defaults, guards, system fields."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Mapping
from typing import Any, Final

from dynsched.sim.apiserver import events, resources, status
from dynsched.sim.apiserver.resources import Resource
from dynsched.sim.apiserver.schema import DecodeError, normalise, unknown_fields
from dynsched.sim.apiserver.store import Entry

_SUFFIX_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"  # as the real server: no bad words
_SUFFIX_LENGTH: Final = 5
_OURS_ON_CREATE: Final = ("deletionTimestamp", "deletionGracePeriodSeconds", "managedFields")
_OURS_ON_UPDATE: Final = ("name", "namespace", "resourceVersion", "creationTimestamp")


def decode(resource: Resource, body: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """An object as sent, as it is stored, and what of it is unknown; 400 where it is of no use."""
    for key, ours in (("kind", resource.kind), ("apiVersion", resource.api_version)):
        if body.get(key, ours) != ours:
            raise status.bad_request(
                f'{body.get("kind")} in version "{body.get("apiVersion")}" cannot be handled as'
                f" a {resource.kind}: unknown conversion"
            )
    given = events.to_storage(resource, dict(body))
    try:
        kept = normalise(resource, given)
    except DecodeError as error:
        raise status.bad_request(
            f'{resource.kind} in version "{resource.version}" cannot be handled as a'
            f" {resource.kind}: {error}"
        ) from None
    return kept, tuple(f'unknown field "{path}"' for path in unknown_fields(given, kept))


def complete_new(resource: Resource, body: dict[str, Any], namespace: str, now: str) -> None:
    """Fill in what the server gives every new object; refuse what a client must not give."""
    meta = body["metadata"]
    if meta.pop("resourceVersion", None):
        raise status.internal("resourceVersion should not be set on objects to be created")
    if not resource.namespaced:
        meta.pop("namespace", None)
    elif meta.setdefault("namespace", namespace or "default") != (namespace or "default"):
        raise wrong_namespace()
    if meta.get("generateName") and not meta.get("name"):
        suffix = (secrets.choice(_SUFFIX_ALPHABET) for _ in range(_SUFFIX_LENGTH))
        meta["name"] = meta["generateName"] + "".join(suffix)
    for key in _OURS_ON_CREATE:
        meta.pop(key, None)
    meta |= {"uid": str(uuid.uuid4()), "creationTimestamp": now}
    if resource is resources.NAMESPACES:
        # The name as a label is what namespace selectors are written against.
        labels = meta.setdefault("labels", {})
        labels["kubernetes.io/metadata.name"] = meta.get("name", "")
        body |= {"spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}
    if resource is resources.PODS:
        body["status"] = {"phase": "Pending"}


def complete_update(
    resource: Resource, entry: Entry, old: Mapping[str, Any], new: dict[str, Any], subresource: str
) -> None:
    """Guard an update, and put back into ``new`` what this request cannot change."""
    meta = new["metadata"]
    name = meta.get("name") or entry.name
    if name != entry.name:
        raise status.bad_request(
            f"the name of the object ({name}) does not match the name on the URL ({entry.name})"
        )
    if meta.setdefault("namespace", entry.namespace) != entry.namespace:
        raise wrong_namespace()
    require_version(resource, entry, meta.get("resourceVersion", ""))
    for key in (*_OURS_ON_UPDATE, *_OURS_ON_CREATE):
        if key in old["metadata"]:
            meta[key] = old["metadata"][key]
        else:
            meta.pop(key, None)
    if resource.has_status:
        # /status leaves the spec alone, and the object itself leaves the status alone.
        fixed = "spec" if subresource == "status" else "status"
        new.pop(fixed, None)
        new |= {fixed: old[fixed]} if fixed in old else {}


def require_version(resource: Resource, entry: Entry, asked: str) -> None:
    """409 where ``asked`` is not the stored version; none is fine where the kind allows that."""
    if asked in {"", "0"}:
        if not resource.storage.unconditional_update:
            message = "Invalid value: 0: must be specified for an update"
            cause = status.Cause("FieldValueInvalid", message, "metadata.resourceVersion")
            raise status.invalid_object(resource, entry.name, [cause])
    elif not asked.isdecimal():
        raise status.internal(f'strconv.ParseUint: parsing "{asked}": invalid syntax')
    elif int(asked) != entry.version:
        raise status.conflict(resource, entry.name)


def require_uid(resource: Resource, entry: Entry, asked: str) -> None:
    """409 where a PUT names another uid: it is meant for an object that is gone."""
    if asked and asked != entry.uid:
        why = (
            "StorageError: invalid object, Code: 4, AdditionalErrorMsg: Precondition failed:"
            f" UID in precondition: {asked}, UID in object meta: {entry.uid}"
        )
        raise status.conflict(resource, entry.name, why)


def hold_preconditions(resource: Resource, entry: Entry, uid: str, version: str) -> None:
    """409 where a delete's preconditions do not hold."""
    if uid and uid != entry.uid:
        why = (
            f"the UID in the precondition ({uid}) does not match the UID in record"
            f" ({entry.uid}). The object might have been deleted and then recreated"
        )
        raise status.conflict(resource, entry.name, why, kind=True)
    if version and version != str(entry.version):
        why = (
            f"the ResourceVersion in the precondition ({version}) does not match the"
            f" ResourceVersion in record ({entry.version}). The object might have been modified"
        )
        raise status.conflict(resource, entry.name, why, kind=True)


def wrong_namespace() -> status.ApiError:
    """400: the body's namespace is not the path's."""
    return status.bad_request(
        "the namespace of the provided object does not match the namespace sent on the request"
    )
