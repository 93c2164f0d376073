"""A rule's value as load in percent, the same for all rules: 0 is idle, 100 is full."""

from __future__ import annotations

import sys
from typing import Final

from dynsched.rules.rule_set import Rule

MAX_LOAD: Final = 500.0
"""Percent: the upper limit of a load, five times full. Higher loads count as equal."""
FULL: Final = 100.0
LEAST_LOAD: Final = -5.0
"""Percent: what rounding, and counters read one after the other, can make of an idle node."""
FALLING_SCALE: Final = 4.0
"""A value that falls with load means 50 % at this many times the threshold."""
_MOST: Final = sys.float_info.max
"""A value that cannot be counted must not be divided by infinity, which is no number."""


def load_percent(rule: Rule, value: float) -> float:
    """The load that a finite ``value`` of the rule means, 0 to MAX_LOAD.

    A value that rises with load counts as a share of ``full_at``. One that falls (``op`` ``<``:
    memory.available) is 80 at its threshold, 100 at 0, and 50 at four times the threshold.
    """
    if rule.higher_is_worse:
        return min(max(100 * value / full_at(rule), 0.0), MAX_LOAD) + 0.0  # never -0.0
    zero = min(0.0, rule.threshold)
    unit = min((rule.threshold - zero) * FALLING_SCALE, _MOST) or 1.0
    return 100 / (1 + max(0.0, value - zero) / unit)


def plausible_values(rule: Rule) -> tuple[float, float]:
    """The least and the most that a value of the rule can be: LEAST_LOAD to MAX_LOAD, for a rule
    whose values are known to be shares of full load; else any finite number.

    A percentage that falls with load is what is left of full: less than nothing on a node whose
    load is above full, and more than full where it is compared with what is requested.
    """
    if rule.higher_is_worse and rule.measures_share:
        full = full_at(rule)
        if rule.is_percent:  # with a threshold up to 1 it would be taken for a share of 1
            full = max(full, FULL)
        return LEAST_LOAD * full / 100, min(MAX_LOAD * full / 100, _MOST)
    if rule.is_percent and abs(rule.threshold) <= FULL:
        return FULL - MAX_LOAD, MAX_LOAD
    return -_MOST, _MOST


def with_load(rule: Rule, value: float, load: float) -> float:
    """The value with this much more load, for a rule whose higher values are more load."""
    return max(-_MOST, min(value + load * full_at(rule) / 100, _MOST))


def full_at(rule: Rule) -> float:
    """The value at which a node is full: the rule's own ``full_at``, else derived from its
    threshold. Up to 1 it is a share, up to 100 a percentage; beyond that no scale is known, and a
    quarter more than the threshold is taken.
    """
    if rule.full_at is not None:
        return rule.full_at
    if rule.source == "metrics-server" or rule.threshold <= 0:
        return FULL
    if rule.threshold <= 1:
        return 1.0
    return FULL if rule.threshold <= FULL else min(rule.threshold * 1.25, _MOST)
