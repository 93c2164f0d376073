"""A PromQL expression, as far as the checks go by its form. Read by promql-parser.

That takes memory and time with the square of the number of operators (2,000 of them: 15 s), so an
expression that is nested too deeply, or joins too many parts, is not given to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import promql_parser as promql

from dynsched.rules.promql import MAX_DEPTH, NotUnderstoodError
from dynsched.rules.promql import parse as parse_form
from dynsched.util.formatting import one_line

MAX_LENGTH: Final = 4_000
_MAX_OPERATORS: Final = 300
_OPERATOR: Final = re.compile(r"[-+*/%^(]|\b(?:and|or|unless)\b", re.IGNORECASE)
_LEGACY: Final = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]*")
_RATES: Final = frozenset(
    {"rate", "irate", "increase", "xrate", "xincrease", "rate_prometheus", "increase_prometheus"}
)
_RANKS: Final = frozenset({"topk", "bottomk", "limitk", "limit_ratio"})
_CONDITIONS: Final = frozenset({"and", "unless"})
_WITHOUT_LABELS: Final = frozenset({"absent", "absent_over_time", "vector", "scalar", "time", "pi"})
_PERCENT: Final = 100.0
_MATCH: Final = {"Equal": "=", "NotEqual": "!=", "Re": "=~", "NotRe": "!~"}


class UnreadError(ValueError):
    """An expression that is not read, with the reason."""


@dataclass(frozen=True, slots=True)
class Matcher:
    """``name op value`` of a selector."""

    name: str
    op: str
    value: str

    def __str__(self) -> str:
        return f"{self.name}{self.op}{quoted(self.value)}"

    @property
    def wants_something(self) -> bool:
        """Whether a series must have this label, or this value, to be selected."""
        return self.op in ("=", "=~") and self.value not in ("", ".*", ".+")


@dataclass(frozen=True, slots=True)
class Selector:
    """One selector, and what stands around it.

    ``reach``: how many seconds back its samples may be, by its range, offset, and subqueries
    around it. ``functions``: the names of functions and aggregations around it, the innermost
    first. ``is_condition``: it only picks series of others, at the right of ``and`` or ``unless``;
    ``is_combined``: there is an ``and`` above it.
    """

    metric: str
    matchers: tuple[Matcher, ...]
    range: float | None = None
    reach: float = 0.0
    functions: tuple[str, ...] = ()
    is_condition: bool = False
    is_combined: bool = False
    in_subquery: bool = False

    @property
    def text(self) -> str:
        """As PromQL, without range and offset."""
        return selector_text(self.metric, self.matchers)

    @property
    def rate(self) -> str | None:
        """The function that makes a rate of its range; None where none does."""
        found = self.functions[:1]
        return found[0] if self.range is not None and found and found[0] in _RATES else None

    @property
    def is_rated(self) -> bool:
        """Whether a rate is made of it somewhere."""
        return not _RATES.isdisjoint(self.functions)


@dataclass(frozen=True, slots=True)
class Expression:
    """What the checks need to know. ``parts``: the texts of all calls, aggregations and binary
    operations in it, in one spelling, the whole included.
    """

    root: Any
    selectors: tuple[Selector, ...]
    parts: tuple[str, ...]
    ranks: bool
    divides: bool
    divides_aggregates: bool
    is_percent: bool
    rates_of_sums: tuple[str, ...]

    def drops(self, labels: tuple[str, ...]) -> str | None:
        """The part that takes each of ``labels`` from the series; None where one of them stays."""
        found = [_drops(self.root, label) for label in labels]
        return None if None in found else found[-1]

    @property
    def reach(self) -> float:
        """How many seconds back it looks."""
        return max((each.reach for each in self.selectors), default=0.0)


def read(text: str) -> Expression:
    """The expression. UnreadError with the reason."""
    if len(text) > MAX_LENGTH or len(_OPERATOR.findall(text)) > _MAX_OPERATORS:
        raise UnreadError(
            f"the expression has more than {MAX_LENGTH} characters or {_MAX_OPERATORS} operators"
        )
    try:
        parse_form(text)
    except NotUnderstoodError as error:
        if "deep" in str(error):
            raise UnreadError(f"it is nested more than {MAX_DEPTH} deep") from None
    try:
        root = promql.parse(text)
    except ValueError as error:
        raise UnreadError(f"promql-parser does not read it: {one_line(str(error))}") from None
    found = tuple(_walk(root))
    operations = [each for each in found if isinstance(each, promql.BinaryExpr)]
    divisions = [each for each in operations if str(each.op) == "/"]
    return Expression(
        root,
        tuple(_selectors(root, _Above())),
        tuple(dict.fromkeys(spelled(each) for each in found if _is_part(each))),
        ranks=any(_is_aggregate(each) and str(each.op) in _RANKS for each in found),
        divides=bool(divisions),
        divides_aggregates=any(
            _aggregates(each.lhs) and _aggregates(each.rhs) for each in divisions
        ),
        is_percent=any(_is_percent(each) for each in operations),
        rates_of_sums=tuple(_rates_of_sums(found)),
    )


def quoted(value: str) -> str:
    """A string of PromQL."""
    escaped = value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    return f'"{escaped}"'


def selector_text(metric: str, matchers: tuple[Matcher, ...]) -> str:
    """``metric{label="value"}``; a name with dots or the like is written as a matcher."""
    if metric and _LEGACY.fullmatch(metric) is None:
        metric, matchers = "", (Matcher("__name__", "=", metric), *matchers)
    inner = ",".join(map(str, matchers))
    return f"{metric}{{{inner}}}" if inner or not metric else metric


def spelled(node: Any) -> str:
    """A part of an expression as text, in one spelling for all."""
    return " ".join(str(node).split()).replace("{}", "")


@dataclass(frozen=True, slots=True)
class _Above:
    functions: tuple[str, ...] = ()
    reach: float = 0.0
    is_condition: bool = False
    is_combined: bool = False
    in_subquery: bool = False

    def within(self, function: str) -> _Above:
        return replace(self, functions=(function, *self.functions))


def _selectors(node: Any, above: _Above) -> Iterator[Selector]:
    if isinstance(node, promql.VectorSelector):
        yield _selector(node, above, None)
    elif isinstance(node, promql.MatrixSelector):
        yield _selector(node.vector_selector, above, node.range.total_seconds())
    elif isinstance(node, promql.SubqueryExpr):
        length = node.range.total_seconds() if node.range is not None else 0.0
        reach = above.reach + length + _offset(node)
        yield from _selectors(node.expr, replace(above, reach=reach, in_subquery=True))
    elif isinstance(node, promql.BinaryExpr):
        operator = str(node.op).lower()
        picks = operator in _CONDITIONS
        both = replace(above, is_combined=above.is_combined or operator == "and")
        yield from _selectors(node.lhs, both)
        yield from _selectors(node.rhs, replace(both, is_condition=above.is_condition or picks))
    else:
        name = _name(node)
        inside = above.within(name) if name else above
        for each in _children(node):
            yield from _selectors(each, inside)


def _selector(node: Any, above: _Above, seconds: float | None) -> Selector:
    matchers = [
        Matcher(each.name, _MATCH[str(each.op).rpartition(".")[2]], each.value)
        for each in node.matchers.matchers
    ]
    metric = node.name or ""
    for each in matchers:
        if each.name == "__name__" and each.op == "=" and not metric:
            metric = each.value
    kept = tuple(each for each in matchers if not (each.name == "__name__" and metric))
    return Selector(
        metric,
        kept,
        seconds,
        above.reach + (seconds or 0.0) + _offset(node),
        above.functions,
        above.is_condition,
        above.is_combined,
        above.in_subquery,
    )


def _offset(node: Any) -> float:
    return max(0.0, node.offset.total_seconds()) if node.offset is not None else 0.0


def _children(node: Any) -> tuple[Any, ...]:
    if isinstance(node, promql.BinaryExpr):
        return (node.lhs, node.rhs)
    if isinstance(node, promql.AggregateExpr):
        return (node.expr,) if node.param is None else (node.expr, node.param)
    if isinstance(node, promql.Call):
        return tuple(node.args)
    if isinstance(node, promql.ParenExpr | promql.UnaryExpr | promql.SubqueryExpr):
        return (node.expr,)
    return ()


def _walk(node: Any) -> Iterator[Any]:
    yield node
    for each in _children(node):
        yield from _walk(each)


def _name(node: Any) -> str:
    if _is_aggregate(node):
        return str(node.op).lower()
    return str(node.func.name) if isinstance(node, promql.Call) else ""


def _is_aggregate(node: Any) -> bool:
    return isinstance(node, promql.AggregateExpr)


def _is_part(node: Any) -> bool:
    return isinstance(node, promql.AggregateExpr | promql.Call | promql.BinaryExpr)


def _bare(node: Any) -> Any:
    while isinstance(node, promql.ParenExpr | promql.UnaryExpr):
        node = node.expr
    return node


def _aggregates(node: Any) -> bool:
    return any(_is_aggregate(each) and str(each.op) not in _RANKS for each in _walk(node))


def _is_percent(node: Any) -> bool:
    sides = (_bare(node.lhs), _bare(node.rhs))
    return str(node.op) == "*" and any(
        isinstance(each, promql.NumberLiteral) and each.val == _PERCENT for each in sides
    )


def _rates_of_sums(nodes: tuple[Any, ...]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, promql.Call) and node.func.name in _RATES:
            for each in node.args:
                if isinstance(each, promql.SubqueryExpr) and _aggregates(each.expr):
                    yield spelled(node)


def _drops(node: Any, label: str) -> str | None:
    """The part that takes ``label`` from the series; None where it stays, or nobody can tell."""
    if isinstance(node, promql.BinaryExpr):
        return _dropped_by_operator(node, label)
    if _is_aggregate(node):
        return _dropped_by_aggregation(node, label)
    if isinstance(node, promql.Call):
        return _dropped_by_call(node, label)
    inner = _children(node)
    return _drops(inner[0], label) if inner else None


def _dropped_by_call(node: Any, label: str) -> str | None:
    name, arguments = node.func.name, list(node.args)
    if name in _WITHOUT_LABELS:
        return spelled(node)
    strings = [each.val for each in arguments if isinstance(each, promql.StringLiteral)]
    if name in ("label_replace", "label_join") and strings[:1] == [label]:
        return None
    vectors = [each for each in arguments if not _is_constant(each)]
    return _drops(vectors[0], label) if vectors else None


def _dropped_by_aggregation(node: Any, label: str) -> str | None:
    if str(node.op) in _RANKS:
        return _drops(node.expr, label)
    modifier = node.modifier
    names = [] if modifier is None else list(modifier.labels)
    keeps = modifier is not None and (label in names) is (
        modifier.type == promql.AggModifierType.By
    )
    if str(node.op) == "count_values" and isinstance(node.param, promql.StringLiteral):
        keeps = keeps or node.param.val == label
    return _drops(node.expr, label) if keeps else spelled(node)


def _dropped_by_operator(node: Any, label: str) -> str | None:
    if _is_constant(node.lhs) or _is_constant(node.rhs):
        return _drops(node.rhs if _is_constant(node.lhs) else node.lhs, label)
    if str(node.op).lower() in ("and", "unless", "or"):
        return _drops(node.lhs, label)
    modifier = node.modifier
    card = None if modifier is None else modifier.card
    many = (promql.VectorMatchCardinality.ManyToOne, promql.VectorMatchCardinality.OneToMany)
    if modifier is not None and card in many:
        if label in modifier.group_labels:
            return None
        return _drops(node.lhs if card == many[0] else node.rhs, label)
    matching = None if modifier is None else modifier.matching
    if matching is not None:
        includes = matching.type == promql.LabelModifierType.Include
        if (label in matching.labels) is not includes:
            return spelled(node)
    return _drops(node.lhs, label) or _drops(node.rhs, label)


def _is_constant(node: Any) -> bool:
    node = _bare(node)
    if isinstance(node, promql.NumberLiteral | promql.StringLiteral):
        return True
    if isinstance(node, promql.BinaryExpr):
        return _is_constant(node.lhs) and _is_constant(node.rhs)
    return isinstance(node, promql.Call) and node.func.name in ("scalar", "time", "pi")
