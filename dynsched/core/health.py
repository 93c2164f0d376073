"""Whether the last tick can be trusted; what `/status` says."""

from __future__ import annotations

from typing import Final

from dynsched.core.durations import format_duration
from dynsched.core.model import Snapshot

OVERDUE_INTERVALS: Final = 3
"""After so many intervals without a finished tick, the loop counts as stuck."""
OVERDUE_AT_LEAST: Final = 30.0
"""Seconds; below this no loop is stuck, however short its interval: a query may take its time."""


def why_unhealthy(snapshot: Snapshot | None, age: float, interval: float) -> str | None:
    """One line with the reason why `/status` is not ok; None when it is.

    ``age`` is of the Snapshot, in seconds, by a clock that is never set.
    """
    if snapshot is None:
        return "no tick has finished yet"
    if age > max(OVERDUE_AT_LEAST, OVERDUE_INTERVALS * interval):
        return f"the last tick finished {format_duration(round(age))} ago"
    return snapshot.error
