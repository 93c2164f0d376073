"""The checks of rules against what Prometheus knows: P0 to P6 here, all of them called. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from dynsched.engine.match import match_samples
from dynsched.engine.model import Sample
from dynsched.engine.wording import counted, some
from dynsched.rules.lint import lint
from dynsched.rules.rule_set import RuleSet
from dynsched.tools.doctor.checks_nodes import clocks, late_samples, uncovered
from dynsched.tools.doctor.checks_server import (
    costs,
    looks_back_too_far,
    several_clusters,
    throttling,
    values_against_thresholds,
)
from dynsched.tools.doctor.expressions import RATES
from dynsched.tools.doctor.finding import Finding, NotChecked, Told, error, findings, warning
from dynsched.tools.doctor.gathered import RuleFacts, SelectorFacts, World
from dynsched.util.durations import format_duration
from dynsched.util.formatting import format_value, one_line

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
_BY_FORM: Final = ("P2", "P3", "P5", "P8", "P11")
"""Checks that go by an expression's form."""
_SHOWN: Final = 100


def check_rules(world: World) -> Iterator[Finding | NotChecked]:
    """All findings about rules."""
    for code, reason in world.errors.items():
        yield NotChecked(code, None, reason)
    yield from findings("N1", clocks(world))
    for rule in world.rules:
        name = rule.rule.name
        if rule.expression.unread:
            yield from (NotChecked(code, name, rule.expression.unread) for code in _BY_FORM)
        if rule.answer.error is not None:
            yield from findings("P0", [_query_fails(rule.answer.error)], name)
        else:
            for code, check in _CHECKS:
                yield from findings(code, check(rule, world), name)
    for warned in lint(world.rule_set):
        if warned.rule:
            what, _, remedy = warned.message.rpartition(". ")
            told = warning(what, _expr(world.rule_set, warned.rule), remedy)
            yield from findings("P5", [told], warned.rule)


def _query_fails(reason: str) -> Told:
    return error(
        "the query of the rule fails, so the rule knows nothing of any node",
        reason,
        "run the expression in Prometheus's own page, and correct it",
    )


def _expr(rule_set: RuleSet, name: str) -> str:
    found = next((rule.expr for rule in rule_set.rules if rule.name == name), None)
    return one_line(found or "", _SHOWN)


def _absent(rule: RuleFacts, _: World) -> Iterator[Told]:
    tell = warning if rule.answer.samples else error
    for facts in rule.selectors:
        # What would pick or leave out series of others need not be there.
        is_needed = not (facts.selector.is_condition and rule.answer.samples)
        if facts.series == 0 and is_needed:
            yield tell(*_why_absent(facts))


def _why_absent(facts: SelectorFacts) -> tuple[str, str, str]:
    selector = facts.selector
    if facts.missing:
        first = facts.missing[0]
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


def _short_range(rule: RuleFacts, _: World) -> Iterator[Told]:
    for facts in rule.selectors:
        selector, interval = facts.selector, facts.interval
        within = "".join(selector.functions[:1])
        if within not in RATES or selector.range is None or not interval:
            continue
        scrapes = selector.range / interval
        if scrapes >= ENOUGH_SCRAPES - _JITTER:
            continue
        is_defect = scrapes < NEEDED_SCRAPES - _JITTER
        shown = f"{within}({selector.text}[{format_duration(selector.range)}])"
        often = format_duration(round(interval, 1))
        yield (error if is_defect else warning)(
            f"the range of {one_line(shown, _SHOWN)} is too short for its scrape interval: "
            + ("it has no value most of the time" if is_defect else "one lost scrape is a gap"),
            f"{scrapes:.1f} scrapes: a sample every {often}"
            + (f" (job {facts.job})" if facts.job else ""),
            f"write a range of {format_duration(math.ceil(ENOUGH_SCRAPES * interval))} or more",
        )


