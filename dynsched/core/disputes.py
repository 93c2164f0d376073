"""Signs that another program or person changes the same marks: another dynsched with a Lease of its
own (of another cluster, with the wrong kubeconfig), or a controller that resets labels.

Each of them finds its own writes in order; only what becomes of them shows it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from dynsched.core.marks import Action, NodePatch
from dynsched.core.nodes import Node

TIMES: Final = 3
"""How many times in a row the same change must be needed on a node to count as a dispute."""
WITHIN: Final = 1200.0
"""Seconds; a write that is due again later than this has nothing to do with the last one."""
TAKEN_OFF: Final = (
    "its mark is removed by somebody else each time it is set; is another dynsched running "
    "here, with a Lease of its own, or something that resets labels?"
)
PUT_ON: Final = (
    "its mark is set by somebody else each time it is removed; is another dynsched running "
    "here, with a Lease of its own?"
)


class _Writes(NamedTuple):
    """The same thing written to a node again and again, with nothing else of ours in between."""

    uid: str
    puts: bool
    times: int
    at: float


class Disputes:
    """What was written. Times are seconds of any one clock."""

    def __init__(self) -> None:
        self._written: dict[str, _Writes] = {}

    def after(
        self, applied: Collection[NodePatch], nodes: Mapping[str, Node], now: float
    ) -> dict[str, str]:
        """The dispute about each node, in words, after this process (the leader) wrote ``applied``.

        A mark that we put on twice, without having taken it off, was taken off by somebody else.
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
