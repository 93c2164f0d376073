"""The load by which pods are placed: one number for each node, from the rules of a profile.

A load is a whole number of *tenths of a percent*. A node on which one of the rules fires has FIRING
added, so that it comes after every other node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean, median
from typing import Final, Literal

from dynsched.core.evaluate import Evaluation
from dynsched.core.load.expected import NO_EXPECTATION
from dynsched.core.percent import load_percent
from dynsched.rules.rule_set import Rule, RuleSet
from dynsched.rules.sections import OrderRules, Profile

TENTHS: Final = 10
"""Tenths of a percent in one percent."""
FULL: Final = 100 * TENTHS
FIRING: Final = 10_000
"""Tenths, added to the load of a node on which a rule fires. Any load is below it: a rule measures
at most MAX_LOAD, and pods add a bounded amount."""

Method = Literal["linear", "relative", "least"]
"""``least``, of before 0.3.0, is the same as ``relative``."""


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


def placing_loads(
    evaluation: Evaluation, profile: WeightedProfile, least: float = 0.0
) -> dict[str, int]:
    """Every node's expected load in tenths; a node for which no rule has a value, and on which none
    fires, is left out. ``least`` (percent): what a load counts as that is less, by each rule.

    Where one rule of several has no value for a node, the median of that rule's values is used; a
    rule that does not apply to the node does not count.
    """
    parts = [(rule, weight, _rule_loads(evaluation, rule)) for rule, weight in profile.rules]
    middles = {rule.name: median(loads.values()) for rule, _, loads in parts if loads}
    found: dict[str, int] = {}
    for name, alerts in evaluation.alerts.items():
        total = weights = 0.0
        known = firing = False
        for rule, weight, loads in parts:
            load = loads.get(name)
            known = known or load is not None
            if rule.name in alerts and rule.name in middles:
                total += weight * max(least, middles[rule.name] if load is None else load)
                weights += weight
            firing = firing or evaluation.fires_above_threshold(rule, name)
        if known or firing:
            found[name] = (round(TENTHS * total / weights) if known else FULL) + FIRING * firing
    return found


def _rule_loads(evaluation: Evaluation, rule: Rule) -> dict[str, float]:
    expected = evaluation.expected.get(rule.name, NO_EXPECTATION)
    measured = ((name, evaluation.measured_load(rule, name)) for name in evaluation.alerts)
    return {name: expected.to_place(name, load) for name, load in measured if load is not None}


def mean_load(loads: Iterable[int]) -> float:
    """In tenths; a load above FULL counts as FULL. 0 of none."""
    return fmean([min(without_firing(load), FULL) for load in loads] or [0])


def equal_line(equal_below: float, mean: float) -> int:
    """The load below which nodes are equal, in tenths. It comes down where nodes are warm: as far
    below full as their ``mean`` load (tenths) is above 0.
    """
    return round(min(TENTHS * equal_below, FULL - mean))


def judged_loads(
    evaluation: Evaluation, profile: WeightedProfile, loads: Mapping[str, int], line: int
) -> Mapping[str, int]:
    """The loads of nodes below the line according to every rule, as they are. For the other nodes,
    a rule's part below the line counts as the line.
    """
    if not line:
        return loads
    counts = placing_loads(evaluation, profile, line / TENTHS)
    return {name: loads[name] if load <= line else load for name, load in counts.items()}


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


def without_firing(load: int) -> int:
    """The load alone, in tenths, of a number that also says whether a rule fires."""
    return load - FIRING if load >= FIRING else load
