"""P9: a rule's threshold against the values that its expression has had. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from dynsched.rules.rule_set import FileRule
from dynsched.tools.doctor.finding import Finding, Severity
from dynsched.tools.doctor.gathered import RuleFacts, Seen
from dynsched.util.durations import format_duration
from dynsched.util.formatting import format_threshold, format_value

ENOUGH: Final = 86_400.0
"""Seconds of history from which on it says something that a threshold was never passed."""
FAR: Final = 50.0
"""How many times the values a threshold may be, before the units must differ."""
_RATIO: Final = 1.0


def values_against_thresholds(rule: RuleFacts) -> Iterator[Finding]:
    """The threshold is outside of what was seen."""
    seen = rule.past
    if seen is None or not (math.isfinite(seen.least) and math.isfinite(seen.most)):
        return
    limit = rule.rule
    if _is_share_of_one(rule, seen):
        yield _finding(
            limit,
            seen,
            Severity.ERROR,
            "the values are shares of 1, and the threshold is in percent: it is never passed",
            f"write threshold: {limit.threshold / 100:g}, or multiply the expression by 100",
        )
    elif _is_share_of_hundred(rule, seen):
        yield _finding(
            limit,
            seen,
            Severity.ERROR,
            "the values are in percent, and the threshold is a share of 1: it is always passed",
            f"write threshold: {limit.threshold * 100:g}, or do not multiply the expression",
        )
    elif seen.since >= ENOUGH:
        yield from _never_or_always(limit, seen)
    elif _may_be_share_of_one(rule, seen):
        yield _finding(
            limit,
            seen,
            Severity.INFO,
            "all values so far are within 0 and 1, and the threshold is above 1: if they are "
            "shares of 1, it is never passed",
            f"if they are, write threshold: {limit.threshold / 100:g}, or multiply the expression "
            "by 100",
        )


def _never_or_always(limit: FileRule, seen: Seen) -> Iterator[Finding]:
    coolest, hottest = (seen.least, seen.most) if limit.rises else (seen.most, seen.least)
    if limit.breached(coolest):
        yield _finding(
            limit,
            seen,
            Severity.ERROR,
            "every node was beyond the threshold all the time: the rule always fires",
            "correct the threshold, or the unit of the expression",
        )
    elif not limit.breached(hottest):
        is_far = _is_far(limit.threshold, hottest)
        yield _finding(
            limit,
            seen,
            Severity.WARNING if is_far else Severity.INFO,
            "no node ever passed the threshold"
            + (", by so much that the units may differ" if is_far else ""),
            "compare the units of both" if is_far else "lower the threshold, if marks are expected",
        )


def _is_far(threshold: float, value: float) -> bool:
    small, large = sorted((abs(threshold), abs(value)))
    return large > FAR * small if small else False


def _is_share_of_one(rule: RuleFacts, seen: Seen) -> bool:
    divides = rule.expression is not None and rule.expression.divides
    return divides and _may_be_share_of_one(rule, seen)


def _may_be_share_of_one(rule: RuleFacts, seen: Seen) -> bool:
    """A cluster that is idle also has values below 1: a multiplication by 100 tells it apart."""
    is_percent = rule.expression is None or rule.expression.is_percent
    rises, threshold = rule.rule.rises, rule.rule.threshold
    in_range = seen.least >= 0 and seen.most <= _RATIO + 1e-9
    return rises and in_range and not is_percent and _RATIO < threshold <= 100  # noqa: PLR2004 (percent)


def _is_share_of_hundred(rule: RuleFacts, seen: Seen) -> bool:
    is_percent = rule.expression is not None and rule.expression.is_percent
    rises, threshold = rule.rule.rises, rule.rule.threshold
    return rises and is_percent and 0 < threshold <= _RATIO < seen.most


def _finding(limit: FileRule, seen: Seen, severity: Severity, summary: str, fix: str) -> Finding:
    over = format_duration(max(1, round(seen.since)))
    return Finding(
        "P9",
        severity,
        summary,
        f"threshold {limit.op} {format_threshold(limit.threshold)}; "
        f"{format_value(seen.least)} to {format_value(seen.most)} within {over}",
        fix,
        limit.name,
    )
