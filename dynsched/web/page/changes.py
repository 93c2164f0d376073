"""What changed of late: alerts that began and ended, marks that were set and released. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from itertools import islice
from typing import Final

import msgspec
import numpy as np

from dynsched.core.decision import NodeViews
from dynsched.core.model import Alert, AlertState, Snapshot

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
        self._known: Collection[str] = ()
        self._since = 0.0
        self._told: dict[tuple[str, str], AlertState] = {}

    def written(self, snapshot: Snapshot) -> None:
        """What this tick wrote. Only the replica that leads writes."""
        for patch in snapshot.applied:
            self._kept.append(
                Change(snapshot.taken_at, patch.node, patch.action.value, "", None, patch.reason)
            )

    def observe(self, views: NodeViews) -> None:
        """Take in the alerts that changed their state in this tick. Between two ticks it is decided
        again as of the same moment: what was told then is not told again.
        """
        table = views.evaluation.alerts
        # A change of state is the only thing that sets both times to the same moment.
        changed = table.exists & (table.since == table.updated_at)
        if not self._known:  # of new nodes, to be inactive is no change
            changed &= table.states.firing | table.states.pending
        for place, row in np.argwhere(changed.T).tolist():
            name = table.roster.names[place]
            if name not in views:
                continue
            alert = table.alert(row, place)
            if alert.state is AlertState.INACTIVE and name not in self._known:
                continue
            if not self._is_told(alert):
                self._kept.append(
                    Change(alert.since, name, alert.state.value, alert.rule, alert.value, "")
                )
        self._known = table.roster.places

    def _is_told(self, alert: Alert) -> bool:
        """Whether this change was taken in before; from now on it was."""
        if alert.since != self._since:
            self._since, self._told = alert.since, {}
        key = alert.node, alert.rule
        before = self._told.get(key)
        self._told[key] = alert.state
        return before is alert.state

    def latest(self, most: int, node: str | None = None) -> list[Change]:
        """The latest first: of one node, or of all."""
        found = (change for change in reversed(self._kept) if node in (None, change.node))
        return list(islice(found, most))
