"""Other thresholds: each rule replayed alone under some 36 settings, and one of them recommended.

Percentiles of a week mislead: load is autocorrelated, and 5 % of the time may be one long evening
or five hundred flickers. So settings are compared by what they do (docs/backtest.md).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from operator import le
from textwrap import indent
from typing import Any, Final, NamedTuple

import numpy as np
import yaml

from dynsched.engine.columns import Floats, Ints
from dynsched.engine.limits import GRAIN, Limits
from dynsched.engine.loads import FALLING_SCALE, full_at, rule_load
from dynsched.engine.wording import counted
from dynsched.rules.rule_set import FileRule, RuleSet
from dynsched.tools.backtest.engine import Alerts, Record, Scene, columns_of
from dynsched.tools.backtest.fetching import Query, chunks
from dynsched.tools.backtest.kube_state import Incident
from dynsched.tools.backtest.summary import DAY, ENOUGH, Runs, runs_of

Json = dict[str, Any]

LEVELS: Final = 12
FORS: Final = 3
FULL: Final = 95.0  # points of load at which a node counts as full: what a mark should come before
FULL_FALLING: Final = 90.0  # the same for values that fall with load: at 0.44 of the threshold
_LOWEST, _HIGHEST = 40.0, 92.0
_LOWEST_AT_MOST: Final = 75.0
_BAND: Final = 5.0
"""Points between threshold and clear_threshold, where the rule has no dead band of its own."""
_CELLS: Final = 64_000_000
"""Steps times nodes times settings that are replayed at a time, a byte each."""
_LEAD_COUNTED: Final = 900.0  # seconds: to be warned earlier than this is worth no more
_AT_CAP: Final = 0.05
_FLAPS: Final = 0.1
_NEARLY: Final = 0.9
FEWEST: Final = 3  # times that a node became full, from which on settings are compared by them


class Candidate(NamedTuple):
    threshold: float
    clear_threshold: float
    hold_duration: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a setting does. ``leads``: seconds, one for each time that a node became full; 0 where
    it was not marked before. ``event_leads``: the same of incidents.
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
        return self.marks - self.flaps

    @property
    def warning(self) -> float:
        """The mean of ``leads``, of each as much as counts; seconds."""
        return float(np.minimum(self.leads, _LEAD_COUNTED).mean()) if len(self.leads) else 0.0

    def as_json(self) -> Json:
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


def suggest(rule_set: RuleSet, scene: Scene, record: Record, incidents: Sequence[Incident]) -> Json:
    rules = [rule for rule in rule_set.file_rules if Query.of(rule) and record.counted.any()]
    alone = [rule_set.model_copy(update={"file_rules": (rule,)}) for rule in rules]
    found = [_Sweep(each, scene, record, incidents).report() for each in alone]
    texts = [one["yaml"] for one in found if one["yaml"]]
    return {"rules": found, "yaml": "rules:\n" + "".join(texts) if texts else None}


class _Sweep:
    """Replays the only rule of a rule set under several settings."""

    def __init__(
        self, rule_set: RuleSet, scene: Scene, record: Record, incidents: Sequence[Incident]
    ) -> None:
        (self._rule,), self._rule_set = rule_set.file_rules, rule_set
        self._scene, self._record, self._incidents = scene, record, incidents
        at = [(one.node, scene.window.index(one.at)) for one in incidents]
        self._events = np.array(at, np.int64).reshape(-1, 2).T
        self._full = value_at(self._rule, FULL if self._rule.rises else FULL_FALLING)
        self._median, self._full_runs = self._look()

    def report(self) -> Json:
        own = self._rule
        if self._median is None:
            names = ("recommended", "full_at_value", "yaml")
            told = {"rule": own.name, "points": [], "reason": "Not enough data.", "events": []}
            return {**told, **dict.fromkeys(names), "times_full": 0}
        settings = candidates(own, self._median)
        batch = max(1, _CELLS // self._record.present.size)
        parts = [settings[first : first + batch] for first in range(0, len(settings), batch)]
        outcomes = [outcome for part in parts for outcome in self._batch(part)]
        setting = Candidate(own.threshold, own.clear_threshold, own.hold_duration)
        best, reason = recommend(outcomes, setting)
        outcomes.sort(key=lambda one: (one.setting.threshold, one.setting.hold_duration))
        front = set(map(id, frontier(outcomes)))
        points = [
            {**one.as_json(), "on_frontier": id(one) in front, "recommended": one is best}
            for one in outcomes
        ]
        return {
            "rule": own.name,
            "points": points,
            "recommended": next(point for point in points if point["recommended"]),
            "reason": reason,
            "full_at_value": self._full,
            "times_full": len(best.leads),
            "events": _events(self._incidents, best),
            "yaml": as_yaml(own, best.setting),
        }

    def _values(self, lanes: int) -> Iterator[tuple[int, int, Floats]]:
        """Chunk by chunk: the first step, the one after the last, and the values between them."""
        world, window = self._record.world, self._scene.window
        for first, last in chunks(window, lanes, 1):
            columns = columns_of(self._rule_set, self._scene, world, first, last)
            present = self._record.present[first:last]
            yield first, last, np.where(present, columns[self._rule.name], np.nan)

    def _look(self) -> tuple[float | None, tuple[Ints, Ints]]:
        """The median value of eligible nodes; where and when a node became full."""
        eligible = self._record.world.eligible
        full = np.zeros(self._record.present.shape, np.bool_)
        at = np.greater_equal if self._rule.rises else np.less_equal
        some = []
        for first, last, values in self._values(len(eligible)):
            counted = values[:, eligible]
            some.append(counted[:: max(1, counted.size // 20_000)].ravel())
            full[first:last] = at(values, self._full) & eligible
        known = np.concatenate(some)
        known = known[~np.isnan(known)]
        found = runs_of(full)
        begins = ~found.flaps(self._scene.window.step)
        median = float(np.median(known)) if len(known) and self._record.lasted >= ENOUGH else None
        return median, (found.lane[begins], found.begun[begins])

    def _batch(self, settings: Sequence[Candidate]) -> Iterator[Outcome]:
        count, (steps, nodes) = len(settings), self._record.present.shape
        lanes = [np.repeat(values, nodes) for values in zip(*settings, strict=True)]
        limits = replace(
            Limits.of([self._rule], self._rule_set),
            threshold=lanes[0][None],
            clear_threshold=lanes[1][None],
            hold=lanes[2][None] - GRAIN,
        )
        alerts = Alerts(limits, nodes * count)
        marked = np.zeros((steps, nodes * count), np.bool_)
        for first, last, values in self._values(nodes * count):
            present = self._record.present[first:last]
            alerts.begin([np.tile(values, count)], np.tile(present, count))
            for row, now in enumerate(self._scene.window.times(first, last).tolist()):
                alerts.step(row, now)
                marked[first + row] = alerts.firing[0]
        for number, one in enumerate(settings):
            mine = marked[:, number * nodes : (number + 1) * nodes] & self._record.world.eligible
            yield self._outcome(one, mine)

    def _outcome(self, setting: Candidate, marked: Any) -> Outcome:
        found, record, step = runs_of(marked), self._record, self._scene.window.step
        steps, moments = len(marked), max(1, record.moments)
        over = [
            marked[:, record.world.pool == pool].sum(axis=1) > record.caps[:, pool]
            for pool in range(len(record.world.pools))
        ]
        # A mark that is there at the end was not released.
        writes = 2 * len(found.lane) - int((found.ended == steps).sum())
        return Outcome(
            setting=setting,
            marks=len(found.lane),
            flaps=int(found.flaps(step).sum()),
            node_time=float(marked.sum() / record.counted.sum()),
            writes_per_day=0.0 if record.marks_nothing else writes / (moments * step / DAY),
            time_at_cap=float(np.logical_or.reduce(over).sum() / moments),
            leads=leads(found, *self._full_runs, steps) * step,
            event_leads=leads(found, self._events[0], self._events[1], steps) * step,
        )


def candidates(rule: FileRule, median: float) -> list[Candidate]:
    """LEVELS thresholds by FORS durations, the rule's own among them."""
    own = rule.threshold
    lowest = min(max(rule_load(rule, median) or 0.0, _LOWEST), _LOWEST_AT_MOST)
    loads = np.linspace(lowest, _HIGHEST, LEVELS).tolist()
    levels = [_rounded(rule, value_at(rule, load)) for load in loads]
    levels.remove(min(levels, key=lambda level: abs(level - own)))
    usual = _BAND * full_at(rule) / 100 if rule.rises else abs(own) / 4
    band = abs(rule.threshold - rule.clear_threshold) or usual
    band *= -1 if rule.rises else 1
    holds = sorted({0.0, rule.hold_duration or 60.0, 300.0})
    holds += [900.0] if len(holds) < FORS else []
    clear = {each: round(each + band, 6) for each in levels} | {own: rule.clear_threshold}
    return [Candidate(level, clear[level], hold) for level in clear for hold in holds]


