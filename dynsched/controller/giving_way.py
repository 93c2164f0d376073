"""When a leader that sees nothing lets another replica lead."""

from __future__ import annotations

from typing import Final

FIRST_WAIT: Final = 60.0
LONGEST_WAIT: Final = 3600.0
"""Seconds."""


class GivingWay:
    """When a leader that can ask no rule gives way to another replica, which perhaps can: after a
    minute, then each time twice as long as before, up to an hour, so that replicas that are all cut
    off do not take turns for ever.
    """

    def __init__(self) -> None:
        self._since: float | None = None
        self._seconds = FIRST_WAIT

    def is_over(self, now: float, *, sees: bool, leads: bool) -> bool:
        """Whether to give way now. ``sees``: a rule was answered; ``now`` in seconds of a clock
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
