"""Why a node is not as its verdict wants it: for the page and for alerts. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple

from dynsched.engine.snapshot import Snapshot


class Reason(StrEnum):
    """The kinds of reasons. They are values of a label in `/metrics`, so they do not change."""

    CONFLICT = "conflict"  # somebody else set the mark's label or taint
    INELIGIBLE = "ineligible"  # it must not be marked at all
    WITHHELD = "withheld"  # the guard
    DRY_RUN = "dry_run"
    FOLLOWING = "following"  # another replica writes
    FAILED = "failed"  # the API server did not take the patch
    NEXT_TICK = "next_tick"


class Why(NamedTuple):
    """A reason; ``text`` says more about it, or is empty."""

    reason: Reason
    text: str


class Reasons:
    """Those of one Snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._failed = {failure.node: failure.cause for failure in snapshot.failures}

    def of(self, names: Sequence[str], due: Iterable[str]) -> dict[str, Why]:
        """By node, the first that applies, in the order of `Reason`; without those that are as they
        should be. ``due``: those of the nodes that need a patch.
        """
        nodes = self._snapshot.nodes
        found = {name: self._why_due(name) for name in due}
        for reason, texts in (
            (Reason.WITHHELD, nodes.withheld),
            (Reason.INELIGIBLE, nodes.ineligible),
            (Reason.CONFLICT, nodes.conflicts),
        ):
            found |= {name: Why(reason, texts[name]) for name in names if name in texts}
        return found

    def _why_due(self, name: str) -> Why:
        if self._snapshot.dry_run:
            return Why(Reason.DRY_RUN, "")
        if not self._snapshot.leading:
            return Why(Reason.FOLLOWING, "")
        cause = self._failed.get(name)
        return Why(Reason.NEXT_TICK, "") if cause is None else Why(Reason.FAILED, cause)


def why_unwritten(snapshot: Snapshot, node: str) -> str:
    """Why the patch that is due on a node was not written in this tick, in one line."""
    if snapshot.dry_run:
        return "nothing is written in a dry run"
    if not snapshot.leading:
        if snapshot.leader is None:
            return "no replica leads, so nothing is written"
        return f"{snapshot.leader} leads, and has not written it yet"
    for failure in snapshot.failures:
        if failure.node == node:
            return f"the write failed: {failure.cause}"
    if snapshot.failures:
        return f"it was not tried, because other writes failed, the first: {snapshot.failures[0]}"
    return "the next tick writes it"
