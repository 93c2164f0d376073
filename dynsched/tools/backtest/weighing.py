"""Settings that were tried, weighed against one another."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from dynsched.engine.columns import Floats, Ints
from dynsched.tools.backtest.tallies import Runs
from dynsched.util.durations import format_duration

_LEAD_COUNTED: Final = 900.0
"""Seconds: to be warned earlier than this is worth no more."""
_AT_CAP: Final = 0.05
_FLAPS: Final = 0.1
_NEARLY: Final = 0.9
FEWEST: Final = 3
"""Times that a node became full, from which on settings are compared by them."""


@dataclass(frozen=True, slots=True)
class Candidate:
    threshold: float
    clear_threshold: float
    hold_duration: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a setting does. ``leads``: seconds, one for each time that a node became full; 0 where
    it was not marked before.
    """

    setting: Candidate
    marks: int
    flaps: int
    node_time: float
    writes_per_day: float
    time_at_cap: float
    leads: Floats
    event_leads: Floats

    @property
    def episodes(self) -> int:
        """Marks that do not follow another one within ten minutes."""
        return self.marks - self.flaps

    @property
    def warning(self) -> float:
        """The mean of ``leads``, of each as much as counts; seconds."""
        return float(np.minimum(self.leads, _LEAD_COUNTED).mean()) if len(self.leads) else 0.0

    def as_json(self) -> dict[str, Any]:
        return {
            "threshold": self.setting.threshold,
            "clear_threshold": self.setting.clear_threshold,
            "for_seconds": self.setting.hold_duration,
            "marks": self.marks,
            "episodes": self.episodes,
            "flaps": self.flaps,
            "node_time_marked": round(self.node_time, 6),
            "writes_per_day": round(self.writes_per_day, 2),
            "time_at_cap": round(self.time_at_cap, 6),
            "warned": round(float((self.leads > 0).mean()), 4) if len(self.leads) else None,
            "early_warning_seconds": round(self.warning, 1) if len(self.leads) else None,
        }


def leads(runs: Runs, lane: Ints, row: Ints, count: int) -> Floats:
    """How many steps before ``row`` each lane had been marked without a break; 0: it was not."""
    if not len(runs) or not len(lane):
        return np.zeros(len(lane))
    keys = runs.lane * (count + 1) + runs.begun
    place = np.searchsorted(keys, lane * (count + 1) + row - 1, side="right") - 1
    at = np.maximum(place, 0)
    held = (place >= 0) & (runs.lane[at] == lane) & (runs.ended[at] >= row)
    return np.where(held, row - runs.begun[at], 0).astype(np.float64)


def frontier(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """Those to which no other is better in one thing and no worse in any."""
    told = [
        (one, (-one.warning, one.flaps, one.writes_per_day, one.time_at_cap)) for one in outcomes
    ]
    return [
        one
        for one, costs in told
        if not any(
            other != costs and all(a <= b for a, b in zip(other, costs, strict=True))
            for _, other in told
        )
    ]


def recommend(outcomes: Sequence[Outcome], own: Candidate) -> tuple[Outcome, str]:
    """One of them, and the reason in words."""
    mine = min(
        outcomes,
        key=lambda one: (
            abs(one.setting.threshold - own.threshold),
            abs(one.setting.hold_duration - own.hold_duration),
        ),
    )
    times = len(mine.leads)
    if times < FEWEST:
        told = "No node became full in this time" if not times else "Nodes became full too seldom"
        return mine, f"{told} ({times} times): there is nothing to go by, and nothing to change."
    limits = "at most one flap for ten episodes and 5 % of the time at the cap"
    calm = [
        one
        for one in outcomes
        if one.flaps <= max(1, _FLAPS * one.episodes) and one.time_at_cap <= _AT_CAP
    ]
    if not calm:
        best = min(outcomes, key=lambda one: (one.flaps + one.time_at_cap * 100, -one.warning))
        return best, f"No setting has {limits}; this one comes nearest."
    most = max(one.warning for one in calm)
    if most <= 0:
        return mine, f"No setting with {limits} marks a node before it is full: nothing to change."
    enough = [one for one in calm if one.warning >= _NEARLY * most]
    best = min(enough, key=lambda one: (one.writes_per_day, one.node_time))
    return best, f"Of the settings with {limits}, none warns much earlier, and this writes least."


def in_figures(best: Outcome) -> str:
    """How early it warns, as a sentence; empty where there was nothing to warn of."""
    warned = best.leads[best.leads > 0]
    if not len(best.leads):
        return ""
    told = f" It marks {len(warned)} of {len(best.leads)} times before a node is full"
    if not len(warned):
        return f"{told}."
    lead = format_duration(round(float(np.median(warned))))
    return f"{told}, by {lead} in the median."
