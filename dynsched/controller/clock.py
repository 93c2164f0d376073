"""The time of ticks."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

logger = logging.getLogger(__name__)

CLOCK_STEP: Final = 5.0
"""Seconds; less is the clock's ordinary drift against the monotonic one."""


class TickClock:
    """Unix time by the monotonic clock. It follows the wall clock only in `follow`, so it never
    jumps within a tick.
    """

    def __init__(self, wall: Callable[[], float], monotonic: Callable[[], float]) -> None:
        self.wall, self.monotonic = wall, monotonic
        self._offset = wall() - monotonic()

    def now(self) -> float:
        """In Unix seconds."""
        return self.at(self.monotonic())

    def at(self, moment: float) -> float:
        """Unix seconds at ``moment`` of the monotonic clock."""
        return self._offset + moment

    def follow(self) -> float:
        """Follow the wall clock if it was set, or the machine slept. How many seconds the time was
        moved by; 0 if it was not.
        """
        step = self.wall() - self.now()
        if abs(step) < CLOCK_STEP:
            return 0.0
        logger.warning("the clock was set by %+.0f s; alerts continue from where they were", step)
        self._offset += step
        return step
