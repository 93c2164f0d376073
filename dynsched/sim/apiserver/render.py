"""Stored objects as bytes on the wire: as they are, as Tables, or cut down to their metadata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any, Final

import msgspec

from dynsched.sim.apiserver import events, status, tables
from dynsched.sim.apiserver.resources import Resource
from dynsched.sim.apiserver.store import ChangeType, Entry

encode: Final = msgspec.json.Encoder().encode

_JSON_TYPES: Final = frozenset({"application/json", "application/*", "*/*", ""})


class Form(Enum):
    """What the Accept header asks for."""

    OBJECT = "object"
    TABLE = "table"
    PARTIAL = "partial"


def negotiate(accept: str) -> Form:
    """The first form in the Accept header that can be given; ApiError 406."""
    for option in accept.split(","):
        media, *parameters = (part.strip() for part in option.split(";"))
        if media not in _JSON_TYPES:
            continue
        given = dict(p.partition("=")[::2] for p in parameters)
        wanted, version = given.get("as", ""), given.get("v", "v1")
        if not wanted:
            return Form.OBJECT
        if version == "v1" and wanted == "Table":
            return Form.TABLE
        if version == "v1" and wanted in {"PartialObjectMetadata", "PartialObjectMetadataList"}:
            return Form.PARTIAL
    raise status.not_acceptable()


@dataclass(frozen=True, slots=True)
class Renderer:
    """How one request is answered. ``include`` is what a Table's rows carry."""

    resource: Resource
    form: Form
    include: str = "Metadata"

    def one(self, entry: Entry, now: datetime) -> bytes:
        """A single object."""
        if self.form is Form.OBJECT:
            return _head(self.resource) + self._fragment(entry)[1:]
        body = self._body(entry)
        if self.form is Form.PARTIAL:
            return encode(tables.partial(body))
        meta = {"resourceVersion": str(entry.version)}
        return encode(tables.table(self.resource, [body], meta, now, include=self.include))

    def many(self, entries: Sequence[Entry], metadata: Mapping[str, Any], now: datetime) -> bytes:
        """A list."""
        if self.form is Form.OBJECT:
            head = (
                f'{{"kind":"{self.resource.kind}List","apiVersion":"{self.resource.api_version}",'
                f'"metadata":{encode(metadata).decode()},"items":['
            )
            return b"".join([head.encode(), b",".join(map(self._fragment, entries)), b"]}"])
        bodies = map(self._body, entries)
        if self.form is Form.PARTIAL:
            return encode(tables.partial_list(bodies, metadata))
        return encode(tables.table(self.resource, bodies, metadata, now, include=self.include))

    def change(self, kind: ChangeType, entry: Entry, now: datetime, *, first: bool) -> bytes:
        """One line of a watch. Only the ``first`` Table of a watch defines its columns."""
        if self.form is not Form.TABLE:
            return event(kind, self.one(entry, now))
        meta = {"resourceVersion": str(entry.version)}
        bodies = [self._body(entry)]
        shown = tables.table(self.resource, bodies, meta, now, include=self.include)
        if not first:
            shown["columnDefinitions"] = None
        return event(kind, encode(shown))

    def bookmark(self, version: int, *, initial_end: bool = False) -> bytes:
        """A BOOKMARK: nothing but a version up to which the watch has told all."""
        meta: dict[str, Any] = {"resourceVersion": str(version)}
        if initial_end:
            meta["annotations"] = {"k8s.io/initial-events-end": "true"}
        body: dict[str, Any] = {
            "kind": self.resource.kind,
            "apiVersion": self.resource.api_version,
            "metadata": meta,
        }
        if self.form is Form.PARTIAL:
            body = tables.partial(body)
        if self.form is Form.TABLE:
            row = {"cells": [], "object": tables.partial(body)}
            body = {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": meta}
            body |= {"columnDefinitions": None, "rows": [row]}
        return event("BOOKMARK", encode(body))

    def _fragment(self, entry: Entry) -> bytes:
        if self.resource.stored_as is None:
            return entry.raw
        return encode(self._body(entry))

    def _body(self, entry: Entry) -> dict[str, Any]:
        return events.from_storage(self.resource, entry.decode())


def event(kind: str, body: bytes) -> bytes:
    """A line of a watch's stream."""
    return b'{"type":"%s","object":%s}\n' % (kind.encode(), body)


def _head(resource: Resource) -> bytes:
    return f'{{"kind":"{resource.kind}","apiVersion":"{resource.api_version}",'.encode()
