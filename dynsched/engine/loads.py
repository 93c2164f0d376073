"""A rule's values as *points* of load, the same for all rules: 0 is idle, 100 is full."""

from __future__ import annotations

import math
import sys
from typing import Final

from dynsched.rules.rule_set import Rule

_FULL_PERCENT: Final = 100.0
_MOST: Final = sys.float_info.max
"""A value that cannot be counted must not be divided by infinity, which is no number."""
FALLING_SCALE: Final = 4.0
"""Of a value that falls with load: at this many times the threshold it is 50."""
MAX_LOAD: Final = 500.0
"""Points: the upper limit of a load, five times full. Higher loads count as equal."""


def rule_load(rule: Rule, value: float) -> float | None:
    """A value in points; None for a value that is not a finite number.

    A value that rises with load counts as a share of ``full_at``. One that falls (``op`` ``<``:
    memory.available) is 80 at its threshold, 100 at 0, and 50 at four times the threshold.
    """
    if not math.isfinite(value):
        return None
    if rule.rises:
        return min(max(0.0, 100 * value / full_at(rule)), MAX_LOAD)
    zero = min(0.0, rule.threshold)
    return 100 / (1 + max(0.0, value - zero) / falling_unit(rule))


def falling_unit(rule: Rule) -> float:
    """Of a value that falls with load: how far above 0, or its threshold, it is 50."""
    unit = (rule.threshold - min(0.0, rule.threshold)) * FALLING_SCALE
    return min(unit, _MOST) or 1.0


def full_at(rule: Rule) -> float:
    """The value at which a node is full: the rule's own ``full_at``, else by its threshold. Up to
    1 it is a share, up to 100 a percentage, and beyond that no scale is known: a quarter more.
    """
    if rule.full_at is not None:
        return rule.full_at
    if rule.traits.in_percent or rule.threshold <= 0:
        return _FULL_PERCENT
    if rule.threshold <= 1:
        return 1.0
    return _FULL_PERCENT if rule.threshold <= _FULL_PERCENT else min(rule.threshold * 1.25, _MOST)