def _bare_counter(rule: RuleFacts, _: World) -> Iterator[Told]:
    for facts in rule.selectors:
        selector = facts.selector
        is_counter = facts.kind == "counter" or (
            facts.kind in (None, "unknown") and selector.metric.endswith("_total")
        )
        is_meant = not (_COUNTED | RATES).isdisjoint(selector.functions)
        if not is_counter or is_meant or selector.is_condition:
            continue
        why = "its type is counter" if facts.kind == "counter" else "its name ends in _total"
        yield error(
            f"{selector.metric} is a counter, and no rate is made of it: it only grows, until its "
            "process starts again",
            f"{selector.text}: {why}",
            f"write rate({one_line(selector.text, _SHOWN)}[5m])",
        )


def _rate_of_a_sum(rule: RuleFacts, _: World) -> Iterator[Told]:
    for text in rule.expression.rates_of_sums:
        yield error(
            "a rate is made of a sum: where one counter of it starts again, the rate jumps",
            one_line(text, _SHOWN),
            "make the rate first and the sum of the rates: sum by (instance) (rate(...))",
        )


def _one_series_a_node(rule: RuleFacts, world: World) -> Iterator[Told]:
    labels = rule.rule.node_labels
    bare = [each for each in rule.answer.samples if each.labels.keys().isdisjoint(labels)]
    if bare:
        culprit = rule.expression.drops(labels)
        yield error(
            f"the samples have no label {' or '.join(labels)}, so they belong to no node",
            f"{one_line(culprit, _SHOWN)} drops it"
            if culprit
            else f"labels of a sample: {', '.join(sorted(bare[0].labels)) or 'none'}",
            f"aggregate by the node: sum by ({labels[-1]}) (...), or set node_label",
        )
    elif several := _several(rule, world):
        yield warning(
            "there are several series for one node, and the worst of them counts",
            several,
            f"aggregate by the node: max by ({labels[-1]}) (...), or select one of the series",
        )


def _several(rule: RuleFacts, world: World) -> str | None:
    if world.index is not None:
        found = match_samples(rule.rule, rule.answer.samples, world.index).several
        if found is None:
            return None
        differ = ", ".join(found.labels) or "nothing"
        return f"{found.example} and {found.nodes - 1} more; the series differ in {differ}"
    names = Counter(_node_of(each, rule) for each in rule.answer.samples)
    shared = [name for name, count in names.items() if count > 1]
    return f"{some(shared, 3)}: {names[shared[0]]} series" if shared else None


def _node_of(sample: Sample, rule: RuleFacts) -> str:
    labels = (sample.labels[label] for label in rule.rule.node_labels if label in sample.labels)
    return next(labels, "?")


def _no_patience(rule: RuleFacts, _: World) -> Iterator[Told]:
    expression = rule.expression
    if expression.divides_aggregates and not rule.rule.hold_duration:
        yield warning(
            "a ratio of aggregates without `for`: one scrape that is lost on one side of it is a "
            "value that was never there, and marks the node at once",
            f"for: 0s; {one_line(expression.parts[0], _SHOWN)}",
            "write for: 1m or longer",
        )


def _no_number(rule: RuleFacts, _: World) -> Iterator[Told]:
    odd = [each for each in rule.answer.samples if not math.isfinite(each.value)]
    ever = rule.past.odd if rule.past else 0
    if odd or ever:
        yield warning(
            "the value is no finite number on some nodes"
            + (": a division by 0" if rule.expression.divides else "")
            + "; such a node is unknown",
            f"now: {some([_node_of(each, rule) for each in odd], 3)} ({format_value(odd[0].value)})"
            if odd
            else f"at one moment of the last 7 days: {counted(ever, 'node')}",
            "divide only by what is there, and say what counts else: (A / (B > 0)) or (B * 0)",
        )


_CHECKS: Final[tuple[tuple[str, Callable[[RuleFacts, World], Iterator[Told]]], ...]] = (
    ("P1", _absent),
    ("P2", _short_range),
    ("P3", _bare_counter),
    ("P3", _rate_of_a_sum),
    ("P4", _one_series_a_node),
    ("P5", _no_patience),
    ("P6", _no_number),
    ("P7", costs),
    ("P8", looks_back_too_far),
    ("P9", values_against_thresholds),
    ("P10", several_clusters),
    ("P11", throttling),
    ("N1", late_samples),
    ("N1", uncovered),
)
