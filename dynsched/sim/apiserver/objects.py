"""The verbs on objects, without HTTP: create, replace, patch, delete, with the server's rules.

The REST handlers call this, and so may a test or a demo in the same process, which then needs no
connection of its own: ``objects.create("nodes", body)``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

from dynsched.sim.apiserver import events, managed, patches, resources, status, strategy
from dynsched.sim.apiserver.resources import Resource, named
from dynsched.sim.apiserver.schema import normalise
from dynsched.sim.apiserver.store import Entry, Store, entry_of
from dynsched.sim.apiserver.validation import validate

_DEFAULT_NAMESPACES: Final = ("default", "kube-node-lease", "kube-public", "kube-system")


class PatchType(StrEnum):
    """The patch formats, by their media types."""

    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    JSON = "application/json-patch+json"


@dataclass(frozen=True, slots=True)
class Write:
    """How an object is to be written.

    ``manager`` is the field manager; ``strict`` refuses unknown fields instead of warning.
    """

    manager: str = "sim"
    subresource: str = ""
    dry_run: bool = False
    strict: bool = False


@dataclass(frozen=True, slots=True)
class Written:
    """An object after a write, and the unknown fields that fell away."""

    entry: Entry
    unknown: tuple[str, ...] = ()

    @property
    def body(self) -> dict[str, Any]:
        """A fresh copy of the object, without kind and apiVersion."""
        return self.entry.decode()


@dataclass(frozen=True, slots=True)
class Preconditions:
    """What must hold for a delete."""

    uid: str = ""
    version: str = ""


_DEFAULT: Final = Write()
_UNCONDITIONAL: Final = Preconditions()


@dataclass(slots=True)
class Objects:
    """The objects of one server. Every method is one atomic step; ApiError says why not."""

    store: Store
    clock: Callable[[], datetime] = field(default=lambda: datetime.now(UTC))

    def __post_init__(self) -> None:
        for name in _DEFAULT_NAMESPACES:
            self.create(resources.NAMESPACES, {"metadata": {"name": name}})

    # --- reading ---

    def find(self, resource: Resource | str, name: str, namespace: str = "") -> Entry:
        """The stored object; 404 when there is none."""
        resource = named(resource)
        entry = self.store.get(resource, namespace, name)
        if entry is None:
            raise status.not_found(resource, name)
        return entry

    def get(self, resource: Resource | str, name: str, namespace: str = "") -> dict[str, Any]:
        """A fresh copy of the object, without kind and apiVersion."""
        return self.find(resource, name, namespace).decode()

    def all(self, resource: Resource | str) -> list[dict[str, Any]]:
        """Fresh copies of all objects of a resource, in order."""
        return [entry.decode() for entry in self.store.entries(named(resource))]

    # --- writing ---

    def create(
        self,
        resource: Resource | str,
        body: Mapping[str, Any],
        namespace: str = "",
        how: Write = _DEFAULT,
    ) -> Written:
        """POST: a Node keeps its status, as in the real server."""
        resource = named(resource)
        new, unknown = self._decode(resource, body, how)
        strategy.complete_new(resource, new, namespace, self._now())
        namespace = new["metadata"].get("namespace", "")
        if resource.namespaced and not self.store.get(resources.NAMESPACES, "", namespace):
            raise status.not_found(resources.NAMESPACES, namespace)
        self._check(resource, new, None)
        name = new["metadata"]["name"]
        if self.store.get(resource, namespace, name):
            raise status.already_exists(resource, name)
        return Written(self._save(resource, {}, new, how), unknown)

    def replace(
        self,
        resource: Resource | str,
        name: str,
        body: Mapping[str, Any],
        namespace: str = "",
        how: Write = _DEFAULT,
    ) -> Written:
        """PUT: conditional when ``body`` carries a resourceVersion."""
        resource = named(resource)
        new, unknown = self._decode(resource, body, how)
        if not new["metadata"].get("name"):
            told = f"the name of the object ({name} based on URL) was undeterminable"
            raise status.bad_request(f"{told}: name must be provided")
        entry = self.find(resource, name, namespace)
        strategy.require_uid(resource, entry, new["metadata"].setdefault("uid", entry.uid))
        return Written(self._update(resource, entry, new, how), unknown)

    def patch(
        self,
        resource: Resource | str,
        name: str,
        patch: Any,
        namespace: str = "",
        how: Write = _DEFAULT,
        *,
        kind: PatchType = PatchType.MERGE,
    ) -> Written:
        """PATCH in one of the three formats; conditional when it sets a resourceVersion."""
        resource = named(resource)
        entry = self.find(resource, name, namespace)
        patched = _patched(resource, entry, patch, kind)
        try:
            new, unknown = self._decode(resource, patched, how)
        except status.ApiError as error:  # the real server blames the patch, with 422
            cause = status.Cause("FieldValueInvalid", f"Invalid value: {error.message}", "patch")
            raise status.invalid("", "", [cause]) from None
        return Written(self._update(resource, entry, new, how), unknown)

    def delete(
        self,
        resource: Resource | str,
        name: str,
        namespace: str = "",
        only_if: Preconditions = _UNCONDITIONAL,
        *,
        dry_run: bool = False,
    ) -> Entry | None:
        """DELETE: None when it is gone; the marked object when finalizers still hold it."""
        resource = named(resource)
        entry = self.find(resource, name, namespace)
        strategy.hold_preconditions(resource, entry, only_if.uid, only_if.version)
        body = entry.decode()
        held = body["metadata"].get("finalizers")
        if dry_run or (held and "deletionTimestamp" in body["metadata"]):
            return entry if held else None
        if not held:
            self.store.delete(resource, entry)
            if resource is resources.NAMESPACES:
                self._empty(name)
            return None
        body["metadata"] |= {"deletionTimestamp": self._now(), "deletionGracePeriodSeconds": 0}
        return self.store.put(resource, normalise(resource, body))

    # --- how a write is done ---

    def _now(self) -> str:
        return self.clock().strftime("%Y-%m-%dT%H:%M:%SZ")

    @staticmethod
    def _decode(
        resource: Resource, body: Mapping[str, Any], how: Write
    ) -> tuple[dict[str, Any], tuple[str, ...]]:
        new, unknown = strategy.decode(resource, body)
        if unknown and how.strict:
            raise status.bad_request(f"strict decoding error: {', '.join(unknown)}")
        return new, unknown

    @staticmethod
    def _check(resource: Resource, new: dict[str, Any], old: dict[str, Any] | None) -> None:
        causes = validate(resource, new, old)
        if causes:
            raise status.invalid_object(resource, new["metadata"].get("name", ""), causes)

    def _update(self, resource: Resource, entry: Entry, new: dict[str, Any], how: Write) -> Entry:
        """Put ``new`` in ``entry``'s place, if it may; no difference, no write."""
        old = entry.decode()
        strategy.complete_update(resource, entry, old, new, how.subresource)
        if new == old:
            return entry
        self._check(resource, new, old)
        return self._save(resource, old, new, how)

    def _save(
        self, resource: Resource, old: dict[str, Any], new: dict[str, Any], how: Write
    ) -> Entry:
        writer = managed.Writer(how.manager, resource.api_version, self._now(), how.subresource)
        new["metadata"]["managedFields"] = managed.record(old, new, writer)
        new = normalise(resource, new)  # for the order of its fields
        if how.dry_run:
            return entry_of(resource, new, int(old.get("metadata", {}).get("resourceVersion", 0)))
        saved = self.store.put(resource, new)
        if "deletionTimestamp" in new["metadata"] and not new["metadata"].get("finalizers"):
            self.store.delete(resource, saved)
        return saved

    def _empty(self, namespace: str) -> None:
        """Delete what is in a deleted namespace; there is no controller here to do it later."""
        for resource in resources.STORED:
            for entry in self.store.entries(resource):
                if entry.namespace == namespace:
                    self.store.delete(resource, entry)


def _patched(resource: Resource, entry: Entry, patch: Any, kind: PatchType) -> dict[str, Any]:
    document = {"kind": resource.kind, "apiVersion": resource.api_version}
    document |= events.from_storage(resource, entry.decode())
    if kind is PatchType.JSON:
        patched = patches.json_patch(document, patch)
        if not isinstance(patched, dict):
            raise status.rejected()
        return patched
    if not isinstance(patch, dict):
        raise status.bad_request(
            "error decoding patch: json: cannot unmarshal array into Go value of type"
            " map[string]interface {}"
        )
    if kind is PatchType.STRATEGIC:
        return patches.strategic_patch(resource, document, patch)
    merged: dict[str, Any] = patches.merge_patch(document, patch)
    return merged