def value_at(rule: FileRule, load: float) -> float:
    """The value that is so many points of load: the inverse of `engine.loads.rule_load`."""
    if rule.rises:
        return load * full_at(rule) / 100
    zero = min(0.0, rule.threshold)
    return zero + (100 / load - 1) * ((rule.threshold - zero) * FALLING_SCALE or 1.0)


def _rounded(rule: FileRule, value: float) -> float:
    """As a person would write it."""
    grain = full_at(rule) / 100 if rule.rises else 10 ** (np.floor(np.log10(abs(value) or 1)) - 1)
    return float(round(round(value / grain) * grain, 6))


def leads(runs: Runs, lane: Ints, row: Ints, count: int) -> Floats:
    """How many steps before ``row`` each lane had been marked without a break; 0: it was not."""
    if not len(runs.lane) or not len(lane):
        return np.zeros(len(lane))
    keys = runs.lane * (count + 1) + runs.begun
    before = np.searchsorted(keys, lane * (count + 1) + row - 1, side="right") - 1
    at = np.maximum(before, 0)
    held = (before >= 0) & (runs.lane[at] == lane) & (runs.ended[at] >= row)
    return np.where(held, row - runs.begun[at], 0).astype(np.float64)


def frontier(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Those to which no other is better in one thing and no worse in any."""
    told = [(-one.warning, one.flaps, one.writes_per_day, one.time_at_cap) for one in outcomes]
    return [
        one
        for one, costs in zip(outcomes, told, strict=True)
        if not any(other != costs and all(map(le, other, costs)) for other in told)
    ]


def recommend(outcomes: Sequence[Outcome], own: Candidate) -> tuple[Outcome, str]:
    mine = min(outcomes, key=lambda one: np.abs(np.subtract(one.setting, own)).tolist())
    times = len(mine.leads)
    if times < FEWEST:
        told = "No node became full in this time" if not times else "Nodes became full too seldom"
        return (
            mine,
            f"{told} ({counted(times, 'time')}): there is nothing to go by, and nothing to change.",
        )
    limits = "at most one flap for ten episodes and 5 % of the time at the cap"
    quiet = [one for one in outcomes if one.flaps <= max(1, _FLAPS * one.episodes)]
    calm = [one for one in quiet if one.time_at_cap <= _AT_CAP]
    if not calm:
        best = min(outcomes, key=lambda one: (one.flaps + one.time_at_cap * 100, -one.warning))
        return best, f"No setting has {limits}; this one comes nearest."
    most = max(one.warning for one in calm)
    if most <= 0:
        return mine, f"No setting with {limits} marks a node before it is full: nothing to change."
    enough = [one for one in calm if one.warning >= _NEARLY * most]
    best = min(enough, key=lambda one: (one.writes_per_day, one.node_time))
    return best, f"Of the settings with {limits}, none warns much earlier, and this writes least."


def _events(incidents: Sequence[Incident], best: Outcome) -> list[Json]:
    """How long before each kind of incident the mark would have come."""
    kinds = np.array([one.kind for one in incidents])
    found = []
    for kind in dict.fromkeys(kinds.tolist()):
        mine = best.event_leads[kinds == kind]
        told = {"event": kind, "count": len(mine), "marked_before": int((mine > 0).sum())}
        median = float(np.median(mine[mine > 0])) if told["marked_before"] else None
        found.append({**told, "median_lead_seconds": median})
    return found


def as_yaml(rule: FileRule, setting: Candidate) -> str:
    """The rule under a setting, as an entry of ``rules``; what it does not set is not there."""
    rule = rule.model_copy(update=setting._asdict())
    told = rule.model_dump(by_alias=True, exclude_unset=True, exclude_none=True)
    text = yaml.safe_dump([told], sort_keys=False, allow_unicode=True, width=1000)
    # Whole numbers as a person writes them.
    return indent(re.sub(r"(?m)(: -?\d+)\.0$", r"\1", text), "  ")
