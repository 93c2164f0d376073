"""The limits of all rules in columns, made once for each content of the rules file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from dynsched.engine.columns import Bools, Floats
from dynsched.rules.rule_set import COMPARE, Rule, RuleSet

GRAIN: Final = 0.001
"""Tolerance in seconds when durations are compared. ``for: 4s`` must have passed after two
intervals of 2 s, even if the difference of the floats is slightly less than 4."""


@dataclass(frozen=True, slots=True, eq=False)
class Limits:
    """What of some rules decides about their alerts. Arrays have a row for each rule and one
    column.
    """

    ops: tuple[str, ...]
    threshold: Floats
    clear_threshold: Floats
    hold: Floats
    """``for``, less GRAIN."""
    keep_firing: Floats
    """``keep_firing_for``, less GRAIN."""
    stale_after: Floats
    releases_stale: Bools
    is_shadow: Bools

    @classmethod
    def of(cls, rules: Sequence[Rule], rule_set: RuleSet) -> Limits:
        """Rows in the order of ``rules``; ``rule_set`` has what they do not say themselves."""

        def column(values: Iterable[float]) -> Floats:
            """Numbers, shape (rules, 1)."""
            return np.array([*values], np.float64)[:, None]

        def flags(values: Iterable[bool]) -> Bools:
            """Likewise truth values."""
            return np.array([*values], np.bool_)[:, None]

        return cls(
            ops=tuple(rule.op for rule in rules),
            threshold=column(rule.threshold for rule in rules),
            clear_threshold=column(rule.clear_threshold for rule in rules),
            hold=column(rule.hold_duration - GRAIN for rule in rules),
            keep_firing=column(rule.keep_firing_for - GRAIN for rule in rules),
            stale_after=column(rule_set.stale_after_of(rule) for rule in rules),
            releases_stale=flags(not rule_set.holds_stale(rule) for rule in rules),
            is_shadow=flags(rule.shadow for rule in rules),
        )

    def beyond(self, values: Sequence[Floats] | Floats) -> tuple[Bools, Bools]:
        """Where each rule's values are beyond its threshold, and beyond its clear threshold; False
        where a value is NaN.
        """

        def over(bounds: Floats) -> Bools:
            """Where the values are beyond these bounds; the shape is that of ``values``."""
            each = zip(self.ops, values, bounds, strict=True)
            return np.array([COMPARE[op](row, bound) for op, row, bound in each], np.bool_)

        return over(self.threshold), over(self.clear_threshold)

    def excess(self, values: Floats) -> Floats:
        """How far the values are beyond the threshold, as a share of it; NaN where a value is."""
        size = np.where(self.threshold == 0, 1.0, np.abs(self.threshold))
        falls = np.array([op in ("<", "<=") for op in self.ops], np.bool_)[:, None]
        with np.errstate(over="ignore", invalid="ignore"):  # a distance may exceed a double
            return np.asarray((values - self.threshold) / np.where(falls, -size, size), np.float64)
