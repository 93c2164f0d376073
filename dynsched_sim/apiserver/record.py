"""A record of all requests and their senders, so that a test can assert that nobody wrote."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

_WRITES: Final = frozenset({"create", "update", "patch", "delete"})


@dataclass(slots=True)
class RequestRecord:
    """One request. ``status`` is 0 if it is not answered yet, or was cut off.

    ``verb`` is the API verb (get, list, watch, create, update, patch, delete), or empty for paths
    that are not resources. ``path`` excludes the query. ``time`` is in Unix seconds.
    """

    method: str
    path: str
    query: Mapping[str, str]
    user_agent: str
    time: float
    verb: str = ""
    resource: str = ""
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    status: int = 0
    body: bytes = b""

    @property
    def manager(self) -> str:
        return self.query.get("fieldManager", "")

    @property
    def is_write(self) -> bool:
        """Whether it is a write; refused, failed and dry-run writes count too."""
        return self.verb in _WRITES

    def json(self) -> Any:
        return msgspec.json.decode(self.body)


class RequestLog(deque[RequestRecord]):
    """The most recent requests, oldest first."""

    def writes(self, resource: str = "") -> list[RequestRecord]:
        return [r for r in self if r.is_write and resource in {"", r.resource}]

    def reads(self, resource: str = "") -> list[RequestRecord]:
        """The gets, lists and watches of ``resource``, or of all resources."""
        return [r for r in self if r.verb and not r.is_write and resource in {"", r.resource}]
