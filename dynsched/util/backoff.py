"""How long to wait until something that failed is tried again."""

from __future__ import annotations

import random


def jittered(seconds: float) -> float:
    """Between half of ``seconds`` and all of it, so that many clients do not return as one."""
    return seconds * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, guards nothing


class Backoff:
    """Pauses that double from ``first`` up to ``most`` seconds, each jittered. ``seconds`` is the
    next one before that.
    """

    def __init__(self, first: float, most: float) -> None:
        self._first = first
        self._most = most
        self.seconds = first

    def next(self) -> float:
        seconds, self.seconds = self.seconds, min(2 * self.seconds, self._most)
        return jittered(seconds)

    def reset(self) -> None:
        self.seconds = self._first
