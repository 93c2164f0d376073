"""Parses PromQL expressions with promql-parser, and reads the parts of the result."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, Final, NamedTuple

import promql_parser as promql

from dynsched.util.formatting import one_line

MAX_OPERATORS: Final = 150
"""The parser's time and memory grow with the square of the number of operators: 150 take some 20 ms
and 5 MB, and 2,000 take 15 s. Brackets count too, which also limits the depth of nesting."""
MAX_CHARACTERS: Final = 4_000
_SIGNS: Final = "-+*/%^(<>=!["
_WORDS: Final = ("and", "or", "unless", "atan2")
_PERCENT: Final = 100.0
_CHANGE_UNIT: Final = ("+", "%", "^", "atan2")
RANKS: Final = frozenset({"topk", "bottomk", "limitk", "limit_ratio"})


class UnreadError(ValueError):
    """Raised for an expression that cannot be parsed here. Prometheus may parse it, or report what
    is wrong.
    """


def parse(text: str) -> Any:
    """Parse an expression with promql-parser. Raises UnreadError if this fails or would take too
    long.
    """
    if len(text) > MAX_CHARACTERS or _operators(text) > MAX_OPERATORS:
        raise UnreadError(
            f"it has more than {MAX_CHARACTERS} characters or {MAX_OPERATORS} operators"
        )
    try:
        return promql.parse(text)
    except ValueError as error:
        raise UnreadError(f"promql-parser cannot parse it: {one_line(str(error))}") from None


def _operators(text: str) -> int:
    """An upper bound for the number of operators: those in strings and comments count too."""
    return sum(map(text.count, _SIGNS)) + sum(map(text.lower().split().count, _WORDS))


class Reach(NamedTuple):
    """How far back an expression reads, in seconds: by its ``offset``, and beyond that by its
    ranges. Nested ranges add up. Of several parts, the one that reads furthest back counts.
    """

    offset: float
    window: float


NOW: Final = Reach(0.0, 0.0)


def reach_of(found: Any) -> Reach:
    """How far back an expression reads, as `parse` returned it."""
    offset, window = (getattr(found, name, None) or timedelta() for name in ("offset", "range"))
    return _furthest(map(reach_of, parts_of(found)), offset.total_seconds(), window.total_seconds())


def reach_by_server(tree: Any) -> Reach:
    """How far back an expression reads, from the response of Prometheus's ``parse_query``.

    Raises UnreadError if the response does not show it: Prometheus returns 0 for a range that it
    computes only when it evaluates the expression.
    """
    if not isinstance(tree, Mapping):
        raise UnreadError("the response of parse_query has an unexpected form")
    offset, window = tree.get("offset", 0), tree.get("range", 0)
    is_shown = isinstance(offset, int) and isinstance(window, int)
    if not is_shown or (window <= 0 and "range" in tree):
        raise UnreadError("the response of parse_query does not show the range")
    named = (tree.get(name) for name in ("lhs", "rhs", "expr", "param"))
    parts = [*(part for part in named if part is not None), *(tree.get("args") or ())]
    return _furthest(map(reach_by_server, parts), offset / 1000, window / 1000)


def _furthest(parts: Iterable[Reach], offset: float, window: float) -> Reach:
    furthest = max(parts, key=sum, default=NOW)
    return Reach(furthest.offset + offset, furthest.window + window)


def is_percent(text: str) -> bool:
    """Whether the result is multiplied by 100, or subtracted from it; False if it is not parsed."""
    try:
        return _is_percent(parse(text))
    except UnreadError:
        return False


def _is_percent(found: Any) -> bool:
    if not isinstance(found, promql.BinaryExpr):
        # Sums and counts, also over time, and functions whose result has another unit.
        others = ("sum", "count", "std", "timestamp", "deriv", "delta", "changes", "resets")
        return not name_of(found).startswith(others) and any(map(_is_percent, parts_of(found)))
    operator, sides = str(found.op), (found.lhs, found.rhs)
    if operator == "*":
        return any(is_hundred(side) or _is_percent(side) for side in sides)
    if operator == "-":
        return is_hundred(found.lhs)
    gives_bool = found.modifier is not None and found.modifier.return_bool
    return operator not in _CHANGE_UNIT and not gives_bool and _is_percent(found.lhs)


def is_hundred(found: Any) -> bool:
    found = bare(found)
    return isinstance(found, promql.NumberLiteral) and bool(found.val == _PERCENT)


def bare(found: Any) -> Any:
    """An expression without the parentheses around it."""
    while isinstance(found, promql.ParenExpr):
        found = found.expr
    return found


def name_of(found: Any) -> str:
    """The name of a function or an aggregation; empty for all else."""
    if isinstance(found, promql.AggregateExpr):
        return str(found.op)
    return str(found.func.name) if isinstance(found, promql.Call) else ""


def parts_of(found: Any) -> list[Any]:
    """The direct parts of an expression."""
    names = ("lhs", "rhs", "expr", "param", "vector_selector")
    named = (getattr(found, name, None) for name in names)
    return [*(part for part in named if part is not None), *getattr(found, "args", ())]


def walk(found: Any) -> list[Any]:
    """An expression and all its parts, at any depth."""
    return [found, *(each for part in parts_of(found) for each in walk(part))]
