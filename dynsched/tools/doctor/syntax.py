"""`dynsched check`: expressions of rules files are parsed, by a server (--prom) or else here."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from dynsched.rules.check import Checked
from dynsched.tools.doctor.expressions import read

if TYPE_CHECKING:  # to import it takes half a second, which a check without a server has no use for
    from dynsched.sources.prometheus import PrometheusSource

_IN_NO_DIALECT: Final = re.compile(
    r"read it: (?:unclosed|unterminated|unexpected (?:end|right|ident.* label m|.*'[~[]')|no expr)"
)
"""What promql-parser says of brackets and quotes without their other half, and of `{a=b}`."""
_NO_QUERY: Final = "read it: invalid promql query"
_OF_OTHERS: Final = re.compile(
    r"\b(?:anchored|smoothed|offset|fill\w*|with|default|if|ifnot|limit|keep_metric_names)\b|[<>]/|[,@]|\(\*",
    re.IGNORECASE,
)
"""Where promql-parser may not know what a newer Prometheus or VictoriaMetrics does."""
_PLACE: Final = re.compile(r"\b(\d+):(\d+): (parse error: .*)", re.DOTALL)
_REFUSED: Final = re.compile(r"bad_data|parse error|unable to parse|cannot parse", re.IGNORECASE)
_NO_PAGE: Final = re.compile(r"\b(?:404|405|501)\b|unsupported path|not found", re.IGNORECASE)


def parse_here(report: Checked) -> Checked:
    """An error: no server parses the expression. A warning: a server may know what is not read."""
    errors, warnings = [*report.errors], [*report.warnings]
    for index, rule in enumerate(report.rule_set.file_rules if report.rule_set else ()):
        why, place = read(rule.expr or "0").unread, partial(report.place_in_expr, index)
        if why is None:
            continue
        is_strange = _NO_QUERY in why and _OF_OTHERS.search(rule.expr or "") is None
        if is_strange or _IN_NO_DIALECT.search(why):
            errors.append(place(f"rule {rule.name}: the expression cannot be parsed: {why}"))
        else:
            message = f"warning: rule {rule.name}: the expression was not checked: {why}; name the "
            warnings.append(place(f"{message}server that is to answer it (--prom URL)"))
    return replace(report, errors=tuple(errors), warnings=tuple(warnings))


async def parse_by_server(
    reports: Sequence[Checked], source: PrometheusSource
) -> tuple[list[Checked], str | None]:
    """The reports with what the server does not parse; and why it could not be asked."""
    found = list(reports)
    try:
        for at, report in enumerate(reports):
            for index, rule in enumerate(report.rule_set.file_rules if report.rule_set else ()):
                error = await _ask(source, rule.expr) if rule.expr else None
                if error is None:
                    continue
                if _REFUSED.search(error) is None:
                    return found, error
                match = _PLACE.search(error)
                said = match[0] if match else error
                message = f"rule {rule.name}: Prometheus cannot parse the expression: {said}"
                told = report.place_in_expr(index, message)
                found[at] = replace(report, errors=(*found[at].errors, told))
    finally:
        await source.close()
    return found, None


async def _ask(source: PrometheusSource, expr: str) -> str | None:
    """What the server says against an expression. One that cannot format (VictoriaMetrics, an old
    Prometheus) evaluates it once.
    """
    _, error = await source.read("format_query", {"query": expr}, only_get=False)
    if error is None or _NO_PAGE.search(error) is None or _PLACE.search(error):
        return error
    return (await source.query_expr(expr)).error
