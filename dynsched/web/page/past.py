"""The latest changes, in memory of a fixed size. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final

import msgspec

from dynsched.core.alerts import Alert, Alerts, AlertState
from dynsched.core.health import is_blind
from dynsched.core.tick import Tick

MAX_CHANGES: Final = 10_000
"""Changes that are kept, of all nodes: about 2 MB."""


class Change(msgspec.Struct, frozen=True, gc=False):
    """``at``: Unix seconds. ``kind``: the alert's new state; or ``mark``, ``release`` or ``repair``
    for what was written, with an empty ``rule``. ``why`` may be a `Reason`. Without a ``node``, of
    all: ``rules`` were loaded or ``refused``, who is the ``leader``, no rule has a value
    (``blind``) or one has again (``sees``).
    """

    at: float
    node: str
    kind: str
    rule: str
    value: float | None
    why: str


class Changes:
    """What changed, tick by tick."""

    def __init__(self) -> None:
        self._kept: deque[Change] = deque(maxlen=MAX_CHANGES)
        self._alerts: Alerts = {}
        self._leader: str | None = None
        self._is_blind = False

    def observe(self, tick: Tick) -> None:
        """What this tick wrote, and the alerts that changed their state in it."""
        self._kept.extend(
            Change(tick.taken_at, patch.node, patch.action.value, "", None, patch.reason)
            for patch in tick.writes.applied
        )
        alerts = tick.evaluation.alerts
        for name in tick.evaluation.table.entries:
            self._kept.extend(_changes(alerts[name], self._alerts.get(name, {})))
        self._alerts = alerts
        self._kept.extend(
            Change(tick.taken_at, "", kind, "", None, text) for kind, text in self._new_of_all(tick)
        )

    def _new_of_all(self, tick: Tick) -> Iterator[tuple[str, str]]:
        status, leader = tick.rules_status, tick.leadership.leader
        if status.reloaded:
            yield "rules", ""
        if status.refused:
            yield "refused", status.error or ""
        if leader is not None and leader != self._leader:
            if self._leader is not None:
                yield "leader", leader
            self._leader = leader
        if is_blind(tick) != self._is_blind:
            self._is_blind = not self._is_blind
            yield ("blind", tick.error or "") if self._is_blind else ("sees", "")

    def of_node(self, node: str, most: int) -> list[Change]:
        """The latest first."""
        found = (change for change in reversed(self._kept) if change.node == node)
        return list(islice(found, most))

    def of_all(self, most: int) -> list[Change]:
        """The latest first: what was written to nodes, and what concerns all of them."""
        found = (change for change in reversed(self._kept) if not change.rule)
        return list(islice(found, most))


def _changes(alerts: Mapping[str, Alert], before: Mapping[str, Alert]) -> Iterator[Change]:
    """The alerts of one node that changed their state. One that was adopted, or restored at the
    start, did so earlier.
    """
    for rule, alert in alerts.items():
        was = before[rule].state if rule in before else AlertState.INACTIVE
        if alert.state is not was and alert.since == alert.updated_at:
            yield Change(alert.since, alert.node, alert.state.value, rule, alert.value, "")
