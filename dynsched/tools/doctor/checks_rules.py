"""The checks of rules against what Prometheus knows: P0 to P6 here, all of them called. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from dynsched.engine.match import NodeIndex, match_samples
from dynsched.engine.wording import counted, some
from dynsched.rules.lint import doubts
from dynsched.rules.rule_set import RuleSet
from dynsched.tools.doctor.checks_server import (
    costs,
    looks_back_too_far,
    several_clusters,
    throttling,
)
from dynsched.tools.doctor.checks_values import values_against_thresholds
from dynsched.tools.doctor.finding import Finding, NotChecked, Severity
from dynsched.tools.doctor.gathered import Missing, PrometheusFacts, RuleFacts, SelectorFacts
from dynsched.util.durations import format_duration
from dynsched.util.formatting import format_value, one_line

Found = Iterator[Finding | NotChecked]

ENOUGH_SCRAPES: Final = 4.0
NEEDED_SCRAPES: Final = 2.0
_JITTER: Final = 0.05
"""Scrapes by which a range may be short of them: distances between samples vary a little."""
_COUNTED: Final = frozenset(
    {
        *("count", "group", "absent", "absent_over_time", "present_over_time", "timestamp"),
        *("count_over_time", "changes", "resets", "deriv", "delta", "idelta", "predict_linear"),
    }
)
"""Functions that may take a counter as it is."""
_SHOWN: Final = 100


def check_rules(
    facts: PrometheusFacts, rule_set: RuleSet, interval: float, index: NodeIndex | None
) -> Found:
    """All findings about rules. ``interval``: seconds between ticks. ``index``: the nodes, where
    they are known.
    """
    for code, error in facts.errors.items():
        yield NotChecked(code, error)
    for rule in facts.rules:
        if rule.unread:
            for code in ("P2", "P3", "P5", "P8", "P11"):
                yield NotChecked(code, rule.unread, rule.rule.name)
        if rule.answer.error is not None:
            yield _query_fails(rule, rule.answer.error)
            continue
        for check in _CHECKS:
            yield from check(rule)
        yield from _one_series_a_node(rule, index)
        yield from costs(rule, interval)
        yield from looks_back_too_far(rule, facts.retention)
        yield from throttling(rule, facts.throttled)
    yield from _doubtful(rule_set)


def _query_fails(rule: RuleFacts, error: str) -> Finding:
    return Finding(
        "P0",
        Severity.ERROR,
        "the query of the rule fails, so the rule knows nothing of any node",
        error,
        "run the expression in Prometheus's own page, and correct it",
        rule.rule.name,
    )


# --- P1 ---


def _absent(rule: RuleFacts) -> Found:
    severity = Severity.WARNING if rule.answer.samples else Severity.ERROR
    told = set()
    for facts in rule.selectors:
        selector = facts.selector
        if facts.series != 0 or selector.text in told:
            continue
        if selector.is_condition and rule.answer.samples:
            continue  # what would pick or leave out series is not there, and need not be
        told.add(selector.text)
        summary, evidence, fix = _why_absent(facts)
        yield Finding("P1", severity, summary, evidence, fix, rule.rule.name)


def _why_absent(facts: SelectorFacts) -> tuple[str, str, str]:
    selector = facts.selector
    if facts.missing:
        first: Missing = facts.missing[0]
        label = first.matcher.name
        if not first.values:
            return (
                f"no series of {selector.metric} has the label {label}",
                f"{selector.text} selects none of {facts.metric_series} series",
                f"remove {first.matcher}, or add the label in the scrape configuration",
            )
        seen = "was seen within 7 days, and is gone" if facts.seen else "is not there"
        return (
            f"no series of {selector.metric} matches {first.matcher}",
            f"the value {seen}; {label} has the values {some(first.values)}",
            f"write a value of {label} that is there",
        )
    if facts.metric_series:
        return (
            f"no series of {selector.metric} has all these labels at the same time",
            f"{selector.text} selects none of {facts.metric_series} series",
            "compare the matchers with the labels of a series in Prometheus's own page",
        )
    name = selector.metric or selector.text
    if facts.metric_seen:
        return (
            f"the metric {name} has vanished",
            "it has no series now, and had some within the last 7 days",
            "look at Prometheus's page of targets: is its exporter still scraped?",
        )
    return (
        f"Prometheus has no metric {name}",
        "no series now, and none at any full hour of the last 7 days",
        "correct the name, or scrape the exporter that has it",
    )


# --- P2, P3 ---


def _short_range(rule: RuleFacts) -> Found:
    told = set()
    for facts in rule.selectors:
        selector, interval = facts.selector, facts.interval
        if selector.rate is None or selector.range is None or not interval:
            continue
        scrapes = selector.range / interval
        key = (selector.text, selector.range)
        if scrapes >= ENOUGH_SCRAPES - _JITTER or key in told:
            continue
        told.add(key)
        is_defect = scrapes < NEEDED_SCRAPES - _JITTER
        shown = f"{selector.rate}({selector.text}[{format_duration(selector.range)}])"
        often = format_duration(round(interval, 1))
        yield Finding(
            "P2",
            Severity.ERROR if is_defect else Severity.WARNING,
            f"the range of {one_line(shown, _SHOWN)} is too short for its scrape interval: "
            + ("it has no value most of the time" if is_defect else "one lost scrape is a gap"),
            f"{scrapes:.1f} scrapes: a sample every {often}"
            + (f" (job {facts.job})" if facts.job else ""),
            f"write a range of {format_duration(math.ceil(ENOUGH_SCRAPES * interval))} or more",
            rule.rule.name,
        )


def _bare_counter(rule: RuleFacts) -> Found:
    told = set()
    for facts in rule.selectors:
        selector = facts.selector
        is_counter = facts.kind == "counter" or (
            facts.kind in (None, "unknown") and selector.metric.endswith("_total")
        )
        skipped = selector.is_rated or selector.is_condition
        if not is_counter or skipped or not _COUNTED.isdisjoint(selector.functions):
            continue
        if selector.text in told:
            continue
        told.add(selector.text)
        why = "its type is counter" if facts.kind == "counter" else "its name ends in _total"
        yield Finding(
            "P3",
            Severity.ERROR,
            f"{selector.metric} is a counter, and no rate is made of it: it only grows, until its "
            "process starts again",
            f"{selector.text}: {why}",
            f"write rate({one_line(selector.text, _SHOWN)}[5m])",
            rule.rule.name,
        )
    for text in rule.expression.rates_of_sums if rule.expression else ():
        yield Finding(
            "P3",
            Severity.ERROR,
            "a rate is made of a sum: where one counter of it starts again, the rate jumps",
            one_line(text, _SHOWN),
            "make the rate first and the sum of the rates: sum by (instance) (rate(...))",
            rule.rule.name,
        )


# --- P4 ---


def _one_series_a_node(rule: RuleFacts, index: NodeIndex | None) -> Found:
    labels = rule.rule.node_labels
    culprit = rule.expression.drops(labels) if rule.expression else None
    samples = rule.answer.samples
    bare = [each for each in samples if not any(label in each.labels for label in labels)]
    wanted = " or ".join(labels)
    if bare or (culprit and not samples):
        yield Finding(
            "P4",
            Severity.ERROR,
            f"the samples have no label {wanted}, so they belong to no node",
            f"{one_line(culprit, _SHOWN)} drops it"
            if culprit
            else f"labels of a sample: {', '.join(sorted(bare[0].labels)) or 'none'}",
            f"aggregate by the node: sum by ({labels[-1]}) (...), or set node_label",
            rule.rule.name,
        )
    elif (several := _several(rule, index)) is not None:
        yield Finding(
            "P4",
            Severity.WARNING,
            "there are several series for one node, and the worst of them counts",
            several,
            f"aggregate by the node: max by ({labels[-1]}) (...), or select one of the series",
            rule.rule.name,
        )


def _several(rule: RuleFacts, index: NodeIndex | None) -> str | None:
    if index is not None:
        found = match_samples(rule.rule, rule.answer.samples, index).several
        if found is None:
            return None
        differ = ", ".join(found.labels) or "nothing"
        return f"{found.example} and {found.nodes - 1} more; the series differ in {differ}"
    names = Counter(
        next((each.labels[label] for label in rule.rule.node_labels if label in each.labels), "")
        for each in rule.answer.samples
    )
    shared = [name for name, count in names.items() if count > 1]
    return f"{some(shared, 3)}: {names[shared[0]]} series" if shared else None


# --- P5 ---


def _doubtful(rule_set: RuleSet) -> Found:
    for doubt in doubts(rule_set):
        what, _, remedy = doubt.message.rpartition(". ")
        yield Finding(
            "P5",
            Severity.WARNING,
            what or doubt.message,
            _expr(rule_set, doubt.rule),
            remedy or "see docs/rules.md",
            doubt.rule,
        )


def _expr(rule_set: RuleSet, name: str) -> str:
    found = next((rule.expr for rule in rule_set.rules if rule.name == name), None)
    return one_line(" ".join((found or "").split()), _SHOWN)


def _no_patience(rule: RuleFacts) -> Found:
    expression = rule.expression
    if expression is None or rule.rule.hold_duration or not expression.divides_aggregates:
        return
    yield Finding(
        "P5",
        Severity.WARNING,
        "a ratio of aggregates without `for`: one scrape that is lost on one side of it is a "
        "value that was never there, and marks the node at once",
        f"for: 0s; {one_line(expression.parts[0], _SHOWN)}",
        "write for: 1m or longer",
        rule.rule.name,
    )


# --- P6 ---


def _no_number(rule: RuleFacts) -> Found:
    odd = [each for each in rule.answer.samples if not math.isfinite(each.value)]
    ever = rule.past.odd if rule.past else 0
    if not odd and not ever:
        return
    names = [
        next((each.labels[label] for label in rule.rule.node_labels if label in each.labels), "?")
        for each in odd
    ]
    divides = rule.expression is not None and rule.expression.divides
    yield Finding(
        "P6",
        Severity.WARNING,
        "the value is no finite number on some nodes"
        + (": a division by 0" if divides else "")
        + "; such a node is unknown",
        f"now: {some(names, 3)} ({format_value(odd[0].value)})"
        if odd
        else f"at one moment of the last 7 days: {counted(ever, 'node')}",
        "divide only by what is there, and say what counts else: (A / (B > 0)) or (B * 0)",
        rule.rule.name,
    )


_CHECKS: Final[tuple[Callable[[RuleFacts], Found], ...]] = (
    _absent,
    _short_range,
    _bare_counter,
    _no_patience,
    _no_number,
    values_against_thresholds,
    several_clusters,
)
