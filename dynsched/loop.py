"""One tick: fetch -> match -> evaluate -> plan -> apply -> publish.

The loop knows no shell: it declares here the Protocols that it consumes, and `app` hands them in.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from dynsched.core.model import Node, NodePatch, QueryResult
from dynsched.core.rules import Rule


class Source(Protocol):
    """Where a rule's samples come from."""

    async def query(self, rule: Rule) -> QueryResult:
        """One aggregate query. A bad answer is a QueryResult with an error, never an exception."""


class Cluster(Protocol):
    """The nodes as last observed, and the one way to change one."""

    @property
    def synced(self) -> bool:
        """Whether the first list of nodes is complete."""

    def nodes(self) -> Mapping[str, Node]:
        """All nodes by name; a view that does not change under the caller's hands."""

    async def read(self, name: str) -> Node | None:
        """The node as the API server has it now; None when it is gone."""

    async def patch(self, patch: NodePatch) -> Node:
        """Send one merge patch; the node as stored. ConflictError, NodeGoneError, ClusterError."""


class EventSink(Protocol):
    """Where Events about nodes go. Never blocks, never fails: Events are best effort."""

    def post(self, node: Node, *, reason: str, message: str, warning: bool = False) -> None:
        """Queue one Event on ``node``; equal ones are aggregated by count."""
