"""A PromQL expression as promql-parser reads it, and the parts of what it read."""

from __future__ import annotations

import re
from typing import Any, Final

import promql_parser as promql

from dynsched.util.formatting import one_line

MAX_OPERATORS: Final = 150
"""The parser's time and memory grow with their square: these take some 20 ms and 5 MB, 2,000 take
15 s. Brackets count too, so that it also bounds how deep an expression is nested."""
MAX_CHARACTERS: Final = 4_000
_OPERATOR: Final = re.compile(r"[-+*/%^(<>=!\[]|\b(?:and|or|unless|atan2)\b", re.IGNORECASE)
_PERCENT: Final = 100.0
_KEEP_UNIT: Final = frozenset({"avg", "max", "min"})
RANKS: Final = frozenset({"topk", "bottomk", "limitk", "limit_ratio"})


class UnreadError(ValueError):
    """An expression that is not parsed here. Prometheus may parse it, or reports what is wrong."""


def parse(text: str) -> Any:
    """The expression of promql-parser. UnreadError if it does not parse, or would take too long."""
    if len(text) > MAX_CHARACTERS or len(_OPERATOR.findall(text)) > MAX_OPERATORS:
        raise UnreadError(
            f"it has more than {MAX_CHARACTERS} characters or {MAX_OPERATORS} operators"
        )
    try:
        return promql.parse(text)
    except ValueError as error:
        raise UnreadError(f"promql-parser does not read it: {one_line(str(error))}") from None


def is_percent(text: str) -> bool:
    """Whether an expression multiplies its whole result by 100. False where it is not read."""
    try:
        return _is_percent(parse(text))
    except UnreadError:
        return False


def _is_percent(found: Any) -> bool:
    if isinstance(found, promql.NumberLiteral):
        return bool(found.val == _PERCENT)
    if isinstance(found, promql.BinaryExpr):
        sides = (found.lhs, found.rhs) if str(found.op) == "*" else (found.lhs,)
        keeps = str(found.op) in ("*", "or", "and", "unless")
        return keeps and any(map(_is_percent, sides))
    keeps = isinstance(found, promql.ParenExpr) or name_of(found) in _KEEP_UNIT
    return keeps and _is_percent(found.expr)


def name_of(found: Any) -> str:
    """The name of a function or an aggregation; empty for all else."""
    if isinstance(found, promql.AggregateExpr):
        return str(found.op)
    return str(found.func.name) if isinstance(found, promql.Call) else ""


def parts_of(found: Any) -> list[Any]:
    """Its direct parts."""
    names = ("lhs", "rhs", "expr", "param", "vector_selector")
    named = (getattr(found, name, None) for name in names)
    return [*(part for part in named if part is not None), *getattr(found, "args", ())]


def walk(found: Any) -> list[Any]:
    """It, and all that stands in it."""
    return [found, *(each for part in parts_of(found) for each in walk(part))]
