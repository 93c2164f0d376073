"""Detects that another program or person changes the same marks.

It may be another dynsched instance with a different Lease (for another cluster, with the wrong
kubeconfig), or a controller that resets labels.

The writes of each side succeed, so a dispute shows only in marks that change back again and again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from dynsched.core.marks import Action, NodePatch
from dynsched.core.nodes import Node

TIMES: Final = 3
"""How many times in a row the same change must be needed on a node to count as a dispute."""
WITHIN: Final = 1200.0
"""Seconds after the last write. A write that is due again later than this is unrelated to it."""
TAKEN_OFF: Final = (
    "someone else removes its mark each time it is set; is another dynsched instance running "
    "here with a different Lease, or something that resets labels?"
)
PUT_ON: Final = (
    "someone else sets its mark each time it is removed; is another dynsched instance running "
    "here with a different Lease?"
)


class _Writes(NamedTuple):
    """The same change of a mark, written to a node repeatedly with no other change in between."""

    uid: str
    puts: bool
    times: int
    at: float


class Disputes:
    """Counts repeated writes per node. Times are seconds of any one clock."""

    def __init__(self) -> None:
        self._written: dict[str, _Writes] = {}

    def after(
        self, applied: Collection[NodePatch], nodes: Mapping[str, Node], now: float
    ) -> dict[str, str]:
        """The dispute about each node, in words, after this process (the leader) wrote ``applied``.

        If we set a mark twice without removing it in between, someone else removed it.
        """
        for patch in applied:
            node, known = nodes.get(patch.node), self._written.get(patch.node)
            if node is not None and patch.changes_mark:
                puts, times = patch.action is not Action.RELEASE, 1
                if known is not None and (known.uid, known.puts) == (node.uid, puts):
                    times += known.times
                self._written[node.name] = _Writes(node.uid, puts, times, now)
        self._written = {
            name: writes
            for name, writes in self._written.items()
            if name in nodes and now - writes.at <= WITHIN
        }
        return {
            name: TAKEN_OFF if writes.puts else PUT_ON
            for name, writes in self._written.items()
            if writes.times >= TIMES
        }
