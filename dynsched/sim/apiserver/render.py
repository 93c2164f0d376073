"""Stored objects as bytes on the wire: as they are, as Tables, or cut down to their metadata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple

import msgspec

from dynsched.sim.apiserver import refusals, tables
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
    raise refusals.not_acceptable()


class Renderer(NamedTuple):
    """How one request is answered. ``whole``: a Table's rows carry whole objects."""

    resource: Resource
    form: Form
    whole: bool = False

    def one(self, entry: Entry) -> bytes:
        if self.form is Form.TABLE:
            return encode(self._table(entry))
        if self.form is Form.PARTIAL:
            return encode(tables.partial(entry.decode()))
        head = f'{{"kind":"{self.resource.kind}","apiVersion":"{self.resource.api_version}",'
        return head.encode() + entry.raw[1:]

    def many(self, entries: Sequence[Entry], metadata: Mapping[str, Any]) -> bytes:
        if self.form is Form.OBJECT:
            head = (
                f'{{"kind":"{self.resource.kind}List","apiVersion":"{self.resource.api_version}",'
                f'"metadata":{encode(metadata).decode()},"items":['
            )
            return b"".join([head.encode(), b",".join(entry.raw for entry in entries), b"]}"])
        bodies = (entry.decode() for entry in entries)
        if self.form is Form.PARTIAL:
            return encode(tables.partial_list(bodies, metadata))
        return encode(tables.table(self.resource, bodies, metadata, whole=self.whole))

    def change(self, kind: ChangeType, entry: Entry, *, first: bool) -> bytes:
        """One line of a watch. Only the ``first`` Table of a watch defines its columns."""
        if self.form is Form.TABLE and not first:
            return event(kind, encode(self._table(entry) | {"columnDefinitions": None}))
        return event(kind, self.one(entry))

    def bookmark(self, version: int) -> bytes:
        """A BOOKMARK: nothing but a version up to which the watch has told all."""
        meta = {"resourceVersion": str(version)}
        kind = {"kind": self.resource.kind, "apiVersion": self.resource.api_version}
        body: dict[str, Any] = kind | {"metadata": meta}
        if self.form is Form.PARTIAL:
            body = tables.partial(body)
        if self.form is Form.TABLE:
            row = {"cells": [], "object": tables.partial(body)}
            body = tables.table(self.resource, [], meta)
            body |= {"columnDefinitions": None, "rows": [row]}
        return event("BOOKMARK", encode(body))

    def _table(self, entry: Entry) -> dict[str, Any]:
        meta = {"resourceVersion": str(entry.version)}
        return tables.table(self.resource, [entry.decode()], meta, whole=self.whole)


def event(kind: str, body: bytes) -> bytes:
    """A line of a watch's stream."""
    return b'{"type":"%s","object":%s}\n' % (kind.encode(), body)
