"""Which of the patches that are due are sent now: no more than ``guard.max_writes_per_minute``, and
none to a node of which a write was refused a moment ago.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from dynsched.engine.model import Action, NodePatch, WriteFailure
from dynsched.engine.snapshot import Decision

BURST: Final = 10.0
"""Seconds: so much of the bound may be used at once, in the first pass all of it."""
FIRST_PAUSE: Final = 5.0
LONGEST_PAUSE: Final = 60.0
"""Seconds until a write that was refused is tried again: twice as long after each refusal."""


@dataclass(frozen=True, slots=True)
class Chosen:
    patches: tuple[NodePatch, ...]
    delayed: Mapping[str, str] = field(default_factory=dict)
    """Why others wait."""
    refused: tuple[WriteFailure, ...] = ()
    """What the API server said of those that wait because it refused them."""


class _Pause(NamedTuple):
    """``seconds`` long, until ``end``; ``failure``: why, None where it was not even tried."""

    seconds: float
    end: float
    failure: WriteFailure | None


class Pace:
    """What is left of the bound, and the nodes whose writes were refused. ``now`` is in seconds of
    a clock that never steps.
    """

    def __init__(self) -> None:
        self._left: float | None = None
        self._at = 0.0
        self._pauses: dict[str, _Pause] = {}

    def choose(self, decision: Decision, now: float) -> Chosen:
        """A mark of a hot node never waits for the bound, but counts: what is sent beyond it the
        others make up for. They come in this order: what else concerns hot marks, releases of early
        marks, early marks, the hottest first.
        """
        per_minute = decision.rule_set.guard.max_writes_per_minute
        due = {patch.node for patch in decision.patches}
        self._pauses = {name: pause for name, pause in self._pauses.items() if name in due}
        pausing = {name: pause for name, pause in self._pauses.items() if now < pause.end}
        ready = [patch for patch in decision.patches if patch.node not in pausing]
        urgent = [patch for patch in ready if _is_urgent(patch)]
        others = [patch for patch in ready if not _is_urgent(patch)]
        burst = max(1.0, per_minute * BURST / 60)
        left = float(per_minute)  # at the start: what a single pass would write
        if self._left is not None:
            left = min(burst, self._left + (now - self._at) * per_minute / 60)
        left -= len(urgent)
        room = max(0, int(left))
        if len(others) > room:
            severity = decision.evaluation.verdicts.severity
            places = decision.inventory.index.roster.places
            others.sort(
                key=lambda patch: (
                    *(patch.early, patch.action is not Action.RELEASE),
                    -severity.item(places[patch.node]),
                )
            )
        self._left, self._at = left - len(others[:room]), now
        why = f"not written yet: guard.max_writes_per_minute is {per_minute}"
        return Chosen(
            patches=(*urgent, *others[:room]),
            delayed={patch.node: why for patch in others[room:]},
            refused=tuple(replace(p.failure, again=True) for p in pausing.values() if p.failure),
        )

    def refused(
        self, failures: Iterable[WriteFailure], untried: Iterable[NodePatch], now: float
    ) -> None:
        """Of what was chosen at ``now``, this was refused, and that was not tried for it."""
        found: dict[str, WriteFailure | None] = {patch.node: None for patch in untried}
        found |= {failure.node: failure for failure in failures}
        for name, failure in found.items():
            before = self._pauses.get(name)
            seconds = FIRST_PAUSE if before is None else min(2 * before.seconds, LONGEST_PAUSE)
            self._pauses[name] = _Pause(seconds, now + seconds, failure)


def _is_urgent(patch: NodePatch) -> bool:
    """Whether it puts the mark on a node that is hot and does not carry it."""
    return not (patch.early or patch.restates or patch.action is Action.RELEASE)
