"""`dynsched check`: the expressions of rules files are parsed here, where no server is named."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from dynsched.rules.check import Checked
from dynsched.tools.doctor.expressions import UnreadError, read

_IN_NO_DIALECT: Final = re.compile(
    "read it: (?:unclosed|unterminated|unexpected (?:end|right)|no expression)"
)
"""What promql-parser says of brackets and quotes without their other half."""
_NO_QUERY: Final = "read it: invalid promql query"
_OF_OTHERS: Final = re.compile(
    r"\b(?:anchored|smoothed|offset|fill\w*|with|default|if|ifnot|limit|keep_metric_names)\b|[<>]/|[,@]|\(\*",
    re.IGNORECASE,
)
"""Where promql-parser may not know what a newer Prometheus or VictoriaMetrics does."""


def parse_here(reports: Sequence[Checked]) -> tuple[Checked, ...]:
    """The reports, with an error for each expression that no server parses, and a warning for each
    that is not read here and that a server may know.
    """
    return tuple(map(_parsed_here, reports))


def _parsed_here(report: Checked) -> Checked:
    errors, warnings = [], []
    for index, rule in enumerate(report.rule_set.file_rules if report.rule_set else ()):
        try:
            read(rule.expr or "0")
        except UnreadError as error:
            why = f"{error}"
            is_strange = _NO_QUERY in why and _OF_OTHERS.search(rule.expr or "") is None
            if is_strange or _IN_NO_DIALECT.search(why):
                message = f"rule {rule.name}: the expression cannot be parsed: {why}"
                errors.append(report.place_in_expr(index, None, message))
            else:
                message = (
                    f"warning: rule {rule.name}: the expression was not checked: {why}; name the "
                    "server that is to answer it (--prom URL)"
                )
                warnings.append(report.place_in_expr(index, None, message))
    return replace(report, errors=(*report.errors, *errors), warnings=(*report.warnings, *warnings))
