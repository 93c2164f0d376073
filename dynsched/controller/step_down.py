"""When a leader that can query no rule steps down."""

from __future__ import annotations

from typing import Final

FIRST_WAIT: Final = 60.0
LONGEST_WAIT: Final = 3600.0
"""Seconds."""


class StepDownTimer:
    """A leader that can query no rule steps down, because another replica may be able to: after a
    minute, then after twice the previous time, up to an hour. So replicas that are all cut off do
    not take turns forever.
    """

    def __init__(self) -> None:
        self._since: float | None = None
        self._seconds = FIRST_WAIT

    def is_due(self, now: float, *, sees: bool, leads: bool) -> bool:
        """Whether to step down now. ``sees``: a rule was answered; ``now`` in seconds of a clock
        that never steps.
        """
        if sees:
            self._since, self._seconds = None, FIRST_WAIT
            return False
        if self._since is None:
            self._since = now
        if not leads or now - self._since < self._seconds:
            return False
        self._since, self._seconds = now, min(2 * self._seconds, LONGEST_WAIT)
        return True
