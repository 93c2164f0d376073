"""What all nodes of a Snapshot come to: names in order, counts.

The answers that need something of all nodes take it from here. It is worked out once a Snapshot,
when the first of them is asked for.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from functools import cached_property
from typing import Final

from dynsched.api.nodes import main_part
from dynsched.engine.snapshot import Snapshot

_SORTED: Final = 4_000
"""Names that are sorted in one go: about a millisecond in which no other request is answered."""


class Totals:
    """Of all nodes. ``names``: of all, in order."""

    def __init__(self, snapshot: Snapshot, names: list[str]) -> None:
        nodes = snapshot.nodes
        part = main_part(snapshot.rule_set.mark)
        self.snapshot = snapshot
        self.names = names
        self.marked = sorted(nodes.marked)
        """Those that carry the mark, a part of it, or that of an older configuration."""
        self.named = sorted(nodes.carrying(part))
        """Those that carry the part of the mark that `/nodes` names and counts."""
        self.hot = sorted(nodes.hot)
        self.early = len(nodes.early)
        hot, early = len(nodes.marked & nodes.hot), len(nodes.marked & nodes.early)
        self.marked_by_state = {"hot": hot, "early": early, "other": len(self.marked) - hot - early}
        self.withheld = len(nodes.withheld)
        self.eligible = len(nodes) - len(nodes.ineligible)
        self.conflicts = sorted(nodes.conflicts.items())
        """Node, and what is in the way."""
        self.pools: Counter[tuple[str, bool]] = nodes.pools
        """Nodes that may be marked, by their pool and whether they are hot."""

    @classmethod
    def of(cls, snapshot: Snapshot) -> Totals:
        """Worked out in one piece."""
        return cls(snapshot, sorted(snapshot.nodes))

    def narrowed(self, *, marked: bool | None) -> list[str]:
        """The names of those that are ``marked`` or not; None: of all."""
        if marked is None:
            return self.names
        return self.marked if marked else self._unmarked

    @cached_property
    def _unmarked(self) -> list[str]:
        marked = self.snapshot.nodes.marked
        return [name for name in self.names if name not in marked]


async def count(snapshot: Snapshot) -> Totals:
    """Worked out without holding up other requests."""
    return Totals(snapshot, await in_order(snapshot.nodes))


async def in_order(names: Iterable[str]) -> list[str]:
    """Sorted, in batches: the last `sort` only merges what they left in order."""
    found = list(names)
    for start in range(0, len(found), _SORTED):
        found[start : start + _SORTED] = sorted(found[start : start + _SORTED])
        await asyncio.sleep(0)
    found.sort()
    return found
