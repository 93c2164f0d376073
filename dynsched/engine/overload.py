"""How much of the nodes' time was hot, by day: whether it gets better or worse."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

DAY: Final = 86_400.0
DAYS: Final = 8
"""Days that are kept: today, and the seven before."""
MAX_SECONDS: Final = 600.0
"""Seconds that one tick stands for at most: of a longer pause nothing is known."""


def day_of(at: float) -> int:
    """The number of the day in UTC; ``at`` in Unix seconds."""
    return int(at // DAY)


def name_of(day: int) -> str:
    """As ``2026-11-20``."""
    return datetime.fromtimestamp(day * DAY, UTC).date().isoformat()


class _Seen(NamedTuple):
    """Of one day, as far as the process saw it: node-seconds that were hot, all of them, and how
    many seconds that was.
    """

    hot: float = 0.0
    all: float = 0.0
    seconds: float = 0.0


class _Known(NamedTuple):
    """The share of one day as another source knows it, and of how many seconds of the day."""

    share: float
    seconds: float


class Overload:
    """The share of node-time in which nodes were hot, of each day: by what the process saw since it
    was started, or by what another source knows of the
    day, whichever is of more of it.
    """

    def __init__(self) -> None:
        self._at: float | None = None
        self._seen: dict[int, _Seen] = {}
        self._known: dict[int, _Known] = {}

    def count(self, hot: int, nodes: int, at: float) -> None:
        """Of ``nodes``, ``hot`` have been hot since the last call, until ``at`` (Unix seconds)."""
        seconds = 0.0 if self._at is None else min(max(0.0, at - self._at), MAX_SECONDS)
        self._at = at
        day = day_of(at)
        if nodes and seconds:
            seen = self._seen.get(day, _Seen())
            self._seen[day] = _Seen(
                seen.hot + hot * seconds, seen.all + nodes * seconds, seen.seconds + seconds
            )
        for kept in (self._seen, self._known):
            for old in [old for old in kept if not day - DAYS < old <= day]:
                del kept[old]

    def skip(self, at: float) -> None:
        self._at = at

    def set_known_shares(self, shares: Mapping[int, float], at: float) -> None:
        """Take in what another source knows of each day, as of ``at`` (Unix seconds)."""
        for day, share in shares.items():
            self._known[day] = _Known(share, min(DAY, at - day * DAY))

    def columns(self, at: float) -> dict[str, Any] | None:
        """``days`` as text, the oldest first, and the ``share`` of each; None for one that is not
        known. None in place of both while nothing is known.
        """
        today = day_of(at)
        days = range(today - DAYS + 1, today + 1)
        share = [self._share(day) for day in days]
        known = [number for number, found in enumerate(share) if found is not None]
        if not known:
            return None
        return {"days": [name_of(day) for day in days[known[0] :]], "share": share[known[0] :]}

    def _share(self, day: int) -> float | None:
        seen, known = self._seen.get(day, _Seen()), self._known.get(day)
        if known is not None and known.seconds >= seen.seconds:
            return round(known.share, 5)
        return round(seen.hot / seen.all, 5) if seen.all else None
