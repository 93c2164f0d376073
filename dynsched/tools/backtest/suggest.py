"""Other thresholds: each rule replayed alone under some 36 settings, and one of them recommended.

Percentiles of a week mislead: load is autocorrelated, and 5 % of the time may be one long evening
or five hundred flickers. So settings are compared by what they do: episodes (marks that do not
follow one another within ten minutes), flaps, writes, time at the cap, and how long before a node
is full they mark it. What the other rules do, early marks among them, is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from dynsched.engine.columns import Floats, Ints
from dynsched.engine.loads import full_at
from dynsched.engine.transitions import Setting
from dynsched.rules.rule_set import FileRule, RuleSet
from dynsched.tools.backtest.engine import Engine
from dynsched.tools.backtest.fetching import chunks
from dynsched.tools.backtest.incidents import Incident
from dynsched.tools.backtest.pasting import as_yaml
from dynsched.tools.backtest.replaying import Scene, columns_of
from dynsched.tools.backtest.tallies import DAY, Runs, RunsInParts, runs_of
from dynsched.tools.backtest.weighing import (
    FEWEST,
    Candidate,
    Outcome,
    frontier,
    in_figures,
    leads,
    recommend,
)
from dynsched.tools.backtest.world import World
from dynsched.util.formatting import format_threshold

Json = dict[str, Any]

LEVELS: Final = 12
FORS: Final = 3
FULL: Final = 95.0
"""Points of load at which a node counts as full: what a mark should come before."""
FULL_FALLING: Final = 90.0
"""The same for values that fall with load: at 0.44 of the threshold."""
_LOWEST, _HIGHEST = 40.0, 92.0
_LOWEST_AT_MOST: Final = 75.0
_BAND: Final = 5.0
"""Points between threshold and clear_threshold, where the rule has no dead band of its own."""
_LANES: Final = 40_000
"""Nodes times settings that are replayed at a time."""


def suggest(
    rule_set: RuleSet,
    scene: Scene,
    world: World,
    incidents: Sequence[Incident],
    told: Callable[[int, int], None],
) -> Json:
    """The JSON of it (docs/backtest.md)."""
    rules = [
        rule
        for rule in rule_set.file_rules
        if rule.source == "prometheus" and world.eligible.any() and len(world.nodes)
    ]
    found = []
    for number, rule in enumerate(rules):
        found.append(_of_rule(rule, rule_set, scene, world, incidents))
        told(number + 1, len(rules))
    texts = [one["yaml"] for one in found if one["yaml"]]
    return {"rules": found, "yaml": "rules:\n" + "".join(texts) if texts else None}


def _of_rule(
    rule: FileRule,
    rule_set: RuleSet,
    scene: Scene,
    world: World,
    incidents: Sequence[Incident],
) -> Json:
    sweep = _Sweep(rule, rule_set, scene, world, incidents)
    if sweep.median is None:
        return {
            "rule": rule.name,
            "points": [],
            "recommended": None,
            "reason": "Not enough data.",
            "full_at_value": None,
            "times_full": 0,
            "events": [],
            "yaml": None,
        }
    outcomes = sweep.play(candidates(rule, sweep.median))
    best, reason = recommend(
        outcomes, Candidate(rule.threshold, rule.clear_threshold, rule.hold_duration)
    )
    if len(best.leads) >= FEWEST:
        best, reason = sweep.with_best_band(best, reason)
        outcomes = [*(one for one in outcomes if one.setting != best.setting), best]
    front = frontier(outcomes)
    points = [
        _point(one, on_frontier=any(one is other for other in front), recommended=one is best)
        for one in sorted(
            outcomes, key=lambda one: (one.setting.threshold, one.setting.hold_duration)
        )
    ]
    return {
        "rule": rule.name,
        "points": points,
        "recommended": next(point for point in points if point["recommended"]),
        "reason": reason + in_figures(best),
        "full_at_value": sweep.full,
        "times_full": len(best.leads),
        "events": _events(incidents, best),
        "yaml": as_yaml(
            rule, best.setting.threshold, best.setting.clear_threshold, best.setting.hold_duration
        ),
    }


class _Sweep:
    """Replays one rule alone under several settings."""

    def __init__(
        self,
        rule: FileRule,
        rule_set: RuleSet,
        scene: Scene,
        world: World,
        incidents: Sequence[Incident],
    ) -> None:
        rule = rule.model_copy(update={"shadow": False})
        self._rule = rule
        self._rule_set = rule_set.model_copy(update={"file_rules": (rule,)})
        self._scene = scene
        self._world = world
        self._chunks = list(chunks(scene.window, len(world.nodes), 1))
        self._incidents = [one for one in incidents if one.lane is not None]
        self.full = value_at(rule, FULL if rule.rises else FULL_FALLING)
        self.median, self._full_runs = self._look()

    def _columns(self, first: int, last: int) -> Floats | None:
        found = columns_of(self._rule_set, self._scene, self._world, first, last)
        return found.get(self._rule.name)

    def _look(self) -> tuple[float | None, tuple[Ints, Ints]]:
        """The median value of eligible nodes; where and when a node became full."""
        count, nodes = self._scene.window.count, len(self._world.nodes)
        full = np.zeros((count, nodes), np.bool_)
        some = []
        for first, last in self._chunks:
            values = self._columns(first, last)
            if values is None:
                return None, (np.empty(0, np.int64), np.empty(0, np.int64))
            eligible = values[:, self._world.eligible]
            some.append(eligible[:: max(1, eligible.size // 20_000)].ravel())
            at = np.greater_equal if self._rule.rises else np.less_equal
            full[first:last] = at(values, self.full) & self._world.eligible
        values = np.concatenate(some)
        values = values[~np.isnan(values)]
        found = runs_of(full)
        begins = ~found.flaps(self._scene.window.step)
        median = float(np.median(values)) if len(values) else None
        return median, (found.lane[begins], found.begun[begins])

    def play(self, settings: Sequence[Candidate]) -> list[Outcome]:
        """What each does, in the order given."""
        batch = max(1, _LANES // len(self._world.nodes))
        found: list[Outcome] = []
        for first in range(0, len(settings), batch):
            found += self._batch(settings[first : first + batch])
        return found

    def _batch(self, settings: Sequence[Candidate]) -> list[Outcome]:
        nodes, window = len(self._world.nodes), self._scene.window
        lanes = [
            np.repeat([getattr(one, name) for one in settings], nodes).astype(np.float64)
            for name in ("threshold", "clear_threshold", "hold_duration")
        ]
        setting = replace(
            Setting.of(self._rule, self._rule_set),
            threshold=lanes[0],
            clear_threshold=lanes[1],
            hold_duration=lanes[2],
        )
        engine = Engine(
            self._rule_set,
            self._world,
            rules=[self._rule],
            settings={self._rule.name: setting},
            groups=len(settings),
        )
        marks = RunsInParts(nodes * len(settings), window.count)
        pools = len(self._world.pools)
        at_cap = np.zeros(len(settings))
        counted = moments = 0
        for first, last in chunks(window, nodes * len(settings), 1):
            columns = self._columns(first, last)
            times = window.times(first, last)
            played = engine.play(times, {} if columns is None else {self._rule.name: columns})
            marks.add(played.marked)
            short = played.withheld.reshape(last - first, len(settings), pools)
            at_cap += short.any(axis=2).sum(axis=0)
            there = self._world.present(times) & self._world.eligible
            counted += int(there.sum())
            moments += int(there.any(axis=1).sum())
        runs = marks.runs()
        return [
            self._outcome(
                one,
                runs.between(nodes * n, nodes * (n + 1)),
                at_cap=at_cap[n],
                counted=counted,
                moments=max(1, moments),
            )
            for n, one in enumerate(settings)
        ]

    def _outcome(
        self, setting: Candidate, found: Runs, *, at_cap: float, counted: int, moments: int
    ) -> Outcome:
        window = self._scene.window
        days = moments * window.step / DAY
        events = (
            np.array([one.lane for one in self._incidents], np.int64),
            np.array([window.index(one.at) for one in self._incidents], np.int64),
        )
        return Outcome(
            setting=setting,
            marks=len(found),
            flaps=int(found.flaps(window.step).sum()),
            node_time=float((found.ended - found.begun).sum() / counted) if counted else 0.0,
            # A mark that is there at the end was not released.
            writes_per_day=(2 * len(found) - int((found.ended == window.count).sum())) / days,
            time_at_cap=float(at_cap / moments),
            leads=leads(found, *self._full_runs, window.count) * window.step,
            event_leads=leads(found, *events, window.count) * window.step,
        )

    def with_best_band(self, best: Outcome, reason: str) -> tuple[Outcome, str]:
        """The narrowest dead band that has hardly more flaps than the widest."""
        setting = best.setting
        unit = full_at(self._rule) / 100 if self._rule.rises else abs(setting.threshold) / 20
        sign = -1 if self._rule.rises else 1
        bands = [
            replace(setting, clear_threshold=round(setting.threshold + sign * width * unit, 6))
            for width in (0, _BAND, 2 * _BAND)
        ]
        tried = self.play(bands)
        fewest = min(one.flaps for one in tried)
        chosen = next(one for one in tried if one.flaps <= max(fewest * 1.2, fewest + 1))
        told = ", ".join(
            f"{format_threshold(one.setting.clear_threshold)}: {one.flaps}" for one in tried
        )
        return chosen, f"{reason} Flaps by clear_threshold: {told}."


def candidates(rule: FileRule, median: float) -> list[Candidate]:
    """LEVELS thresholds by FORS durations, the rule's own among them."""
    own = rule.threshold
    typical = load_of(rule, median)
    lowest = min(max(typical, _LOWEST), _LOWEST_AT_MOST)
    levels = [
        _rounded(rule, value_at(rule, load))
        for load in np.linspace(lowest, _HIGHEST, LEVELS).tolist()
    ]
    nearest = min(range(LEVELS), key=lambda number: abs(levels[number] - own))
    levels[nearest] = own
    band = abs(rule.threshold - rule.clear_threshold)
    if not band:
        band = _BAND * full_at(rule) / 100 if rule.rises else abs(own) / 4
    sign = -1 if rule.rises else 1
    holds = sorted({0.0, rule.hold_duration or 60.0, 300.0})
    if len(holds) < FORS:
        holds.append(900.0)
    made = []
    for level in dict.fromkeys(levels):
        clear = rule.clear_threshold if level == own else round(level + sign * band, 6)
        made += [Candidate(level, clear, hold) for hold in holds]
    return made


