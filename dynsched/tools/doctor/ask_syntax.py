"""`dynsched check --prom`: a server parses the expressions of rules files."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from dynsched.rules.check import Checked
from dynsched.sources.prometheus import PrometheusConfig, PrometheusSource

_PLACE: Final = re.compile(r"\b(\d+):(\d+): (parse error: .*)", re.DOTALL)
_REFUSED: Final = re.compile(r"bad_data|parse error|unable to parse|cannot parse", re.IGNORECASE)
_NO_PAGE: Final = re.compile(r"\b(?:404|405|501)\b|unsupported path|not found", re.IGNORECASE)


def parse_by_server(
    reports: Sequence[Checked], config: PrometheusConfig
) -> tuple[tuple[Checked, ...], str | None]:
    """The reports, with an error for each expression that the server does not parse; and why the
    server could not be asked, where it could not.
    """
    return asyncio.run(_parsed(reports, config))


async def _parsed(
    reports: Sequence[Checked], config: PrometheusConfig
) -> tuple[tuple[Checked, ...], str | None]:
    source = PrometheusSource(config)
    found, trouble = [], None
    try:
        for report in reports:
            errors = []
            rules = report.rule_set.file_rules if report.rule_set else ()
            for index, rule in enumerate(rules):
                if rule.expr is None or trouble is not None:
                    continue
                error = await _ask(source, rule.expr)
                if error is not None and _REFUSED.search(error) is None:
                    trouble = error
                elif error is not None:
                    match = _PLACE.search(error)
                    at = (int(match[1]), int(match[2])) if match else None
                    said = match[3] if match else error
                    message = f"rule {rule.name}: Prometheus cannot parse the expression: {said}"
                    errors.append(report.place_in_expr(index, at, message))
            found.append(replace(report, errors=(*report.errors, *errors)))
    finally:
        await source.close()
    return tuple(found), trouble


async def _ask(source: PrometheusSource, expr: str) -> str | None:
    """What the server says against an expression. One that cannot format (VictoriaMetrics, an old
    Prometheus) evaluates it once.
    """
    page = await source.read("format_query", {"query": expr}, only_get=False)
    if page.error is None or _NO_PAGE.search(page.error) is None or _PLACE.search(page.error):
        return page.error
    return (await source.query_expr(expr)).error
