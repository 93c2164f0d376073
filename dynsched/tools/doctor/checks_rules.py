"""All checks of rules against what Prometheus knows; P0, P1 and P4 to P6 are here."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from typing import Final

from dynsched.core.samples import QueryResult, Sample, match_samples
from dynsched.core.wording import some
from dynsched.rules.lint import lint
from dynsched.rules.rule_set import Rule
from dynsched.sources.prometheus import PrometheusSource
from dynsched.tools.doctor import checks_values
from dynsched.tools.doctor.checks_series import (
    alternatives_without_nodes,
    another_label,
    copies,
    fragile_joins,
    with_series,
)
from dynsched.tools.doctor.checks_values import CheckedRule, RuleContext
from dynsched.tools.doctor.expressions import SeriesSelector, read, selector_text
from dynsched.tools.doctor.findings import Finding, NotChecked, error, findings, warning
from dynsched.tools.doctor.queries import Queries
from dynsched.util.errors import ExpectedError
from dynsched.util.formatting import format_value, label_name, one_line

_SHOWN: Final = 100
_NAMED: Final = 3


async def check_rules(
    prometheus: PrometheusSource, context: RuleContext
) -> list[Finding | NotChecked]:
    """ExpectedError when Prometheus tells nothing."""
    rules = [rule for rule in context.rule_set.rules if rule.source == "prometheus"]
    if not rules:
        return []
    clock, failed = await prometheus.ask_clock()
    answers = await asyncio.gather(*(prometheus.query_expr(rule.expr or "") for rule in rules))
    if failed and all(answer.error for answer in answers):
        raise ExpectedError(failed)
    queries = Queries(prometheus, clock)
    found: list[Finding | NotChecked] = [*findings("N1", checks_values.clocks(clock))]
    for rule, answer in zip(rules, answers, strict=True):
        found += [each async for each in _check_rule(rule, answer, context, queries)]
    for warned in lint(context.rule_set):
        what, _, remedy = warned.message.rpartition(". ")
        expr = context.rule_set.by_name[warned.rule].expr or ""
        finding = warning(what, one_line(expr, _SHOWN), remedy)
        found += findings("P5", [finding], warned.rule)
    return [*found, *(NotChecked(code, None, reason) for code, reason in queries.errors.items())]


async def _check_rule(
    rule: Rule, answer: QueryResult, context: RuleContext, queries: Queries
) -> AsyncIterator[Finding | NotChecked]:
    expr, expression = rule.expr or "", read(rule.expr or "")
    subject = CheckedRule(rule, answer, expression, context, queries)
    if expression.unread:
        yield NotChecked("P5", rule.name, expression.unread)
    if answer.error is not None:
        finding = error(
            "the query of the rule fails, so the rule knows nothing of any node",
            answer.error,
            "run the expression in Prometheus's own page, and correct it",
        )
        yield finding._replace(code="P0", rule=rule.name)
        for joined in findings("P14", [*fragile_joins(subject)], rule.name):
            yield joined
        return
    past = await queries.past(expr, answer.duration)
    subject = await with_series(replace(subject, past=past))
    for code, check in _CHECKS:
        found = check(subject)
        whole = [each async for each in found] if isinstance(found, AsyncIterator) else list(found)
        for finding in findings(code, whole, rule.name):
            yield finding


async def _absent(rule: CheckedRule) -> AsyncIterator[Finding]:
    severity = warning if rule.answer.samples else error
    for selector in rule.expression.selectors:
        # What would pick or leave out series of others need not be there.
        is_needed = not (selector.is_condition and rule.answer.samples)
        if is_needed and await rule.queries.count(selector.text, "P1") == 0:
            yield severity(*await _why_absent(selector, rule.queries))


async def _why_absent(selector: SeriesSelector, queries: Queries) -> tuple[str, str, str]:
    metric, matchers = selector.metric, selector.matchers
    name = selector_text(metric, ()) if metric else selector.text
    present = await queries.count(name, "P1") if metric and matchers else 0
    if not present:
        if await queries.was_seen(name):
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
    for matcher in matchers:
        # The others select what has no label, or any.
        selects = matcher.op in ("=", "=~") and matcher.value not in ("", ".*", ".+")
        if not selects or await queries.count(selector_text(metric, (matcher,)), "P1"):
            continue
        values = await queries.values(metric, matcher)
        if not values:
            return (
                f"no series of {metric} has the label {matcher.name}",
                f"{selector.text} selects none of {present} series",
                f"remove {matcher}, or add the label in the scrape configuration",
            )
        return (
            f"no series of {metric} matches {matcher}",
            f"{matcher.name} has the values {some(values)}",
            f"write a value of {matcher.name} that is there",
        )
    return (
        f"no series of {metric} has all these labels at the same time",
        f"{selector.text} selects none of {present} series",
        "compare the matchers with the labels of a series in Prometheus's own page",
    )


def _one_series_a_node(rule: CheckedRule) -> Iterator[Finding]:
    labels = rule.rule.node_labels
    node = label_name(labels[-1])
    if rule.holder:
        yield another_label(rule)
        return
    bare = [each for each in rule.answer.samples if each.labels.keys().isdisjoint(labels)]
    if bare:
        yield error(
            f"the samples have no label {' or '.join(labels)}, so they belong to no node",
            f"labels of a sample: {', '.join(sorted(bare[0].labels)) or 'none'}",
            f"aggregate by the node: sum by ({node}) (...), or set node_label",
        )
    elif several := _several(rule):
        yield warning(
            "there are several series for one node, and the worst of them counts",
            several,
            f"aggregate by the node: max by ({node}) (...), or select one of the series",
        )


def _several(rule: CheckedRule) -> str | None:
    if rule.context.lookup is not None:
        found = match_samples(rule.rule, rule.answer.samples, rule.context.lookup).several
        if found is None:
            return None
        differ = ", ".join(found.labels) or "nothing"
        return f"{found.example} and {found.nodes - 1} more; the series differ in {differ}"
    names = Counter(_node_of(each, rule) for each in rule.answer.samples)
    shared = [name for name, count in names.items() if count > 1]
    return f"{some(shared, _NAMED)}: {names[shared[0]]} series" if shared else None


def _node_of(sample: Sample, rule: CheckedRule) -> str:
    labels = (sample.labels[label] for label in rule.rule.node_labels if label in sample.labels)
    return next(labels, "?")


def _no_number(rule: CheckedRule) -> Iterator[Finding]:
    odd = [each for each in rule.answer.samples if not math.isfinite(each.value)]
    if odd:
        names = [_node_of(each, rule) for each in odd]
        yield warning(
            "the value is no finite number on some nodes"
            + (": a division by 0" if rule.expression.divides else "")
            + "; such a node is unknown",
            f"now: {some(names, _NAMED)} ({format_value(odd[0].value)})",
            "divide only by what is there, and say what counts else: (A / (B > 0)) or (B * 0)",
        )


_Check = Callable[[CheckedRule], Iterator[Finding] | AsyncIterator[Finding]]
_CHECKS: Final[tuple[tuple[str, _Check], ...]] = (
    ("P1", _absent),
    ("P4", _one_series_a_node),
    ("P6", _no_number),
    ("P9", checks_values.values_against_thresholds),
    ("P10", copies),
    ("P12", checks_values.late_for_new_pods),
    ("P14", fragile_joins),
    ("P15", alternatives_without_nodes),
    ("N1", checks_values.late_samples),
    ("N1", checks_values.uncovered),
)
