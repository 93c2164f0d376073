"""A bound on how often something is done."""

from __future__ import annotations


class TokenBucket:
    """Holds at most ``burst`` tokens, and full at first; what is done takes one. It may be
    overdrawn. ``now`` is in seconds of a clock that never steps.
    """

    def __init__(self, burst: float) -> None:
        self.tokens = burst
        self._at: float | None = None

    def refill(self, rate: float, burst: float, now: float) -> None:
        """Add ``rate`` tokens for each second since the last call, up to ``burst`` in all."""
        if self._at is not None:
            self.tokens = min(burst, self.tokens + (now - self._at) * rate)
        self._at = now
