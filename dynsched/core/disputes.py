"""Signs that another program or person changes the same marks: another dynsched with a Lease of its
own (replicas of two clusters, one of them with the wrong kubeconfig), a leader with other rules or
another Prometheus, a controller that resets labels.

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
DIFFERS: Final = 300.0
"""Seconds for which another leader may leave undone what this replica would do: its rules file may
be about to change, its query may have come a moment later."""
TAKEN_OFF: Final = (
    "its mark is removed by somebody else each time it is set; is another dynsched running "
    "here, with a Lease of its own, or something that resets labels?"
)
PUT_ON: Final = (
    "its mark is set by somebody else each time it is removed; is another dynsched running "
    "here, with a Lease of its own?"
)
_WOULD: Final = {
    Action.MARK: "mark it",
    Action.RELEASE: "release it",
    Action.REPAIR: "repair its mark",
}


class _Writes(NamedTuple):
    """The same thing written to a node again and again, with nothing else of ours in between."""

    uid: str
    puts: bool
    times: int
    at: float


class Disputes:
    """What was written, and what is left undone. Times are seconds of any one clock."""

    def __init__(self) -> None:
        self._written: dict[str, _Writes] = {}
        self._undone: dict[str, tuple[Action, float]] = {}

    def forget(self) -> None:
        """Begin anew: with other rules, the same may rightly be due again."""
        self._written.clear()
        self._undone.clear()

    def leading(
        self, applied: Collection[NodePatch], nodes: Mapping[str, Node], now: float
    ) -> dict[str, str]:
        """The dispute about each node, in words, after this process (the leader) wrote ``applied``.

        A mark that we put on twice, without having taken it off, was taken off by somebody else.
        """
        self._undone.clear()
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

    def following(
        self, planned: Collection[NodePatch], leader: str | None, now: float
    ) -> dict[str, str]:
        """The same for a replica that ``planned`` this and leaves it to ``leader``; None: no
        leader is known, so no other replica can have decided otherwise.
        """
        self._written.clear()
        before, self._undone = self._undone, {}
        if leader is None:
            return {}
        for patch in planned:
            action, since = before.get(patch.node, (patch.action, now))
            self._undone[patch.node] = patch.action, since if action is patch.action else now
        return {
            name: f"this replica would {_WOULD[action]}, and {leader}, who leads, does not; have "
            "all replicas the same rules and the same Prometheus?"
            for name, (action, since) in self._undone.items()
            if now - since >= DIFFERS
        }
