"""A rule's values as *points* of load, the same for all rules: 0 is idle, 100 is full."""

from __future__ import annotations

import math
import sys
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dynsched.engine.pod_values import MAX_LOAD
from dynsched.rules.rule_set import Rule

_FULL_PERCENT: Final = 100.0
_MOST: Final = sys.float_info.max
"""A value that cannot be counted must not be divided by infinity, which is no number."""
FALLING_SCALE: Final = 4.0
"""Of a value that falls with load: at this many times the threshold it is 50."""


def rule_loads(rule: Rule, values: NDArray[np.float64] | float) -> NDArray[np.float64]:
    """Values in points, all finite or NaN; NaN for the latter.

    A value that rises with load counts as a share of ``full_at``. One that falls (``op`` ``<``:
    memory.available) is 80 at its threshold, 100 at 0, and 50 at four times the threshold.
    """
    with np.errstate(over="ignore"):
        if rule.rises:
            points = np.minimum(np.maximum(100 * values / full_at(rule), 0.0), MAX_LOAD)
            return np.asarray(points + 0.0, np.float64)  # never -0.0
        zero = min(0.0, rule.threshold)
        unit = min((rule.threshold - zero) * FALLING_SCALE, _MOST) or 1.0
        return np.asarray(100 / (1 + np.maximum(0.0, values - zero) / unit), np.float64)


def rule_load(rule: Rule, value: float) -> float | None:
    """One value in points; None for a value that is not a finite number."""
    return rule_loads(rule, value).item() if math.isfinite(value) else None


def with_points(
    rule: Rule, values: NDArray[np.float64], points: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The values with these points more, for a rule whose higher values are more load."""
    with np.errstate(over="ignore"):
        return np.clip(values + points * full_at(rule) / 100, -_MOST, _MOST)


def full_at(rule: Rule) -> float:
    """The value at which a node is full: the rule's own ``full_at``, else by its threshold. Up to
    1 it is a share, up to 100 a percentage, and beyond that no scale is known: a quarter more.
    """
    if rule.full_at is not None:
        return rule.full_at
    if rule.source == "metrics-server" or rule.threshold <= 0:
        return _FULL_PERCENT
    if rule.threshold <= 1:
        return 1.0
    return _FULL_PERCENT if rule.threshold <= _FULL_PERCENT else min(rule.threshold * 1.25, _MOST)
