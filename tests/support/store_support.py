"""A TickStore with a clock that the test advances."""

from typing import Any

from dynsched.web.ticks import TickStore


class Clock:
    """A clock in seconds, set by the test."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def make_store(clock: Clock, **more: Any) -> TickStore:
    """A TickStore with an interval of 10 s."""
    return TickStore(
        clock=clock,
        interval=10.0,
        source="http://prometheus:9090",
        synced=lambda: True,
        **more,
    )
