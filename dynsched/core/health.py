"""The health of the last tick and of each rule, as `/status` and the log report it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from dynsched.core.alerts import AlertState
from dynsched.core.evaluate import Evaluation
from dynsched.core.guard import WriteFailure
from dynsched.core.samples import Quality, QueryResult, SeveralSeries, Unmatched
from dynsched.core.tick import RuleHealth, Tick
from dynsched.core.wording import Reason, by_reason
from dynsched.rules.rule_set import Rule, RuleSet
from dynsched.util.durations import format_duration

OVERDUE_INTERVALS: Final = 3
"""Intervals without a finished tick after which the loop counts as stuck."""
OVERDUE_AT_LEAST: Final = 30.0
"""Minimum in seconds, however short the interval is: a single query may take several seconds."""


def why_unsuccessful(
    rule_set: RuleSet,
    results: Mapping[str, QueryResult],
    failures: Sequence[WriteFailure],
    planned: int,
) -> str | None:
    """Why a tick failed, or None if it succeeded.

    It fails if no marking rule could be queried (a failure of some only affects the health of these
    rules), or if some of the ``planned`` writes failed.
    """
    if not is_answered(rule_set, results):
        return f"no rule could be queried: {results[rule_set.marking_rules[0].name].error}"
    if failures:
        return f"{len(failures)} of {planned} nodes could not be written: {failures[0]}"
    return None


def is_answered(rule_set: RuleSet, results: Mapping[str, QueryResult]) -> bool:
    """Whether the query of at least one rule that may mark nodes succeeded."""
    return any(results[rule.name].error is None for rule in rule_set.marking_rules)


def why_unhealthy(tick: Tick | None, age: float, interval: float) -> str | None:
    """Why `/status` is not ok, in one line, or None if it is.

    ``age`` is the tick's age in seconds, by a monotonic clock.
    """
    if tick is None:
        return "no tick has finished yet"
    if age > overdue_after(interval):
        return f"the last tick finished {format_duration(round(age))} ago"
    return tick.error or _why_none_is_usable(tick)


def overdue_after(interval: float) -> float:
    """Seconds without a finished tick after which the loop counts as stuck."""
    return max(OVERDUE_AT_LEAST, OVERDUE_INTERVALS * interval)


def _marking_health(tick: Tick) -> list[RuleHealth]:
    """The health of the `RuleSet.marking_rules`."""
    names = {rule.name for rule in tick.rule_set.marking_rules}
    return [health for health in tick.rules if health.rule.name in names]


def is_blind(tick: Tick) -> bool:
    """Whether there are nodes, but no rule that may mark them has a usable value for any."""
    marking = _marking_health(tick)
    usable = any(health.quality.get(Quality.OK) for health in marking)
    return bool(marking and tick.evaluation.table.entries) and not usable


def _why_none_is_usable(tick: Tick) -> str | None:
    """Why no marking rule has a usable sample for any node, or None if one has.

    Queries that succeed without such a sample (no series, only stale or invalid samples, names that
    match no node) are reported like queries that fail.
    """
    if not is_blind(tick):
        return None
    names = [health.rule.name for health in _marking_health(tick)]
    first = next(iter(by_reason(unusable_rules(tick, names))))
    return f"no rule returned a usable sample for any node: {first}"


def unusable_rules(tick: Tick, names: Collection[str]) -> dict[str, str]:
    """For each of these rules without a usable reading on any node, the reason."""
    unmatched = unmatched_rules(tick)
    return {
        health.rule.name: health.error
        or unmatched.get(health.rule.name)
        or f"none of its readings is usable ({_counts(health)})"
        for health in tick.rules
        if health.rule.name in names and not health.quality.get(Quality.OK)
    }


def _counts(health: RuleHealth) -> str:
    counts = ((health.quality.get(quality, 0), quality) for quality in Quality)
    return ", ".join(f"{count} {quality}" for count, quality in counts if count)


def unmatched_rules(tick: Tick) -> dict[str, str | None]:
    """For each rule whose query succeeds, why none of its samples matches a node, or None if one
    does. Examples are a misspelled metric, and an aggregation that drops the node's label.
    """
    matched = tick.evaluation.matched
    return {
        health.rule.name: _why_unmatched(health, matched[health.rule.name].unmatched)
        for health in tick.rules
        if health.error is None and tick.evaluation.table.entries
    }


def several_series(tick: Tick) -> dict[str, str | None]:
    """For each rule whose query succeeds, a warning if it has more than one series for a node and
    what to do about it, in one line, or None.
    """
    return {
        health.rule.name: None if health.several is None else _why_several(health.several)
        for health in tick.rules
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


def _why_unmatched(health: RuleHealth, found: Sequence[Unmatched]) -> str | None:
    if health.rule.selector.requirements and not health.states:
        return Reason("selects_none", str(health.rule.selector))
    if health.samples != health.unmatched:
        return None
    if not found:
        return Reason("no_metrics" if health.rule.source == "metrics-server" else "no_series")
    if not found[0].value:
        return Reason("no_label", found[0].reason)
    return Reason("no_node", repr(found[0].value), found[0].reason)


def rules_health(
    evaluation: Evaluation,
    results: Mapping[str, QueryResult],
    last_success: Mapping[str, float],
    past_errors: Mapping[str, str] = MappingProxyType({}),
) -> tuple[RuleHealth, ...]:
    """The health of the rules, in their order. ``last_success`` is in Unix seconds, by rule."""
    return tuple(
        _rule_health(evaluation, rule, results[rule.name], last_success, past_errors)
        for rule in evaluation.rule_set.rules
    )


def _rule_health(
    evaluation: Evaluation,
    rule: Rule,
    result: QueryResult,
    last_success: Mapping[str, float],
    past_errors: Mapping[str, str],
) -> RuleHealth:
    alerts = [found[rule.name] for found in evaluation.alerts.values() if rule.name in found]
    matched = evaluation.matched.get(rule.name)
    return RuleHealth(
        rule=rule,
        error=result.error,
        warnings=result.warnings,
        duration=result.duration,
        is_new=result.is_new,
        last_success=last_success.get(rule.name),
        samples=len(result.samples),
        unmatched=len(matched.unmatched) if matched else 0,
        quality=Counter[Quality](alert.quality for alert in alerts),
        states=Counter[AlertState](alert.state for alert in alerts),
        past_error=past_errors.get(rule.name),
        several=matched.several if matched else None,
    )
