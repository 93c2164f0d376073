"""What all nodes of a Snapshot come to: names in order, counts.

The answers that need something of all nodes take it from here. It is counted once a Snapshot, when
the first of them is asked for, and some nodes at a time: at 65,000 nodes, all of them in one piece
would hold up other requests.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from functools import cached_property
from typing import Final

from dynsched.core.model import NodeView, Snapshot
from dynsched.web.nodes import main_part

_COUNTED: Final = 200
"""Nodes that are counted in one go: about a millisecond in which no other request is answered."""
_SORTED: Final = 4_000
"""Names that are sorted in one go."""


class Totals:
    """Of the nodes that were added so far; add them in the order of their names."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.names: list[str] = []
        self.marked: list[str] = []
        """Those that carry the mark, a part of it, or that of an older configuration."""
        self.named: list[str] = []
        """Those that carry the part of the mark that `/nodes` names and counts."""
        self.hot: list[str] = []
        self.early = self.withheld = self.eligible = 0
        self.conflicts: list[tuple[str, str]] = []
        """Node, and what is in the way."""
        self.pools: Counter[tuple[str, bool]] = Counter()
        """Nodes that may be marked, by their pool and whether they are hot."""
        self._part = main_part(snapshot.rule_set.mark)

    @classmethod
    def of(cls, snapshot: Snapshot) -> Totals:
        """Counted in one piece."""
        totals = cls(snapshot)
        totals.add(snapshot.nodes[name] for name in sorted(snapshot.nodes))
        return totals

    def add(self, views: Iterable[NodeView]) -> None:
        """Take in some more nodes."""
        for view in views:
            name, is_hot = view.name, view.pressured
            self.names.append(name)
            if is_hot:
                self.hot.append(name)
            if view.carries:
                self.marked.append(name)
                if self._part in view.carries:
                    self.named.append(name)
            if view.eligible:
                self.eligible += 1
                self.pools[view.pool, is_hot] += 1
            if view.conflict is not None:
                self.conflicts.append((name, view.conflict))
            self.early += view.early
            self.withheld += view.withheld is not None

    def narrowed(self, *, marked: bool | None) -> list[str]:
        """The names of those that are ``marked`` or not; None: of all."""
        if marked is None:
            return self.names
        return self.marked if marked else self._unmarked

    @cached_property
    def _unmarked(self) -> list[str]:
        marked = set(self.marked)
        return [name for name in self.names if name not in marked]


async def count(snapshot: Snapshot) -> Totals:
    """On the event loop, in batches."""
    totals = Totals(snapshot)
    async for views in batches_of(snapshot, await in_order(snapshot.nodes), _COUNTED):
        totals.add(views)
    return totals


async def batches_of(
    snapshot: Snapshot, names: Sequence[str], size: int
) -> AsyncIterator[list[NodeView]]:
    """The views of these nodes, ``size`` at a time; after each batch, others have their turn."""
    nodes = snapshot.nodes
    for start in range(0, len(names), size):
        yield [nodes[name] for name in names[start : start + size]]
        await asyncio.sleep(0)


async def in_order(names: Iterable[str]) -> list[str]:
    """Sorted, in batches: the last `sort` only merges what they left in order."""
    found = list(names)
    for start in range(0, len(found), _SORTED):
        found[start : start + _SORTED] = sorted(found[start : start + _SORTED])
        await asyncio.sleep(0)
    found.sort()
    return found
