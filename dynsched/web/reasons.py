"""Why a node is not as its verdict wants it: for the page and for alerts. Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from dynsched.core.model import NodeView, Snapshot


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

    def of(self, view: NodeView) -> Why | None:
        """The first that applies, in the order of `Reason`; None for a node that is as it should
        be.
        """
        if view.conflict is not None:
            return Why(Reason.CONFLICT, view.conflict)
        if view.ineligible is not None:
            return Why(Reason.INELIGIBLE, view.ineligible)
        if view.withheld is not None:
            return Why(Reason.WITHHELD, view.withheld)
        return None if view.due is None else self._why_due(view.name)

    def _why_due(self, name: str) -> Why:
        if self._snapshot.dry_run:
            return Why(Reason.DRY_RUN, "")
        if not self._snapshot.leading:
            return Why(Reason.FOLLOWING, "")
        cause = self._failed.get(name)
        return Why(Reason.NEXT_TICK, "") if cause is None else Why(Reason.FAILED, cause)
