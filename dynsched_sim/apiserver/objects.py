"""The API verbs without HTTP: create, replace, patch, delete and bind, with the server's checks.

The REST handlers call this. A test or a demo in the same process can call it directly, without a
connection: ``objects.create("nodes", body)``.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import msgspec

from dynsched_sim.apiserver import api_errors, resources
from dynsched_sim.apiserver.resources import Resource, named
from dynsched_sim.apiserver.schema import normalise, validate
from dynsched_sim.apiserver.store import Entry, Store

_DEFAULT_NAMESPACES: Final = ("default", "kube-node-lease", "kube-public", "kube-system")
_OURS_ON_CREATE: Final = ("deletionTimestamp", "deletionGracePeriodSeconds", "managedFields")
_OURS_ON_UPDATE: Final = ("name", "namespace", "resourceVersion", "creationTimestamp")


class Write(NamedTuple):
    manager: str = "sim"
    subresource: str = ""


_DEFAULT: Final = Write()


@dataclass(slots=True)
class Objects:
    """The objects of one server. Every method is atomic, and raises ApiError if it is refused."""

    store: Store

    def __post_init__(self) -> None:
        for name in _DEFAULT_NAMESPACES:
            self.create(resources.NAMESPACES, {"metadata": {"name": name}})

    # --- reading ---

    def find(self, resource: Resource | str, name: str, namespace: str = "") -> Entry:
        resource = named(resource)
        entry = self.store.get(resource, namespace, name)
        if entry is None:
            raise api_errors.not_found(resource, name)
        return entry

    def get(self, resource: Resource | str, name: str, namespace: str = "") -> dict[str, Any]:
        return self.find(resource, name, namespace).decode()

    def all(self, resource: Resource | str) -> list[dict[str, Any]]:
        return [entry.decode() for entry in self.store.entries(named(resource))]

    # --- writing ---

    def create(
        self,
        resource: Resource | str,
        body: Mapping[str, Any],
        namespace: str = "",
        how: Write = _DEFAULT,
    ) -> Entry:
        """POST; a Node keeps the status that was sent, as in the real server."""
        resource = named(resource)
        new = _decode(resource, body)
        _complete_new(resource, new, namespace)
        namespace = new["metadata"].get("namespace", "")
        if namespace and not self.store.get(resources.NAMESPACES, "", namespace):
            raise api_errors.not_found(resources.NAMESPACES, namespace)
        _check(resource, new)
        name = new["metadata"]["name"]
        if self.store.get(resource, namespace, name):
            message = f'{resource.qualified_plural} "{name}" already exists'
            details = api_errors.details_of(resource, name)
            raise api_errors.ApiError(409, "AlreadyExists", message, details)
        return self._save(resource, {}, new, how)

    def replace(
        self,
        resource: Resource | str,
        name: str,
        body: Mapping[str, Any],
        namespace: str = "",
        how: Write = _DEFAULT,
    ) -> Entry:
        """PUT; conditional if ``body`` has a resourceVersion."""
        resource = named(resource)
        new = _decode(resource, body)
        entry = self.find(resource, name, namespace)
        _require_uid(resource, entry, new["metadata"].setdefault("uid", entry.uid))
        return self._update(resource, entry, new, how)

    def patch(
        self,
        resource: Resource | str,
        name: str,
        patch: Any,
        namespace: str = "",
        how: Write = _DEFAULT,
    ) -> Entry:
        """PATCH; conditional if it sets a resourceVersion."""
        resource = named(resource)
        entry = self.find(resource, name, namespace)
        document = {"kind": resource.kind, "apiVersion": resource.api_version, **entry.decode()}
        try:
            new = _decode(resource, merge_patch(document, patch))
        except api_errors.ApiError as error:  # the real server blames the patch, with a 422
            raise api_errors.invalid(None, "", f"patch: Invalid value: {error.message}") from None
        return self._update(resource, entry, new, how)

    def delete(self, resource: Resource | str, name: str, namespace: str = "") -> Entry | None:
        """DELETE; None if the object is gone, or the object if finalizers delay its deletion."""
        resource = named(resource)
        entry = self.find(resource, name, namespace)
        body = entry.decode()
        if not body["metadata"].get("finalizers"):
            self.store.delete(resource, entry)
            return None
        if "deletionTimestamp" in body["metadata"]:
            return entry
        body["metadata"] |= {"deletionTimestamp": _now(), "deletionGracePeriodSeconds": 0}
        return self.store.put(resource, body)

    def bind(self, name: str, namespace: str, binding: Mapping[str, Any], how: Write) -> Entry:
        """``pods/binding``: assign the pod to the Binding's target.

        As in the real server, the target node need not exist. ApiError: 404 if the pod does not
        exist, 409 if the uid differs, or if the pod is already assigned or being deleted.
        """
        metadata, target = binding.get("metadata") or {}, binding.get("target") or {}
        if metadata.get("name") != name:
            raise api_errors.bad_request("name in URL does not match name in Binding object")
        entry = self.find(resources.PODS, name, namespace)
        _require_uid(resources.PODS, entry, metadata.get("uid", ""))
        pod = entry.decode()
        spec = pod.setdefault("spec", {})
        why = ""
        if "deletionTimestamp" in pod["metadata"]:
            why = f"pod {name} is being deleted, cannot be assigned to a host"
        elif spec.get("nodeName"):
            why = f'pod {name} is already assigned to node "{spec["nodeName"]}"'
        if why:
            raise api_errors.conflict(resources.PODS, name, why, "binding")
        spec["nodeName"] = target["name"]
        return self._update(resources.PODS, entry, pod, how)

    # --- steps of a write ---

    def _update(self, resource: Resource, entry: Entry, new: dict[str, Any], how: Write) -> Entry:
        """Replace ``entry`` with ``new`` if the checks pass; an unchanged object is not written."""
        old = entry.decode()
        _complete_update(resource, entry, old, new, how.subresource)
        if new == old:
            return entry
        _check(resource, new)
        return self._save(resource, old, new, how)

    def _save(
        self, resource: Resource, old: dict[str, Any], new: dict[str, Any], how: Write
    ) -> Entry:
        meta = new["metadata"]
        if resource is resources.NODE_ORDERS:  # custom resources have a generation
            meta["generation"] = meta.get("generation", 0) + 1
        meta["managedFields"] = _written_by(old, how, resource.api_version)
        saved = self.store.put(resource, new)
        if "deletionTimestamp" in meta and not meta.get("finalizers"):
            self.store.delete(resource, saved)
        return saved


def _written_by(old: dict[str, Any], how: Write, api_version: str) -> list[dict[str, Any]]:
    """``metadata.managedFields`` without the fields: who wrote, and when last."""
    own = {"manager": how.manager, "subresource": how.subresource}
    before = old.get("metadata", {}).get("managedFields", [])
    others = [entry for entry in before if own != {key: entry.get(key, "") for key in own}]
    entry = {"operation": "Update", "apiVersion": api_version, "time": _now()}
    return [*others, entry | {key: value for key, value in own.items() if value}]


def merge_patch(document: Any, patch: Any) -> Any:
    """RFC 7386: null removes a key, mappings merge, everything else (also a list) replaces."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(document) if isinstance(document, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _decode(resource: Resource, body: Mapping[str, Any]) -> dict[str, Any]:
    """The stored form of an object that was sent; ApiError 400 if it is malformed."""
    what = f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}'
    try:
        return normalise(resource, dict(body))
    except msgspec.ValidationError as error:
        raise api_errors.bad_request(f"{what}: {error}") from None


