"""What changed of late: alerts that began and ended, marks that were set and released. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import islice
from typing import Final

import msgspec

from dynsched.core.model import Alert, AlertState, NodeView, Snapshot

MAX_CHANGES: Final = 10_000
"""Changes that are kept, of all nodes: about 2 MB."""


class Change(msgspec.Struct, frozen=True, gc=False):
    """One change of one node. ``at``: Unix seconds. ``kind``: the alert's new state, or ``mark``,
    ``release`` or ``repair`` for what was written. ``rule``: empty for what was written.
    ``text``: what was written, and why, in a line.
    """

    at: float
    node: str
    kind: str
    rule: str
    value: float | None
    text: str


class Changes:
    """The last ``MAX_CHANGES`` changes."""

    def __init__(self) -> None:
        self._kept: deque[Change] = deque(maxlen=MAX_CHANGES)
        self._known: set[str] = set()
        self._since = 0.0
        self._told: dict[tuple[str, str], AlertState] = {}

    def written(self, snapshot: Snapshot) -> None:
        """What this tick wrote. Only the replica that leads writes."""
        for patch in snapshot.applied:
            self._kept.append(
                Change(snapshot.taken_at, patch.node, patch.action.value, "", None, patch.reason)
            )

    def add(self, views: Iterable[NodeView]) -> None:
        """Take in the alerts of some nodes that changed their state in this tick. Between two ticks
        it is decided again as of the same moment: what was told then is not told again.
        """
        for view in views:
            for alert in view.alerts:
                # A change of state is the only thing that sets both times to the same moment.
                if alert.since != alert.updated_at:
                    continue
                if alert.state is AlertState.INACTIVE and view.name not in self._known:
                    continue  # of a new node, this is no change
                if self._is_told(alert):
                    continue
                self._kept.append(
                    Change(
                        *(alert.since, view.name, alert.state.value, alert.rule),
                        *(alert.value, ""),
                    )
                )

    def _is_told(self, alert: Alert) -> bool:
        """Whether this change was taken in before; from now on it was."""
        if alert.since != self._since:
            self._since, self._told = alert.since, {}
        key = alert.node, alert.rule
        before = self._told.get(key)
        self._told[key] = alert.state
        return before is alert.state

    def finish(self, snapshot: Snapshot) -> None:
        """All nodes of the tick were added."""
        self._known = set(snapshot.nodes)

    def latest(self, most: int, node: str | None = None) -> list[Change]:
        """The latest first: of one node, or of all."""
        found = (change for change in reversed(self._kept) if node in (None, change.node))
        return list(islice(found, most))
