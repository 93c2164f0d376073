"""A PromQL expression as promql-parser reads it, and the parts of what it read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, Final, NamedTuple

import promql_parser as promql

from dynsched.util.formatting import one_line

MAX_OPERATORS: Final = 150
"""The parser's time and memory grow with their square: these take some 20 ms and 5 MB, 2,000 take
15 s. Brackets count too, so that it also bounds how deep an expression is nested."""
MAX_CHARACTERS: Final = 4_000
_SIGNS: Final = "-+*/%^(<>=!["
_WORDS: Final = ("and", "or", "unless", "atan2")
_PERCENT: Final = 100.0
_CHANGE_UNIT: Final = ("+", "%", "^", "atan2")
RANKS: Final = frozenset({"topk", "bottomk", "limitk", "limit_ratio"})


class UnreadError(ValueError):
    """An expression that is not parsed here. Prometheus may parse it, or reports what is wrong."""


def parse(text: str) -> Any:
    """The expression of promql-parser. UnreadError if it does not parse, or would take too long."""
    if len(text) > MAX_CHARACTERS or _operators(text) > MAX_OPERATORS:
        raise UnreadError(
            f"it has more than {MAX_CHARACTERS} characters or {MAX_OPERATORS} operators"
        )
    try:
        return promql.parse(text)
    except ValueError as error:
        raise UnreadError(f"promql-parser cannot parse it: {one_line(str(error))}") from None


def _operators(text: str) -> int:
    """At least as many as there are: those in strings and comments count too."""
    return sum(map(text.count, _SIGNS)) + sum(map(text.lower().split().count, _WORDS))


class Reach(NamedTuple):
    """How far back an expression reads, in seconds: by its ``offset``, and from there on by its
    ranges, of which nested ones add up. Of several parts the one that reads furthest.
    """

    offset: float
    window: float


NOW: Final = Reach(0.0, 0.0)


def reach_of(found: Any) -> Reach:
    """How far back an expression reads, as `parse` returned it."""
    offset, window = (getattr(found, name, None) or timedelta() for name in ("offset", "range"))
    return _beyond(map(reach_of, parts_of(found)), offset.total_seconds(), window.total_seconds())


def reach_by_server(tree: Any) -> Reach:
    """The same, from the answer of Prometheus's ``parse_query``. UnreadError if the answer does not
    show it: Prometheus gives 0 for a range that it computes only when it evaluates the expression.
    """
    if not isinstance(tree, Mapping):
        raise UnreadError("the answer of parse_query is of another form")
    offset, window = tree.get("offset", 0), tree.get("range", 0)
    is_shown = isinstance(offset, int) and isinstance(window, int)
    if not is_shown or (window <= 0 and "range" in tree):
        raise UnreadError("the answer of parse_query does not show the range")
    named = (tree.get(name) for name in ("lhs", "rhs", "expr", "param"))
    parts = [*(part for part in named if part is not None), *(tree.get("args") or ())]
    return _beyond(map(reach_by_server, parts), offset / 1000, window / 1000)


def _beyond(parts: Iterable[Reach], offset: float, window: float) -> Reach:
    furthest = max(parts, key=sum, default=NOW)
    return Reach(furthest.offset + offset, furthest.window + window)


def is_percent(text: str) -> bool:
    """Whether the result is multiplied by 100, or subtracted from it; False where not read."""
    try:
        return _is_percent(parse(text))
    except UnreadError:
        return False


def _is_percent(found: Any) -> bool:
    if not isinstance(found, promql.BinaryExpr):
        # Sums and counts, also over time, and what has another unit than its argument.
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
    """Without the parentheses around it."""
    while isinstance(found, promql.ParenExpr):
        found = found.expr
    return found


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
