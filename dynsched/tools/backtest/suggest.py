"""Other thresholds: each rule replayed alone under some 36 settings, and one of them recommended.

Percentiles of a week mislead: load is autocorrelated, and 5 % of the time may be one long evening
or five hundred flickers. So settings are compared by what they do: episodes (marks that do not
follow one another within ten minutes), flaps, writes, time at the cap, and how long before a node
is full they mark it. What the other rules do, early marks among them, is left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, astuple, replace
from textwrap import indent
from typing import Any, Final

import numpy as np
import yaml

from dynsched.engine.columns import Floats, Ints
from dynsched.engine.loads import FALLING_SCALE, full_at, rule_load
from dynsched.engine.transitions import Setting
from dynsched.rules.rule_set import FileRule, RuleSet
from dynsched.tools.backtest.engine import Engine
from dynsched.tools.backtest.fetching import Query, chunks
from dynsched.tools.backtest.incidents import Incident
from dynsched.tools.backtest.replaying import Scene, columns_of
from dynsched.tools.backtest.tallies import DAY, RunsInParts, runs_of
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
from dynsched.util.durations import format_duration
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
    rules = [rule for rule in rule_set.file_rules if Query.of(rule) and world.eligible.any()]
    found = []
    for number, rule in enumerate(rules):
        found.append(_Sweep(rule, rule_set, scene, world, incidents).report())
        told(number + 1, len(rules))
    texts = [one["yaml"] for one in found if one["yaml"]]
    return {"rules": found, "yaml": "rules:\n" + "".join(texts) if texts else None}


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
        self._own = rule
        rule = rule.model_copy(update={"shadow": False})
        self._rule = rule
        self._rule_set = rule_set.model_copy(update={"file_rules": (rule,)})
        self._scene = scene
        self._world = world
        self._incidents = incidents
        self._events = (
            np.array([one.place for one in incidents], np.int64),
            np.array([scene.window.index(one.at) for one in incidents], np.int64),
        )
        self._full = value_at(rule, FULL if rule.rises else FULL_FALLING)
        self._median, self._full_runs = self._look()

    def report(self) -> Json:
        """The JSON of this rule."""
        own, median = self._own, self._median
        if median is None:
            names = ("recommended", "full_at_value", "yaml")
            told = {"rule": own.name, "points": [], "reason": "Not enough data.", "events": []}
            return {**told, **dict.fromkeys(names), "times_full": 0}
        outcomes = self._play(candidates(own, median))
        setting = Candidate(own.threshold, own.clear_threshold, own.hold_duration)
        best, reason = recommend(outcomes, setting)
        if len(best.leads) >= FEWEST:
            best, reason = self._with_best_band(best, reason)
            outcomes = [*(one for one in outcomes if one.setting != best.setting), best]
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
            "reason": reason + in_figures(best),
            "full_at_value": self._full,
            "times_full": len(best.leads),
            "events": _events(self._incidents, best),
            "yaml": as_yaml(own, best.setting),
        }

    def _columns(self, first: int, last: int) -> Mapping[str, Floats]:
        return columns_of(self._rule_set, self._scene, self._world, first, last)

    def _look(self) -> tuple[float | None, tuple[Ints, Ints]]:
        """The median value of eligible nodes; where and when a node became full."""
        window, nodes = self._scene.window, len(self._world.nodes)
        full = np.zeros((window.count, nodes), np.bool_)
        some = []
        for first, last in chunks(window, nodes, 1):
            values = self._columns(first, last)[self._rule.name]
            eligible = values[:, self._world.eligible]
            some.append(eligible[:: max(1, eligible.size // 20_000)].ravel())
            at = np.greater_equal if self._rule.rises else np.less_equal
            full[first:last] = at(values, self._full) & self._world.eligible
        values = np.concatenate(some)
        values = values[~np.isnan(values)]
        found = runs_of(full)
        begins = ~found.flaps(window.step)
        median = float(np.median(values)) if len(values) else None
        return median, (found.lane[begins], found.begun[begins])

    def _play(self, settings: Sequence[Candidate]) -> list[Outcome]:
        """What each does, in the order given."""
        batch = max(1, _LANES // len(self._world.nodes))
        parts = [settings[first : first + batch] for first in range(0, len(settings), batch)]
        return [outcome for part in parts for outcome in self._batch(part)]

    def _batch(self, settings: Sequence[Candidate]) -> Iterable[Outcome]:
        nodes, window = len(self._world.nodes), self._scene.window
        lanes = [np.repeat(values, nodes) for values in zip(*map(astuple, settings), strict=True)]
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
        at_cap = np.zeros(len(settings))
        counted = moments = 0
        for first, last in chunks(window, nodes * len(settings), 1):
            times = window.times(first, last)
            played = engine.play(times, self._columns(first, last))
            marks.add(played.marked)
            short = played.withheld.reshape(last - first, len(settings), -1)
            at_cap += short.any(axis=2).sum(axis=0)
            there = self._world.present(times) & self._world.eligible
            counted += int(there.sum())
            moments += int(there.any(axis=1).sum())
        moments = max(1, moments)
        runs = marks.runs()
        for number, one in enumerate(settings):
            found = runs.between(nodes * number, nodes * (number + 1))
            # A mark that is there at the end was not released.
            writes = 2 * len(found) - int((found.ended == window.count).sum())
            yield Outcome(
                setting=one,
                marks=len(found),
                flaps=int(found.flaps(window.step).sum()),
                node_time=float((found.ended - found.begun).sum() / max(1, counted)),
                writes_per_day=writes / (moments * window.step / DAY),
                time_at_cap=float(at_cap[number] / moments),
                leads=leads(found, *self._full_runs, window.count) * window.step,
                event_leads=leads(found, *self._events, window.count) * window.step,
            )

    def _with_best_band(self, best: Outcome, reason: str) -> tuple[Outcome, str]:
        """The narrowest dead band that has hardly more flaps than the widest."""
        setting = best.setting
        unit = full_at(self._rule) / 100 if self._rule.rises else abs(setting.threshold) / 20
        sign = -1 if self._rule.rises else 1
        bands = [
            replace(setting, clear_threshold=round(setting.threshold + sign * width * unit, 6))
            for width in (0, _BAND, 2 * _BAND)
        ]
        tried = self._play(bands)
        fewest = min(one.flaps for one in tried)
        chosen = next(one for one in tried if one.flaps <= max(fewest * 1.2, fewest + 1))
        told = ", ".join(
            f"{format_threshold(one.setting.clear_threshold)}: {one.flaps}" for one in tried
        )
        return chosen, f"{reason} Flaps by clear_threshold: {told}."


def candidates(rule: FileRule, median: float) -> list[Candidate]:
    """LEVELS thresholds by FORS durations, the rule's own among them."""
    own = rule.threshold
    lowest = min(max(rule_load(rule, median) or 0.0, _LOWEST), _LOWEST_AT_MOST)
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


def _events(incidents: Sequence[Incident], best: Outcome) -> list[Json]:
    """How long before each kind of incident the mark would have come."""
    kinds = np.array([one.kind for one in incidents])
    found = []
    for kind in dict.fromkeys(kinds.tolist()):
        mine = best.event_leads[kinds == kind]
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


def as_yaml(rule: FileRule, setting: Candidate) -> str:
    """The rule under a setting, as an entry of ``rules``; what it does not set is not there."""
    rule = rule.model_copy(update=asdict(setting))
    told = rule.model_dump(by_alias=True, exclude_unset=True, exclude_none=True)
    for name in ("for", "keep_firing_for", "stale_after", "lag"):
        if name in told:
            told[name] = format_duration(told[name])
    if "selector" in told:
        told["selector"] = str(rule.selector)
    text = yaml.safe_dump([told], sort_keys=False, allow_unicode=True, width=1000)
    # Whole numbers as a person writes them.
    return indent(re.sub(r"(?m)(: -?\d+)\.0$", r"\1", text), "  ")
