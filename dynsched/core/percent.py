"""Converts values of rules to load in percent, one scale for all rules: 0 is idle, 100 is full."""

from __future__ import annotations

import sys
from typing import Final

from dynsched.rules.rule_set import Rule

MAX_LOAD: Final = 500.0
"""Percent: the upper limit of a load, five times full. Higher loads count as equal."""
FULL: Final = 100.0
LEAST_LOAD: Final = -5.0
"""Percent: the lowest load that an idle node shows because of rounding, or because its counters are
read one after the other."""
FALLING_SCALE: Final = 4.0
"""For a value that falls with load: at this multiple of the threshold the load is 50 %."""
_MOST: Final = sys.float_info.max
"""Upper limit for divisors and values, because infinity divided by infinity is not a number."""


def load_percent(rule: Rule, value: float) -> float:
    """The load that a finite ``value`` of the rule means, from 0 to MAX_LOAD.

    A value that rises with load counts as a share of ``full_at``. One that falls with load (``op``
    is ``<``, as for memory.available) means 100 at 0, 80 at the threshold, and 50 at four times the
    threshold.
    """
    if rule.higher_is_worse:
        return min(max(100 * value / full_at(rule), 0.0), MAX_LOAD) + 0.0  # never -0.0
    zero = min(0.0, rule.threshold)
    unit = min((rule.threshold - zero) * FALLING_SCALE, _MOST) or 1.0
    return 100 / (1 + max(0.0, value - zero) / unit)


def plausible_values(rule: Rule) -> tuple[float, float]:
    """The smallest and the largest plausible value of the rule.

    They mean LEAST_LOAD and MAX_LOAD if the values are known to be shares of full load. Otherwise
    any finite number is plausible.
    A percentage that falls with load is the part that is left. It is negative on a node whose load
    is above full, and may be above 100 if it is relative to what is requested.
    """
    if rule.higher_is_worse and rule.measures_share:
        full = full_at(rule)
        if rule.is_percent:  # a threshold up to 1 would make it a share of 1
            full = max(full, FULL)
        return LEAST_LOAD * full / 100, min(MAX_LOAD * full / 100, _MOST)
    if rule.is_percent and abs(rule.threshold) <= FULL:
        return FULL - MAX_LOAD, MAX_LOAD
    return -_MOST, _MOST


def with_load(rule: Rule, value: float, load: float) -> float:
    """The value after its load rose by ``load``, for a rule whose higher values are more load."""
    return max(-_MOST, min(value + load * full_at(rule) / 100, _MOST))


def full_at(rule: Rule) -> float:
    """The value at which a node is full: ``full_at`` of the rule, or derived from its threshold.

    A threshold up to 1 is a share, and one up to 100 a percentage. Beyond that the scale is
    unknown, and full is assumed to be a quarter above the threshold.
    """
    if rule.full_at is not None:
        return rule.full_at
    if rule.source == "metrics-server" or rule.threshold <= 0:
        return FULL
    if rule.threshold <= 1:
        return 1.0
    return FULL if rule.threshold <= FULL else min(rule.threshold * 1.25, _MOST)
