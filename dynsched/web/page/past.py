"""The history that the page shows, in a bounded amount of memory: the latest changes, and where
new pods went. Pure.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from typing import Any, Final

import msgspec

from dynsched.core.alerts import Alert, Alerts, AlertState
from dynsched.core.evaluate import Evaluation
from dynsched.core.health import is_blind
from dynsched.core.tick import Tick

MAX_CHANGES: Final = 10_000
"""Maximum changes that are stored, of all nodes together: about 2 MB."""
STEP: Final = 300.0
"""Length of a step in seconds. Each step has one count of pods."""
STEPS: Final = 12
"""Steps that are stored: an hour."""


class Change(msgspec.Struct, frozen=True, gc=False):
    """``at``: Unix seconds. ``why`` may be a `Reason`. ``kind`` is one of:

    - the new state of an alert;
    - ``mark``, ``release`` or ``repair`` for a write, with an empty ``rule``;
    - for the whole cluster, with an empty ``node``: ``rules`` were loaded, or ``refused``; there is
      a new ``leader``; no rule has a value (``blind``), or one has a value again (``sees``).
    """

    at: float
    node: str
    kind: str
    rule: str
    value: float | None
    why: str


class Changes:
    """The changes from tick to tick."""

    def __init__(self) -> None:
        self._kept: deque[Change] = deque(maxlen=MAX_CHANGES)
        self._alerts: Alerts = {}
        self._leader: str | None = None
        self._is_blind = False

    def observe(self, tick: Tick) -> None:
        """Store the tick's writes, changed alert states, and cluster-wide changes."""
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
        """A node's changes, the latest first."""
        found = (change for change in reversed(self._kept) if change.node == node)
        return list(islice(found, most))

    def of_all(self, most: int) -> list[Change]:
        """Writes and cluster-wide changes, the latest first."""
        found = (change for change in reversed(self._kept) if not change.rule)
        return list(islice(found, most))


def _changes(alerts: Mapping[str, Alert], before: Mapping[str, Alert]) -> Iterator[Change]:
    """The changed alert states of one node. Alerts that were adopted, or restored at the start,
    are left out, because they changed earlier.
    """
    for rule, alert in alerts.items():
        was = before[rule].state if rule in before else AlertState.INACTIVE
        if alert.state is not was and alert.since == alert.updated_at:
            yield Change(alert.since, alert.node, alert.state.value, rule, alert.value, "")


class PlacedOn(StrEnum):
    """The state of a node when a pod was placed on it."""

    HOT = "hot"  # marked or not
    MARKED = "marked"  # no longer hot, and not released yet
    CLEAN = "clean"


@dataclass(slots=True)
class _Step:
    """``begins``: Unix seconds. ``by_chance``: as in `Placements.columns`."""

    begins: float
    pods: Counter[PlacedOn] = field(default_factory=Counter)
    by_chance: float = 0.0


class Placements:
    """How pods were placed in the last hour, in steps of STEP seconds."""

    def __init__(self) -> None:
        self._kept: deque[_Step] = deque(maxlen=STEPS)

    def count(self, nodes: Iterable[str], before: Evaluation, at: float) -> Counter[PlacedOn]:
        """Count pods that were bound to ``nodes`` (a name for each pod) by ``at``, and return their
        number by kind. The state of a node is that of the evaluation ``before``, because the
        scheduler could not know a newer one.
        """
        hot, marked = before.hot, before.table.marked
        found = Counter(
            PlacedOn.HOT if name in hot else PlacedOn.MARKED if name in marked else PlacedOn.CLEAN
            for name in nodes
        )
        step = self._step(at)
        step.pods.update(found)
        step.by_chance += found.total() * len(hot) / max(1, len(before.table.entries))
        return found

    def columns(self) -> dict[str, Any]:
        """By kind, a count for each of ``times``, the oldest first. ``by_chance``: the number of
        pods that would be on hot nodes if they were placed without regard to load.
        """
        return {
            "step": STEP,
            "times": [step.begins for step in self._kept],
            **{kind.value: [step.pods[kind] for step in self._kept] for kind in PlacedOn},
            "by_chance": round(sum(step.by_chance for step in self._kept), 2),
        }

    def _step(self, at: float) -> _Step:
        begins = at - at % STEP
        # If the clock was set back, the last step continues.
        while not self._kept or self._kept[-1].begins < begins:
            last = self._kept[-1].begins if self._kept else begins - STEP
            self._kept.append(_Step(max(last + STEP, begins - (STEPS - 1) * STEP)))
        return self._kept[-1]
