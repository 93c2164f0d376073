"""Objects, versions and history: the counterpart of etcd and the watch cache.

In memory only: no network, no clock. An object is stored once, as the JSON that is served; lists
are assembled from these fragments. Every write takes the next global resourceVersion and is passed
to the listeners synchronously, in order. All calls must come from one thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import takewhile
from typing import Any, Final, NamedTuple

import msgspec

from dynsched_sim.apiserver.resources import ALL, Resource

HISTORY: Final = 5_000
"""Number of changes per resource that are kept, and that a watch can start from."""

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(dict[str, Any]).decode


class GoneError(LookupError):
    """The requested version precedes the history; the argument is the last compacted version."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One version of one object, immutable. ``raw`` is its JSON without kind and apiVersion.

    Selectors match against ``labels`` and ``fields``; the latter holds the selectable fields only.
    """

    key: str
    namespace: str
    name: str
    uid: str
    version: int
    labels: Mapping[str, str]
    fields: Mapping[str, str]
    raw: bytes

    def decode(self) -> dict[str, Any]:
        return _decode(self.raw)


class ChangeType(StrEnum):
    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


@dataclass(frozen=True, slots=True)
class StoreChange:
    """One write. For DELETED, ``entry`` is the last state with the version of the deletion."""

    type: ChangeType
    entry: Entry
    previous: Entry | None

    @property
    def version(self) -> int:
        return self.entry.version


Listener = Callable[[StoreChange], None]


class Backup(NamedTuple):
    version: int
    entries: Mapping[Resource, Mapping[str, Entry]]


class _Collection:
    def __init__(self, history: int) -> None:
        self.entries: dict[str, Entry] = {}
        self.history: deque[StoreChange] = deque(maxlen=history)
        self.compacted = 0
        self.listeners: list[Listener] = []
        self.snapshot: tuple[Entry, ...] | None = None

    def apply(self, change: StoreChange) -> None:
        key = change.entry.key
        if change.type is ChangeType.DELETED:
            del self.entries[key]
        else:
            self.entries[key] = change.entry
        self.snapshot = None
        if len(self.history) == self.history.maxlen:
            self.compacted = self.history[0].version
        self.history.append(change)
        for listener in tuple(self.listeners):
            listener(change)

    def changes_back_to(self, version: int) -> Iterator[StoreChange]:
        if version < self.compacted:
            raise GoneError(self.compacted)
        return takewhile(lambda c: c.version > version, reversed(self.history))

    def sorted(self) -> tuple[Entry, ...]:
        if self.snapshot is None:
            self.snapshot = tuple(self.entries[key] for key in sorted(self.entries))
        return self.snapshot


class Store:
    def __init__(self, *, history: int = HISTORY) -> None:
        self.version = 1
        self._collections = {resource: _Collection(history) for resource in ALL}

    # --- reading ---

    def get(self, resource: Resource, namespace: str, name: str) -> Entry | None:
        return self._collections[resource].entries.get(_key_of(namespace, name))

    def entries(self, resource: Resource, at: int | None = None) -> tuple[Entry, ...]:
        """The entries sorted by key, now or at version ``at``. GoneError if that is too old."""
        collection = self._collections[resource]
        undone = [] if at is None else list(collection.changes_back_to(at))
        if not undone:
            return collection.sorted()
        entries = dict(collection.entries)
        for change in undone:
            if change.previous is None:
                del entries[change.entry.key]
            else:
                entries[change.entry.key] = change.previous
        return tuple(entries[key] for key in sorted(entries))

    def changes(self, resource: Resource, since: int) -> tuple[StoreChange, ...]:
        """The changes after version ``since``, oldest first. GoneError if that is too old."""
        return tuple(self._collections[resource].changes_back_to(since))[::-1]

    # --- writing ---

    def put(self, resource: Resource, body: dict[str, Any]) -> Entry:
        """Create or replace the object under a new version."""
        meta = body["metadata"]
        key = _key_of(meta.get("namespace", ""), meta["name"])
        collection = self._collections[resource]
        previous = collection.entries.get(key)
        self.version += 1
        entry = _entry_of(resource, body, self.version)
        kind = ChangeType.MODIFIED if previous else ChangeType.ADDED
        collection.apply(StoreChange(kind, entry, previous))
        return entry

    def delete(self, resource: Resource, entry: Entry) -> Entry:
        """Delete the object; returns its last state with the version of the deletion."""
        self.version += 1
        last = at_version(entry, self.version)
        self._collections[resource].apply(StoreChange(ChangeType.DELETED, last, entry))
        return last

    def compact(self) -> None:
        """Drop the history, so that every older resourceVersion is answered with 410."""
        for collection in self._collections.values():
            collection.history.clear()
            collection.compacted = self.version

    # --- backup ---

    def back_up(self) -> Backup:
        """The current state. Cheap, because no entry is copied."""
        entries = {resource: dict(each.entries) for resource, each in self._collections.items()}
        return Backup(self.version, entries)

    def restore(self, backup: Backup) -> None:
        """Restore an older state and its version, as etcd does; listeners are not called."""
        self.version = backup.version
        for resource, collection in self._collections.items():
            collection.entries, collection.snapshot = dict(backup.entries[resource]), None
        self.compact()

    # --- listening ---

    def subscribe(self, resource: Resource, listener: Listener) -> Callable[[], None]:
        """Call ``listener`` with every later change; returns a function that unsubscribes it."""
        listeners = self._collections[resource].listeners
        listeners.append(listener)
        return lambda: listeners.remove(listener)


def _key_of(namespace: str, name: str) -> str:
    return f"{namespace}/{name}" if namespace else name


def _entry_of(resource: Resource, body: Mapping[str, Any], version: int) -> Entry:
    meta = {**body["metadata"], "resourceVersion": str(version)}
    kept = {**body, "metadata": meta}
    namespace = meta.get("namespace", "")
    return Entry(
        key=_key_of(namespace, meta["name"]),
        namespace=namespace,
        name=meta["name"],
        uid=meta.get("uid", ""),
        version=version,
        labels=meta.get("labels", {}),
        fields={"metadata.name": meta["name"], "metadata.namespace": namespace}
        | dict(_selectable(resource, kept)),
        raw=_encode(kept),
    )


def at_version(entry: Entry, version: int) -> Entry:
    body = entry.decode()
    body["metadata"]["resourceVersion"] = str(version)
    return replace(entry, version=version, raw=_encode(body))


def _selectable(resource: Resource, body: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, path in resource.fields.items():
        value: Any = body
        for part in path:
            value = value.get(part) if isinstance(value, dict) else None
        if isinstance(value, bool):
            yield name, str(value).lower()
        elif value is not None:
            yield name, str(value)
