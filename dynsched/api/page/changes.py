"""What changed of late: alerts that began and ended, marks that were set and released. Pure."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection
from itertools import islice
from typing import Final

import msgspec
import numpy as np

from dynsched.engine.model import AlertState
from dynsched.engine.snapshot import NodeViews, Snapshot

MAX_CHANGES: Final = 10_000
"""Changes that are kept, of all nodes: about 2 MB."""
_INACTIVE: Final = AlertState.INACTIVE.value
_PENDING: Final = AlertState.PENDING.value
_FIRING: Final = AlertState.FIRING.value


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
        self._told: dict[tuple[str, str], str] = {}

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
        places, rows = np.nonzero(changed.T)  # by node: what is too much, are whole nodes
        cells = rows[-MAX_CHANGES:], places[-MAX_CHANGES:]
        states = table.states
        columns = (states.firing, states.pending, table.since, table.value)
        taken = (column[cells].tolist() for column in columns)
        for row, place, firing, pending, since, value in zip(
            *(each.tolist() for each in cells), *taken, strict=True
        ):
            name, rule = table.roster.names[place], table.rules[row]
            kind = _FIRING if firing else _PENDING if pending else _INACTIVE
            if name not in views or (kind is _INACTIVE and name not in self._known):
                continue
            if not self._is_told(name, rule, kind, since):
                known = None if math.isnan(value) else value
                self._kept.append(Change(since, name, kind, rule, known, ""))
        self._known = table.roster.places

    def _is_told(self, node: str, rule: str, kind: str, since: float) -> bool:
        """Whether this change was taken in before; from now on it was."""
        if since != self._since:
            self._since, self._told = since, {}
        before = self._told.get((node, rule))
        self._told[node, rule] = kind
        return before == kind

    def latest(self, most: int, node: str | None = None) -> list[Change]:
        """The latest first: of one node, or of all."""
        found = (change for change in reversed(self._kept) if node in (None, change.node))
        return list(islice(found, most))
