"""Whether the last tick can be trusted, and the rules; what `/status` and the log say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from dynsched.engine.model import (
    Quality,
    QueryResult,
    RuleHealth,
    SeveralSeries,
    Unmatched,
    WriteFailure,
)
from dynsched.engine.snapshot import Decision, Snapshot
from dynsched.engine.wording import Reason, by_reason
from dynsched.rules.rule_set import RuleSet
from dynsched.util.durations import format_duration

OVERDUE_INTERVALS: Final = 3
"""Intervals without a finished tick after which the loop counts as stuck."""
OVERDUE_AT_LEAST: Final = 30.0
"""Seconds, however short the interval is: a single query may take several."""


def why_unsuccessful(
    rule_set: RuleSet,
    results: Mapping[str, QueryResult],
    failures: Sequence[WriteFailure],
    planned: int,
) -> str | None:
    """Why a tick did not succeed: no rule of several could be queried (one that fails is that
    rule's health only), or some of the ``planned`` writes failed. None when it did.
    """
    asked = [results[rule.name] for rule in rule_set.asked_rules]
    errors = [result.error for result in asked if result.error is not None]
    if errors and len(errors) == len(asked):
        return f"no rule could be queried: {errors[0]}"
    if failures:
        return f"{len(failures)} of {planned} nodes could not be written: {failures[0]}"
    return None


def why_unhealthy(snapshot: Snapshot | None, age: float, interval: float) -> str | None:
    """One line with the reason why `/status` is not ok; None when it is.

    ``age`` is of the Snapshot, in seconds, by a clock that is never set.
    """
    if snapshot is None:
        return "no tick has finished yet"
    if age > overdue_after(interval):
        return f"the last tick finished {format_duration(round(age))} ago"
    return snapshot.error or _why_none_is_usable(snapshot)


def overdue_after(interval: float) -> float:
    """Seconds without a finished tick after which the loop counts as stuck."""
    return max(OVERDUE_AT_LEAST, OVERDUE_INTERVALS * interval)


def _asked(snapshot: Snapshot) -> list[RuleHealth]:
    """Of `RuleSet.asked_rules`."""
    names = {rule.name for rule in snapshot.rule_set.asked_rules}
    return [health for health in snapshot.rules if health.rule.name in names]


def is_blind(snapshot: Snapshot) -> bool:
    """Whether there are nodes, and no rule that may mark them has a usable value of any."""
    asked = _asked(snapshot)
    usable = any(health.quality.get(Quality.OK) for health in asked)
    return bool(asked and snapshot.nodes) and not usable


def _why_none_is_usable(snapshot: Snapshot) -> str | None:
    """Queries that succeed without a usable sample for any node (no series, only old or invalid
    samples, names that match no node) are reported like queries that fail.
    """
    if not is_blind(snapshot):
        return None
    asked, unmatched = _asked(snapshot), unmatched_rules(snapshot)
    reasons = {
        health.rule.name: health.error
        or unmatched.get(health.rule.name)
        or f"none of its readings is usable ({_counts(health)})"
        for health in asked
    }
    first = next(iter(by_reason(reasons)))
    return f"no rule says anything usable of any node: {first}"


def _counts(health: RuleHealth) -> str:
    counts = ((health.quality.get(quality, 0), quality) for quality in Quality)
    return ", ".join(f"{count} {quality}" for count, quality in counts if count)


def unmatched_rules(snapshot: Snapshot) -> dict[str, str | None]:
    """For each rule whose query succeeds: why none of its samples matches a node (a misspelled
    metric, an aggregation that drops the node's label), in one line; None when one does.
    """
    first = {found.rule: found for found in reversed(snapshot.unmatched)}
    return {
        health.rule.name: _why_unmatched(health, first.get(health.rule.name))
        for health in snapshot.rules
        if health.error is None and snapshot.nodes
    }


def several_series(snapshot: Snapshot) -> dict[str, str | None]:
    """Of each rule whose query answers: that it has more than one series for a node, and what to do
    about it, in one line; None where it has not.
    """
    return {
        health.rule.name: None if health.several is None else _why_several(health.several)
        for health in snapshot.rules
        if health.error is None
    }


def _why_several(several: SeveralSeries) -> str:
    differ = f"which differ in {', '.join(several.labels)}" if several.labels else "which are alike"
    select = f', as in {{{several.labels[0]}="..."}}' if several.labels else ""
    return (
        f"{several.example!r}, of {several.nodes} in all, has series {differ}; the worst value "
        f"counts. Select one in the expression{select}, or aggregate by the label that names the "
        "node"
    )


def _why_unmatched(health: RuleHealth, unmatched: Unmatched | None) -> str | None:
    if health.rule.selector.requirements and not health.states:
        return Reason("selects_none", str(health.rule.selector))
    if health.samples != health.unmatched:
        return None
    if unmatched is None and health.rule.source == "metrics-server":
        return Reason("no_metrics")
    if unmatched is None:
        return Reason("no_series")
    if not unmatched.value:
        return Reason("no_label", unmatched.reason)
    return Reason("no_node", repr(unmatched.value), unmatched.reason)


def rules_health(
    rule_set: RuleSet,
    results: Mapping[str, QueryResult],
    decision: Decision,
    last_success: Mapping[str, float],
    past_errors: Mapping[str, str] = MappingProxyType({}),
) -> tuple[RuleHealth, ...]:
    """In the order of the rules. ``last_success``: in Unix seconds, by rule."""
    return tuple(
        RuleHealth(
            rule=rule,
            error=result.error,
            warnings=result.warnings,
            duration=result.duration,
            last_success=last_success.get(rule.name),
            samples=len(result.samples),
            unmatched=sum(entry.rule == rule.name for entry in decision.unmatched),
            quality=quality,
            states=states,
            past_error=past_errors.get(rule.name),
            several=decision.several.get(rule.name),
        )
        for rule in rule_set.rules
        for result in [results[rule.name]]
        for quality, states in [decision.verdicts.alerts.counts(rule.name)]
    )
