"""The load by which pods are placed: one number for each node, from the rules of a profile.

A load is a whole number of *tenths of a percent*. A node on which one of the rules fires has FIRING
added, so that it comes after every other node.
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
"""Tenths, added to the load of a node on which a rule fires. The remainder is the load alone, which
is less: a rule measures at most MAX_LOAD, and pods add a bounded amount."""


@dataclass(frozen=True, slots=True)
class WeightedProfile:
    """``rules`` with their weights, of which the sum is 1. ``equal_below`` in percent."""

    rules: tuple[tuple[Rule, float], ...]
    equal_below: float
    method: Method = "linear"


def weighted_profile(rule_set: RuleSet, scheduler: str) -> WeightedProfile:
    """How to score pods of this schedulerName: its profile, else `default`, else all rules with
    equal weights and `linear`.
    """
    profiles = rule_set.extender.profiles
    profile = profiles.get(scheduler) or profiles.get("default")
    if profile is None:
        profile = Profile(score={r.name: 1.0 for r in rule_set.rules if not r.shadow})
    return WeightedProfile(_shares(rule_set, profile.score), profile.equal_below, profile.method)


def order_profile(rule_set: RuleSet, order: OrderRules) -> WeightedProfile:
    """How to rank the nodes for new pods."""
    return WeightedProfile(_shares(rule_set, order.score), order.equal_below)


def _shares(rule_set: RuleSet, score: Mapping[str, float]) -> tuple[tuple[Rule, float], ...]:
    """The weights of ``score`` (by rule name) as shares of 1, without rules of weight 0."""
    total = sum(score.values())
    return tuple(
        (rule_set.by_name[name], weight / total) for name, weight in score.items() if weight
    )


class PlacingLoads(NamedTuple):
    """By name, every node's expected load; without nodes for which no rule has a value and on which
    none fires. ``mean``: of the loads, each at most FULL. ``line``: nodes with less are equal.
    ``judged``: a node above the line by one rule counts as at the line by each other rule.
    All in tenths.
    """

    loads: Mapping[str, int]
    mean: float
    line: int
    judged: Mapping[str, int]


def placing_loads(evaluation: Evaluation, profile: WeightedProfile) -> PlacingLoads:
    """Where one rule of several has no value for a node, the median of that rule's values is used;
    a rule that does not apply to the node does not count.
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
    line, judged = equal_line(profile.equal_below, mean), dict(loads)
    for name in loads.keys() - firing if len(parts) > 1 else ():
        counted = _weighted(parts, name, evaluation.alerts[name], line / TENTHS)
        if counted > line:
            judged[name] = counted
    return PlacingLoads(loads, mean, line, judged)


def _rule_loads(evaluation: Evaluation, rule: Rule) -> dict[str, float]:
    expected = evaluation.expected.get(rule.name, NO_EXPECTATION)
    measured = ((name, evaluation.measured_load(rule, name)) for name in evaluation.alerts)
    return {name: expected.to_place(name, load) for name, load in measured if load is not None}


class _Part(NamedTuple):
    """The loads according to one rule, by the name of the node, and their median."""

    rule: str
    weight: float
    loads: Mapping[str, float]
    middle: float


def _weighted(
    parts: Iterable[_Part], name: str, alerts: Collection[str], least: float = 0.0
) -> int:
    """A node's load in tenths. Each part counts as ``least`` (percent) at least."""
    total = weights = 0.0
    for rule, weight, loads, middle in parts:
        if rule in alerts:
            total += weight * max(least, loads.get(name, middle))
            weights += weight
    return round(TENTHS * total / weights)


def equal_line(equal_below: float, mean: float) -> int:
    """The load below which nodes are equal, in tenths. It comes down where nodes are warm: as far
    below full as their ``mean`` load (tenths) is above 0.
    """
    return round(min(TENTHS * equal_below, FULL - mean))


def next_pod_loads(evaluation: Evaluation, profile: WeightedProfile) -> dict[str, int]:
    """What a pod of mean use adds to each node's load, in tenths."""
    parts = [
        (weight, evaluation.expected.get(rule.name, NO_EXPECTATION))
        for rule, weight in profile.rules
    ]
    return {
        name: round(TENTHS * sum(weight * expected.next(name) for weight, expected in parts))
        for name in evaluation.alerts
    }


def threshold_load(profile: WeightedProfile) -> int:
    """The load of a node that is at the threshold of each rule, in tenths."""
    loads = (weight * load_percent(rule, rule.threshold) for rule, weight in profile.rules)
    return round(TENTHS * sum(loads))
