"""Decides when a leader whose queries all fail steps down."""

from __future__ import annotations

from typing import Final

FIRST_WAIT: Final = 60.0
LONGEST_WAIT: Final = 3600.0
"""Seconds."""


class StepDownTimer:
    """Makes a leader whose queries all fail step down, because another replica may succeed.

    The first wait is a minute. Each further one is twice as long, up to an hour, so that replicas
    that are all cut off do not keep passing the Lease on.
    """

    def __init__(self) -> None:
        self._since: float | None = None
        self._seconds = FIRST_WAIT

    def is_due(self, now: float, *, sees: bool, leads: bool) -> bool:
        """Whether to step down now.

        ``sees``: a query of a marking rule succeeded; ``now``: seconds of a monotonic clock.
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
