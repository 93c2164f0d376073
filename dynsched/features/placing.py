"""The load by which pods are placed: one number for each node, from the rules of a profile.

A load is a whole number of *tenths of a percent*. A node on which one of the rules fires has FIRING
added, so that it comes after every other node.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Final, Literal

from dynsched.core.evaluate import Evaluation
from dynsched.core.load.expected import NO_EXPECTATION
from dynsched.core.percent import load_percent
from dynsched.rules.rule_set import Rule, RuleSet
from dynsched.rules.sections import Profile

TENTHS: Final = 10
"""Tenths of a percent in one percent."""
FULL: Final = 100 * TENTHS
FIRING: Final = 10_000
"""Tenths, added to the load of a node on which a rule fires. Any load is below it: a rule measures
at most MAX_LOAD, and pods add a bounded amount."""

Method = Literal["linear", "relative", "least"]
"""``least`` was another one, and is the same as ``relative``; `rules.lint` says so."""


@dataclass(frozen=True, slots=True)
class WeightedProfile:
    """``rules`` with their weights, of which the sum is 1."""

    rules: tuple[tuple[Rule, float], ...]
    method: Method


def weighted_profile(rule_set: RuleSet, scheduler: str) -> WeightedProfile:
    """How to score pods of this schedulerName: its profile, else `default`, else all rules with
    equal weights and `linear`.
    """
    profiles = rule_set.extender.profiles
    profile = profiles.get(scheduler) or profiles.get("default")
    if profile is None:
        profile = Profile(score={r.name: 1.0 for r in rule_set.rules if not r.shadow})
    return weighted(rule_set, profile.score, profile.method)


def weighted(
    rule_set: RuleSet, score: Mapping[str, float], method: Method = "linear"
) -> WeightedProfile:
    """The weights of ``score`` (by rule name) as shares of 1, without rules of weight 0."""
    total = sum(score.values())
    parts = ((rule_set.by_name[name], weight / total) for name, weight in score.items() if weight)
    return WeightedProfile(tuple(parts), method)


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
