"""P9: a rule's threshold against the values that its expression has had. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from dynsched.rules.rule_set import FileRule
from dynsched.tools.doctor.finding import Told, error, hint, warning
from dynsched.tools.doctor.gathered import RuleFacts, Seen, World
from dynsched.util.durations import format_duration
from dynsched.util.formatting import format_threshold, format_value

ENOUGH: Final = 86_400.0
"""Seconds of history from which on it says something that a threshold was never passed."""
FAR: Final = 50.0
"""How many times the values a threshold may be, before the units must differ."""
_RATIO: Final = 1.0
_PERCENT: Final = 100.0


def values_against_thresholds(rule: RuleFacts, _: World) -> Iterator[Told]:
    """The threshold is outside of what was seen."""
    limit, seen, form = rule.rule, rule.past, rule.expression
    if seen is None or not (math.isfinite(seen.least) and math.isfinite(seen.most)):
        return
    threshold = limit.threshold
    evidence = (
        f"threshold {limit.op} {format_threshold(threshold)}; {format_value(seen.least)} to "
        f"{format_value(seen.most)} within {format_duration(max(1, round(seen.since)))}"
    )
    # A cluster that is idle also has values below 1: a multiplication by 100 tells it apart.
    may_be_shares = (
        *(limit.rises, form is not None and not form.is_percent),
        *(seen.least >= 0, seen.most <= _RATIO + 1e-9, _RATIO < threshold <= _PERCENT),
    )
    of_one = f"write threshold: {threshold / 100:g}, or multiply the expression by 100"
    if all(may_be_shares) and form is not None and form.divides:
        yield error(
            "the values are shares of 1, and the threshold is in percent: it is never passed",
            evidence,
            of_one,
        )
    elif limit.rises and form and form.is_percent and 0 < threshold <= _RATIO < seen.most:
        yield error(
            "the values are in percent, and the threshold is a share of 1: it is always passed",
            evidence,
            f"write threshold: {threshold * 100:g}, or do not multiply the expression",
        )
    elif seen.since >= ENOUGH:
        yield from _never_or_always(limit, seen, evidence)
    elif all(may_be_shares):
        yield hint(
            "all values so far are within 0 and 1, and the threshold is above 1: if they are "
            "shares of 1, it is never passed",
            evidence,
            f"if they are, {of_one}",
        )


def _never_or_always(limit: FileRule, seen: Seen, evidence: str) -> Iterator[Told]:
    coolest, hottest = (seen.least, seen.most) if limit.rises else (seen.most, seen.least)
    small, large = sorted((abs(limit.threshold), abs(hottest)))
    if limit.breached(coolest):
        yield error(
            "every node was beyond the threshold all the time: the rule always fires",
            evidence,
            "correct the threshold, or the unit of the expression",
        )
    elif limit.breached(hottest):
        return
    elif small and large > FAR * small:
        yield warning(
            "no node ever passed the threshold, by so much that the units may differ",
            evidence,
            "compare the units of both",
        )
    else:
        yield hint(
            "no node ever passed the threshold",
            evidence,
            "lower the threshold, if marks are expected",
        )
