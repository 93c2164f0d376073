"""Combines the rules of a profile into one load per node, by which pods are placed.

A load is an integer in *tenths of a percent*. FIRING is added if a rule of the profile fires on the
node, so that the node sorts after all others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean, median
from typing import Final, NamedTuple

from dynsched.core.evaluate import Evaluation
from dynsched.core.load.expected import NO_EXPECTATION
from dynsched.core.percent import load_percent
from dynsched.rules.rule_set import Rule, RuleSet
from dynsched.rules.sections import Method, OrderRules, Profile

TENTHS: Final = 10
"""Tenths of a percent in one percent."""
FULL: Final = 100 * TENTHS
FIRING: Final = 10_000
"""Tenths added to the load of a node on which a rule fires. The remainder is the load alone, which
is always less: a rule measures at most MAX_LOAD, and pods add a bounded amount."""


@dataclass(frozen=True, slots=True)
class WeightedProfile:
    """Rules and their weights, which sum to 1. ``equal_below`` is in percent."""

    rules: tuple[tuple[Rule, float], ...]
    equal_below: float
    method: Method = "linear"


def weighted_profile(rule_set: RuleSet, scheduler: str) -> WeightedProfile:
    """The profile for pods of this schedulerName; else `default`; else all rules except shadow
    rules, with equal weights and `linear`.
    """
    profiles = rule_set.extender.profiles
    profile = profiles.get(scheduler) or profiles.get("default")
    if profile is None:
        profile = Profile(score={r.name: 1.0 for r in rule_set.rules if not r.shadow})
    return WeightedProfile(_shares(rule_set, profile.score), profile.equal_below, profile.method)


def order_profile(rule_set: RuleSet, order: OrderRules) -> WeightedProfile:
    """The profile that ranks nodes for new pods."""
    return WeightedProfile(_shares(rule_set, order.score), order.equal_below)


def _shares(rule_set: RuleSet, score: Mapping[str, float]) -> tuple[tuple[Rule, float], ...]:
    """The rules of ``score`` with their shares of the total weight, without rules of weight 0."""
    total = sum(score.values())
    return tuple(
        (rule_set.by_name[name], weight / total) for name, weight in score.items() if weight
    )


class PlacingLoads(NamedTuple):
    """Expected loads by node name, in tenths.

    ``loads``: without nodes for which no rule has a value and on which no rule fires.
    ``mean``: of the loads, each capped at FULL. ``line``: nodes with lower loads count as equal.
    ``ranking``: the loads that nodes are ranked by. If the load of one rule is above the line, each
    lower load of another rule counts as the line.
    """

    loads: Mapping[str, int]
    mean: float
    line: int
    ranking: Mapping[str, int]


def placing_loads(evaluation: Evaluation, profile: WeightedProfile) -> PlacingLoads:
    """The load of each node. If one of several rules has no value for a node, the median of the
    rule's values is used. A rule that does not apply to the node does not count.
    """
    of_rules = [(rule, weight, _rule_loads(evaluation, rule)) for rule, weight in profile.rules]
    parts = [
        _Part(rule.name, weight, loads, median(loads.values()))
        for rule, weight, loads in of_rules
        if loads
    ]
    known = set[str]().union(*(part.loads for part in parts))
    firing = {
        name
        for rule, _ in profile.rules
        for name in evaluation.alerts
        if evaluation.fires_above_threshold(rule, name)
    }
    loads = {
        name: (_weighted(parts, name, alerts) if name in known else FULL)
        + FIRING * (name in firing)
        for name, alerts in evaluation.alerts.items()
        if name in known or name in firing
    }
    mean = fmean([min(load % FIRING, FULL) for load in loads.values()] or [0])
    line, ranking = equal_line(profile.equal_below, mean), dict(loads)
    for name in loads.keys() - firing if len(parts) > 1 else ():
        counted = _weighted(parts, name, evaluation.alerts[name], line / TENTHS)
        if counted > line:
            ranking[name] = counted
    return PlacingLoads(loads, mean, line, ranking)


def _rule_loads(evaluation: Evaluation, rule: Rule) -> dict[str, float]:
    expected = evaluation.expected.get(rule.name, NO_EXPECTATION)
    measured = ((name, evaluation.measured_load(rule, name)) for name in evaluation.alerts)
    return {name: expected.to_place(name, load) for name, load in measured if load is not None}


class _Part(NamedTuple):
    """The loads of one rule by node name, and their median."""

    rule: str
    weight: float
    loads: Mapping[str, float]
    middle: float


def _weighted(
    parts: Iterable[_Part], name: str, alerts: Collection[str], least: float = 0.0
) -> int:
    """A node's load in tenths. Each part counts as at least ``least`` percent."""
    total = weights = 0.0
    for rule, weight, loads, middle in parts:
        if rule in alerts:
            total += weight * max(least, loads.get(name, middle))
            weights += weight
    return round(TENTHS * total / weights)


def equal_line(equal_below: float, mean: float) -> int:
    """The load in tenths below which nodes count as equal.

    It is at most FULL minus the ``mean`` load (tenths), so that warm nodes are still ranked.
    """
    return round(min(TENTHS * equal_below, FULL - mean))


def next_pod_loads(evaluation: Evaluation, profile: WeightedProfile) -> dict[str, int]:
    """The load in tenths that a pod of mean use would add to each node."""
    parts = [
        (weight, evaluation.expected.get(rule.name, NO_EXPECTATION))
        for rule, weight in profile.rules
    ]
    return {
        name: round(TENTHS * sum(weight * expected.next(name) for weight, expected in parts))
        for name in evaluation.alerts
    }


def threshold_load(profile: WeightedProfile) -> int:
    """The load in tenths of a node that is exactly at each rule's threshold."""
    loads = (weight * load_percent(rule, rule.threshold) for rule, weight in profile.rules)
    return round(TENTHS * sum(loads))
