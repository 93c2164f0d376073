"""The checks of a rule's values and samples: P9, P12 and N1."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from typing import Final

from dynsched.core.load.lag import lag_of, needs_reach
from dynsched.core.nodes import why_ineligible
from dynsched.core.wording import by_reason, counted, listed, some
from dynsched.tools.doctor.findings import Finding, error, hint, warning
from dynsched.tools.doctor.rule_context import CheckedRule
from dynsched.tools.doctor.syntax import SAY_LAG, UNREAD
from dynsched.util.durations import format_duration
from dynsched.util.formatting import format_threshold, format_value

BEHIND: Final = 5.0
"""Seconds by which a server's answers may be behind now. VictoriaMetrics's default is 30."""
LAG: Final = 60.0
"""Maximum age of the newest sample in seconds, unless three scrapes take longer."""
LATE: Final = 105.0
"""Seconds until a value shows a new pod in full. Above this, the order removes noticeably less of
the overload (docs/effect.md)."""
QUICK: Final = 15.0
RANGE: Final = 60.0
"""The scrape interval and the range that P12 advises, in seconds."""
_NAMED: Final = 3
_RATIO: Final = 1.0
_PERCENT: Final = 100.0


async def against_threshold(rule: CheckedRule) -> AsyncIterator[Finding]:
    """Values are ratios (0 to 1) and the threshold is a percentage, or the reverse."""
    limit, form = rule.rule, rule.expression
    values = [each.value for each in rule.answer.samples if math.isfinite(each.value)]
    if not values or not limit.higher_is_worse:
        return
    threshold, least, most = limit.threshold, min(values), max(values)
    evidence = (
        f"threshold {limit.op} {format_threshold(threshold)}; now {format_value(least)} to "
        f"{format_value(most)}"
    )
    # Percentages of an idle cluster are below 1 too; a multiplication by 100 shows that they are
    # percentages.
    are_shares = form.divides and not form.is_percent and least >= 0 and most <= _RATIO + 1e-9
    if are_shares and _RATIO < threshold <= _PERCENT:
        yield error(
            "the values are shares of 1, and the threshold is in percent: it is never passed",
            evidence,
            f"write threshold: {threshold / 100:g}, or multiply the expression by 100",
        )
    elif form.is_percent and 0 < threshold <= _RATIO < most:
        yield error(
            "the values are in percent, and the threshold is a share of 1: it is always passed",
            evidence,
            f"write threshold: {threshold * 100:g}, or do not multiply the expression",
        )


async def late_samples(rule: CheckedRule) -> AsyncIterator[Finding]:
    lags = [(await rule.queries.lag(each), each) for each in rule.expression.selectors]
    lag, late = max(lags, key=lambda each: each[0], default=(0.0, None))
    if late is None or lag <= LAG or lag <= 3 * await rule.queries.interval(rule.rule):
        return
    yield (error if lag > rule.rule.stale_after else warning)(
        "the samples come late: a node is hot for that long before the rule can see it",
        f"the newest sample of {late.text} is {format_duration(round(lag))} old",
        "scrape more often, or query the Prometheus that scrapes",
    )


async def late_for_new_pods(rule: CheckedRule) -> AsyncIterator[Finding]:
    if rule.rule not in rule.context.rule_set.expecting_rules:
        return
    reach = None
    if needs_reach(rule.rule):
        reach = await rule.queries.prometheus.reach(rule.rule.expr or "")
        if reach is None:
            yield hint("it is not known how late the values are", UNREAD, SAY_LAG)
            return
    scrape = await rule.queries.interval(rule.rule)
    own = lag_of(rule.rule, scrape or None, reach).total
    if (lag := own + rule.queries.behind) > LATE:
        where = "in the rule" if rule.rule.lag is None else "where it is recorded, and lag: 1m"
        every = f", scraped every {format_duration(round(scrape))}" if scrape else ""
        fixes = (
            ("scrape nodes every 15s", not 0 < scrape <= QUICK),
            (f"write a range of 1m {where}", own > max(RANGE, 2 * scrape)),
            ("start VictoriaMetrics with -search.latencyOffset=1s", rule.queries.behind > BEHIND),
        )
        yield hint(
            "the values show a new pod late, so the next pods may go to the same node",
            f"in full after {format_duration(round(lag))}{every}; docs/effect.md#lag says what a "
            "lag costs",
            listed([fix for fix, helps in fixes if helps]),
        )


async def uncovered(rule: CheckedRule) -> AsyncIterator[Finding]:
    """Nodes without samples, and samples without nodes."""
    context, found = rule.context, rule.matched
    if not rule.answer.samples:
        return
    applicable = [
        name
        for name, node in context.nodes.items()
        if why_ineligible(node, context.rule_set.nodes) is None
        and rule.rule.applies_to(node.labels)
    ]
    missing = sorted({*applicable} - found.readings.keys())
    if missing:
        yield (error if len(missing) == len(applicable) else warning)(
            "nodes have no sample: the rule knows nothing of them",
            f"{len(missing)} of {counted(len(applicable), 'node')}: {some(missing, _NAMED)}",
            "if P4 names another label, set it; else look at Prometheus's targets page: is their "
            "exporter running and scraped?",
        )
    unmatched = {each.value: each.reason for each in found.unmatched if each.value}
    if unmatched:
        reason, values = max(by_reason(unmatched).items(), key=lambda item: len(item[1]))
        yield (warning if missing else hint)(
            "samples belong to no node of this cluster",
            f"{counted(len(unmatched), 'sample')}, as {some(sorted(values), _NAMED)}: {reason}",
            "select only this cluster's series, or set node_label to the label with the node",
        )