def _check(resource: Resource, new: dict[str, Any]) -> None:
    if wrong := list(validate(resource, new)):
        raise api_errors.invalid(resource, new["metadata"].get("name", ""), *wrong)


def _complete_new(resource: Resource, body: dict[str, Any], namespace: str) -> None:
    """Set the fields that the server sets on every new object."""
    meta = body["metadata"]
    if resource.namespaced:
        meta["namespace"] = namespace or "default"
    else:
        meta.pop("namespace", None)
    for key in _OURS_ON_CREATE:
        meta.pop(key, None)
    meta |= {"uid": str(uuid.uuid4()), "creationTimestamp": _now()}
    if resource is resources.NAMESPACES:
        # Namespace selectors match on the name through this label.
        labels = meta.setdefault("labels", {})
        labels["kubernetes.io/metadata.name"] = meta.get("name", "")
        body["status"] = {"phase": "Active"}
    if resource is resources.PODS:
        body["status"] = {"phase": "Pending"}


def _complete_update(
    resource: Resource, entry: Entry, old: Mapping[str, Any], new: dict[str, Any], subresource: str
) -> None:
    """Check the resourceVersion, and restore the fields that this request cannot change."""
    meta = new["metadata"]
    _require_version(resource, entry, meta.get("resourceVersion", ""))
    for key in (*_OURS_ON_UPDATE, *_OURS_ON_CREATE):
        if key in old["metadata"]:
            meta[key] = old["metadata"][key]
        else:
            meta.pop(key, None)
    if resource.has_status:
        # A write to /status keeps the spec, and a write to the object keeps the status.
        fixed = "spec" if subresource == "status" else "status"
        new.pop(fixed, None)
        new |= {fixed: old[fixed]} if fixed in old else {}


def _require_version(resource: Resource, entry: Entry, version: str) -> None:
    """ApiError 409 if ``version`` is stale; 422 if it is missing but required for this kind."""
    if version in {"", "0"}:
        if not resource.unconditional_update:
            message = "metadata.resourceVersion: Invalid value: 0: must be specified for an update"
            raise api_errors.invalid(resource, entry.name, message)
    elif int(version) != entry.version:
        raise api_errors.conflict(resource, entry.name)


def _require_uid(resource: Resource, entry: Entry, uid: str) -> None:
    """ApiError 409 if ``uid`` is another one: the object that the caller means is gone."""
    if uid and uid != entry.uid:
        why = (
            "StorageError: invalid object, Code: 4, AdditionalErrorMsg: Precondition failed:"
            f" UID in precondition: {uid}, UID in object meta: {entry.uid}"
        )
        raise api_errors.conflict(resource, entry.name, why)