def load_of(rule: FileRule, value: float) -> float:
    """As `core.loads.rule_load`, without its limits."""
    if rule.rises:
        return 100 * value / full_at(rule)
    zero = min(0.0, rule.threshold)
    return 100 / (1 + max(0.0, value - zero) / ((rule.threshold - zero) * 4 or 1.0))


def value_at(rule: FileRule, load: float) -> float:
    """The value that is so many points of load."""
    if rule.rises:
        return load * full_at(rule) / 100
    zero = min(0.0, rule.threshold)
    return zero + (100 / load - 1) * ((rule.threshold - zero) * 4 or 1.0)


def _rounded(rule: FileRule, value: float) -> float:
    """As a person would write it."""
    grain = full_at(rule) / 100 if rule.rises else 10 ** (np.floor(np.log10(abs(value) or 1)) - 1)
    return float(round(round(value / grain) * grain, 6))


def _point(one: Outcome, *, on_frontier: bool, recommended: bool) -> Json:
    setting = one.setting
    return {
        "threshold": setting.threshold,
        "clear_threshold": setting.clear_threshold,
        "for_seconds": setting.hold_duration,
        "marks": one.marks,
        "episodes": one.episodes,
        "flaps": one.flaps,
        "node_time_marked": round(one.node_time, 6),
        "writes_per_day": round(one.writes_per_day, 2),
        "time_at_cap": round(one.time_at_cap, 6),
        "warned": round(float((one.leads > 0).mean()), 4) if len(one.leads) else None,
        "early_warning_seconds": round(one.warning, 1) if len(one.leads) else None,
        "on_frontier": on_frontier,
        "recommended": recommended,
    }


def _events(incidents: Sequence[Incident], best: Outcome) -> list[Json]:
    """How long before each kind of incident the mark would have come."""
    kinds = [one.kind for one in incidents if one.lane is not None]
    found = []
    for kind in dict.fromkeys(kinds):
        mine = best.event_leads[np.array([other == kind for other in kinds])]
        before = mine[mine > 0]
        found.append(
            {
                "event": kind,
                "count": len(mine),
                "marked_before": len(before),
                "median_lead_seconds": float(np.median(before)) if len(before) else None,
            }
        )
    return found
