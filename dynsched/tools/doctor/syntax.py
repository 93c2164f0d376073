"""`dynsched check`: parses the expressions of rules files, by a server (--prom) or else here."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from dynsched.core.load.lag import needs_reach
from dynsched.rules.parse import ParsedRules
from dynsched.rules.promql import UnreadError, parse

if TYPE_CHECKING:  # importing it takes half a second, and only a check with a server needs it
    from dynsched.sources.prometheus import PrometheusSource

_PLACE: Final = re.compile(r"\b\d+:\d+: parse error: .*", re.DOTALL)
"""The part of a Prometheus error that begins with the position in the expression."""

UNREAD: Final = "neither dynsched nor this server's parse_query can read its ranges"
SAY_LAG: Final = "write `lag:` in the rule (docs/rules.md#lag)"


def parse_here(report: ParsedRules) -> ParsedRules:
    """Add a warning for each expression that cannot be parsed here; a server may parse it."""
    warnings, rules = [*report.warnings], report.rule_set
    for index, rule in enumerate(rules.rules if rules else ()):
        try:
            parse(rule.expr or "0")
        except UnreadError as error:
            message = f"warning: rule {rule.name}: the expression was not checked: {error}; let "
            message += "Prometheus parse it with --prom URL"
            if rules and rule in rules.expecting_rules and rule.lag is None:
                message += f"; if it is right, {SAY_LAG}"
            warnings.append(report.of_expr(index, message))
    return replace(report, warnings=tuple(warnings))


async def parse_by_server(
    reports: Sequence[ParsedRules], source: PrometheusSource
) -> tuple[list[ParsedRules], str | None]:
    """The reports, with the expressions that the server refuses; and why it could not be queried.
    Each expression is evaluated once, because every server has an endpoint for that.
    """
    found = list(reports)
    for at, report in enumerate(reports):
        for index, rule in enumerate(report.rule_set.rules if report.rule_set else ()):
            if rule.expr is None:
                continue
            answer = await source.query_expr(rule.expr)
            if answer.error is None:
                is_used = report.rule_set and rule in report.rule_set.expecting_rules
                if is_used and needs_reach(rule) and await source.reach(rule.expr) is None:
                    message = f"warning: rule {rule.name}: it is not known how late its values are"
                    late = report.of_expr(index, f"{message}: {UNREAD}; {SAY_LAG}")
                    found[at] = replace(found[at], warnings=(*found[at].warnings, late))
                continue
            if not answer.refused:
                return found, answer.error
            match = _PLACE.search(answer.error)
            reason = match[0] if match else answer.error
            message = f"rule {rule.name}: Prometheus refuses the expression: {reason}"
            refused = report.of_expr(index, message)
            found[at] = replace(found[at], errors=(*found[at].errors, refused))
    return found, None
