"""The checks of expressions (P0, P1, P5, P14, P15), and the chains of all checks of a rule."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from dynsched.core.samples import match_samples
from dynsched.core.wording import some
from dynsched.rules.lint import lint
from dynsched.sources.prometheus import PrometheusSource
from dynsched.tools.doctor import checks_series, checks_values
from dynsched.tools.doctor.expressions import SeriesSelector, read, selector_text
from dynsched.tools.doctor.findings import Chain, Finding, Report, error, warning
from dynsched.tools.doctor.rule_context import CheckedRule, Queries, RuleContext
from dynsched.util.errors import ExpectedError
from dynsched.util.formatting import one_line

_SHOWN: Final = 100


async def failing(rule: CheckedRule) -> AsyncIterator[Finding]:
    if rule.answer.error is not None:
        yield error(
            "the query of the rule fails, so the rule knows nothing of any node",
            rule.answer.error,
            "run the expression in Prometheus's web UI, and correct it",
        )


async def doubtful(rule: CheckedRule) -> AsyncIterator[Finding]:
    """The warnings of `dynsched check`."""
    if rule.expression.unread:
        raise ExpectedError(rule.expression.unread)
    for warned in lint(rule.context.rule_set):
        if warned.rule == rule.rule.name:
            what, _, remedy = warned.message.rpartition(". ")
            yield warning(what, one_line(rule.rule.expr or "", _SHOWN), remedy)


async def absent(rule: CheckedRule) -> AsyncIterator[Finding]:
    """Selectors without a series."""
    severity = warning if rule.answer.samples else error
    for selector in rule.expression.selectors:
        # A selector that only filters other series may select none.
        is_needed = not (selector.is_condition and rule.answer.samples)
        if is_needed and not await rule.queries.count(selector.text):
            yield severity(*await _why_absent(selector, rule.queries))


async def _why_absent(selector: SeriesSelector, queries: Queries) -> tuple[str, str, str]:
    metric, matchers = selector.metric, selector.matchers
    name = selector_text(metric, ()) if metric else selector.text
    present = await queries.count(name) if metric and matchers else 0
    if not present:
        return (
            f"Prometheus has no metric {name}",
            "it has no series now",
            "correct the name, or look at Prometheus's targets page: is its exporter scraped?",
        )
    for matcher in matchers:
        # Other matchers also select series without the label, or with any value of it.
        selects = matcher.op in ("=", "=~") and matcher.value not in ("", ".*", ".+")
        if selects and not await queries.count(selector_text(metric, (matcher,))):
            values = await queries.values(metric, matcher)
            return (
                f"no series of {metric} matches {matcher}",
                f"the values of {matcher.name} in {present} series: {some(values) or 'none'}",
                f"correct {matcher}, or add the label in the scrape configuration",
            )
    return (
        f"no series of {metric} has all these labels at the same time",
        f"{selector.text} selects none of {present} series",
        "compare the matchers with the labels of a series in Prometheus's web UI",
    )


async def fragile_joins(rule: CheckedRule) -> AsyncIterator[Finding]:
    """Joins with a one-side that is not aggregated to one series per group."""
    for join in rule.expression.joins:
        yield warning(
            "the query fails for all nodes as soon as one has two series in a join",
            f"not aggregated to one series per group: {one_line(join.one_side, _SHOWN)}",
            f"write instead: {one_line(join.lasting, _SHOWN)}",
        )


async def alternatives_without_nodes(rule: CheckedRule) -> AsyncIterator[Finding]:
    """Operands on the left of an ``or`` that have values, none of which belongs to a node."""
    if len(rule.expression.alternatives) == 1:
        return
    before: list[tuple[str, str]] = []
    for part in rule.expression.alternatives:
        found = match_samples(rule.rule, await rule.queries.samples(part), rule.context.lookup)
        if found.readings:
            break
        if found.unmatched:
            before.append((part, f"{found.unmatched[0].value}: {found.unmatched[0].reason}"))
    else:
        return  # N1 reports that no node has a value
    for other, why in before:
        yield warning(
            "a part of an `or` has values, but of no node: a later part has the nodes' values",
            f"{one_line(other, _SHOWN)}: {why}",
            f"make {rule.rule.node_labels[0]} the name or an address of the node in this part",
        )


_OF_EACH: Final[Chain[CheckedRule]] = (
    ("P0", failing),
    ("P5", doubtful),
    ("P14", fragile_joins),
)
_OF_ANSWERED: Final[Chain[CheckedRule]] = (
    ("P1", absent),
    ("P4", checks_series.one_series_a_node),
    ("P9", checks_values.against_threshold),
    ("P10", checks_series.copies),
    ("P12", checks_values.late_for_new_pods),
    ("P15", alternatives_without_nodes),
    ("N1", checks_values.late_samples),
    ("N1", checks_values.uncovered),
)


async def check_rules(prometheus: PrometheusSource, context: RuleContext, report: Report) -> None:
    """Run all checks of Prometheus rules. Raises ExpectedError if Prometheus answers no query."""
    rules = [rule for rule in context.rule_set.rules if rule.source == "prometheus"]
    if not rules:
        return
    clock, failed = await prometheus.ask_clock()
    answers = await asyncio.gather(*(prometheus.query_expr(rule.expr or "") for rule in rules))
    if failed and all(answer.error for answer in answers):
        raise ExpectedError(failed)
    queries = Queries(prometheus, clock)
    for rule, answer in zip(rules, answers, strict=True):
        checked = CheckedRule(rule, answer, read(rule.expr or ""), context, queries)
        await report.run(_OF_EACH, checked, rule.name)
        if answer.error is None:
            await report.run(_OF_ANSWERED, checked, rule.name)
