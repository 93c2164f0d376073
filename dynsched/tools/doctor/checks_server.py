"""The checks of what a rule asks of its server, and of the values it had: P7 to P11. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Final

from dynsched.engine.wording import counted, some
from dynsched.rules.rule_set import FileRule
from dynsched.tools.doctor.finding import Told, error, hint, warning
from dynsched.tools.doctor.gathered import Copies, RuleFacts, Seen, World
from dynsched.util.durations import format_duration
from dynsched.util.formatting import format_threshold, format_value, one_line

MUCH_OF_INTERVAL: Final = 0.1
MANY_SAMPLES: Final = 10_000_000
"""Of one evaluation; Prometheus ends a query at 50 million (--query.max-samples)."""
ENOUGH: Final = 86_400.0
"""Seconds of history from which on it says something that a threshold was never passed."""
FAR: Final = 50.0
"""How many times the values a threshold may be, before the units must differ."""
_RATIO: Final = 1.0
_PERCENT: Final = 100.0
_SHOWN: Final = 100


def costs(rule: RuleFacts, world: World) -> Iterator[Told]:
    """P7."""
    seconds, interval = rule.seconds, world.interval
    if seconds is not None and seconds > MUCH_OF_INTERVAL * interval:
        yield (error if seconds > interval else warning)(
            f"the query takes {seconds / interval:.0%} of the interval",
            f"{seconds:.2f} s, with a tick every {format_duration(interval)}"
            + (f"; {rule.samples:,} samples" if rule.samples else ""),
            "compute it by a recording rule (manifests/prometheus), or raise --interval",
        )
    elif rule.samples is not None and rule.samples > MANY_SAMPLES:
        yield warning(
            "one query touches so many samples that Prometheus may refuse it as the cluster grows",
            f"{rule.samples:,} samples; the server's default limit is 50,000,000",
            "compute it by a recording rule (manifests/prometheus)",
        )
    if rule.recorded is not None:
        name, text = rule.recorded
        yield hint(
            "a recording rule computes this already",
            f"{name} records {one_line(text, _SHOWN)}",
            f"write {name} in place of it",
        )


def looks_back_too_far(rule: RuleFacts, world: World) -> Iterator[Told]:
    """P8."""
    retention = world.retention
    if retention is None:
        return
    kept = f"Prometheus keeps {format_duration(retention)}"
    if (back := rule.expression.reach) > retention:
        yield error(
            "the expression looks back further than Prometheus keeps samples",
            f"it looks back {format_duration(back)}; {kept}",
            "write a shorter range, or keep samples for longer (--storage.tsdb.retention.time)",
        )
    window = max(rule.rule.hold_duration, rule.rule.keep_firing_for)
    if window > retention:
        yield warning(
            "a restart cannot rebuild the state of this rule: what it looks back on is not kept",
            f"for and keep_firing_for: up to {format_duration(window)}; {kept}",
            "write shorter durations, or keep samples for longer",
        )


def values_against_thresholds(rule: RuleFacts, _: World) -> Iterator[Told]:
    """P9: the threshold is outside of what was seen."""
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
        *(limit.rises, form.unread is None and not form.is_percent),
        *(seen.least >= 0, seen.most <= _RATIO + 1e-9, _RATIO < threshold <= _PERCENT),
    )
    of_one = f"write threshold: {threshold / 100:g}, or multiply the expression by 100"
    if all(may_be_shares) and form.divides:
        yield error(
            "the values are shares of 1, and the threshold is in percent: it is never passed",
            evidence,
            of_one,
        )
    elif limit.rises and form.is_percent and 0 < threshold <= _RATIO < seen.most:
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


def several_clusters(rule: RuleFacts, _: World) -> Iterator[Told]:
    """P10."""
    told = set()
    for facts in rule.selectors:
        for copies in facts.copies:
            if copies.label in told:
                continue
            told.add(copies.label)
            values = [repr(value) if value else "(none)" for value in copies.values]
            yield _how_bad(copies)(
                f"the series come with several values of the label {copies.label}"
                + (": nodes of different clusters have the same address" if copies.shared else ""),
                f"{facts.selector.text}: {some(values, 4)}"
                + (f"; {copies.shared} of `instance` under more than one" if copies.shared else ""),
                f'select one of them: {{{copies.label}="..."}}',
            )


def _how_bad(copies: Copies) -> partial[Told]:
    """Shards and replicas of Prometheus are no clusters."""
    if copies.shared:
        return error
    return hint if copies.label.startswith(("prometheus", "replica")) else warning


def throttling(rule: RuleFacts, world: World) -> Iterator[Told]:
    """P11."""
    pressure = [
        each.selector.text
        for each in rule.selectors
        if each.selector.metric.startswith("node_pressure_cpu_") and not each.selector.is_combined
    ]
    throttled = world.throttled
    if throttled and pressure:
        yield warning(
            "the CPU pressure of a node counts containers that are throttled by their own limit, "
            "so that a node that is idle looks hot",
            f"{pressure[0]}; {counted(throttled, 'container')} throttled within 10 minutes",
            "let it count with real use only: PRESSURE and on (instance) (CPU_IN_PERCENT > 50)",
        )
