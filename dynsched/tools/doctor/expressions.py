"""The properties of a PromQL expression that the checks use."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import promql_parser as promql

from dynsched.rules.promql import (
    RANKS,
    UnreadError,
    bare,
    is_hundred,
    name_of,
    parse,
    parts_of,
    walk,
)
from dynsched.util.formatting import escaped, label_name

_LEGACY: Final = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]*")
_KEEP_LABELS: Final = frozenset({"ceil", "clamp", "clamp_max", "clamp_min", "floor", "round"})
_MATCH: Final = {"Equal": "=", "NotEqual": "!=", "Re": "=~", "NotRe": "!~"}


class Matcher(NamedTuple):
    name: str
    op: str
    value: str

    def __str__(self) -> str:
        return f"{label_name(self.name)}{self.op}{quoted(self.value)}"


@dataclass(frozen=True, slots=True)
class SeriesSelector:
    """``is_condition``: it only filters other series, on the right of ``and`` or ``unless``."""

    metric: str
    matchers: tuple[Matcher, ...]
    is_condition: bool = False

    @property
    def text(self) -> str:
        return selector_text(self.metric, self.matchers)


class Join(NamedTuple):
    """``group_left``, ``group_right``, or ``on`` alone, with a one-side that is not aggregated to
    one series per group: a second series fails the query for all nodes. ``lasting``: the
    aggregation to write instead.
    """

    one_side: str
    lasting: str


@dataclass(frozen=True, slots=True)
class Expression:
    """``unread``: why it could not be parsed; nothing else is known then."""

    unread: str | None = None
    selectors: tuple[SeriesSelector, ...] = ()
    divides: bool = False
    is_percent: bool = False
    alternatives: tuple[str, ...] = ()
    """The operands of an ``or`` that is the whole expression, apart from numbers and functions that
    keep labels; without an ``or``, the whole expression."""
    joins: tuple[Join, ...] = ()
    root: Any = None

    def adds_up(self, selector: SeriesSelector, label: str) -> bool:
        """Whether a sum or a count adds up the series of a selector that differ in ``label``. If
        both sides of a division do so, it cancels out, and does not count.
        """
        return self.root is not None and selector in _summed(self.root, label)[1]


def read(text: str) -> Expression:
    try:
        root = parse(text)
    except UnreadError as error:
        return Expression(str(error))
    operations = [each for each in walk(root) if isinstance(each, promql.BinaryExpr)]
    return Expression(
        selectors=tuple(_selectors(root)),
        divides=any(str(each.op) == "/" for each in operations),
        is_percent=any(
            str(each.op) == "*" and any(map(is_hundred, parts_of(each))) for each in operations
        ),
        alternatives=tuple(map(str, _alternatives(root))),
        joins=tuple(filter(None, map(_fragile_join, operations))),
        root=root,
    )


def quoted(value: str) -> str:
    return f'"{escaped(value)}"'


def selector_text(metric: str, matchers: tuple[Matcher, ...]) -> str:
    """``metric{label="value"}``; a metric name with dots, for example, is written as a matcher."""
    if metric and _LEGACY.fullmatch(metric) is None:
        metric, matchers = "", (Matcher("__name__", "=", metric), *matchers)
    inner = ",".join(map(str, matchers))
    return f"{metric}{{{inner}}}" if inner or not metric else metric


def _selectors(node: Any, *, is_condition: bool = False) -> Iterator[SeriesSelector]:
    """The selectors in a part of an expression. ``is_condition``: the whole part is a condition."""
    if isinstance(node, promql.MatrixSelector):
        node = node.vector_selector
    if isinstance(node, promql.VectorSelector):
        yield SeriesSelector(*_matched(node), is_condition)
    elif isinstance(node, promql.BinaryExpr):
        yield from _selectors(node.lhs, is_condition=is_condition)
        is_condition = is_condition or str(node.op).lower() in ("and", "unless")
        yield from _selectors(node.rhs, is_condition=is_condition)
    else:
        for each in parts_of(node):
            yield from _selectors(each, is_condition=is_condition)


def _matched(node: Any) -> tuple[str, tuple[Matcher, ...]]:
    matchers = tuple(
        Matcher(each.name, _MATCH[str(each.op).rpartition(".")[2]], each.value)
        for each in node.matchers.matchers
    )
    named = [each.value for each in matchers if (each.name, each.op) == ("__name__", "=")]
    metric = node.name or "".join(named[:1])
    return metric, tuple(each for each in matchers if not (each.name == "__name__" and metric))


def _alternatives(node: Any) -> list[Any]:
    node = bare(node)
    if isinstance(node, promql.BinaryExpr) and str(node.op) == "or":
        return [*_alternatives(node.lhs), *_alternatives(node.rhs)]
    inner = [each for each in parts_of(node) if not isinstance(each, promql.NumberLiteral)]
    keeps = isinstance(node, promql.BinaryExpr) or name_of(node) in _KEEP_LABELS
    if keeps and len(inner) == 1 and len(found := _alternatives(inner[0])) > 1:
        return found
    return [node]


def _fragile_join(operation: Any) -> Join | None:
    modifier, cardinality = operation.modifier, promql.VectorMatchCardinality
    if modifier is None or modifier.card == cardinality.ManyToMany:
        return None
    matching = modifier.matching
    if modifier.card == cardinality.OneToOne and matching is None:  # it matches on all labels
        return None
    one_side = operation.lhs if modifier.card == cardinality.OneToMany else operation.rhs
    labels = None
    if matching is not None and matching.type == promql.LabelModifierType.Include:
        labels = dict.fromkeys((*matching.labels, *(modifier.group_labels or ())))
    if _is_aggregated(one_side, labels):
        return None
    text = str(one_side)
    if labels is None:
        return Join(text, "max by (...)")
    return Join(text, f"max by ({', '.join(map(label_name, labels))}) ({text})")


def _is_aggregated(node: Any, labels: Collection[str] | None) -> bool:
    """Whether there is one series for each group of ``labels`` (None: unknown labels)."""
    node = bare(node)
    if isinstance(node, promql.BinaryExpr):  # one aggregated side is enough
        return _is_aggregated(node.lhs, labels) or _is_aggregated(node.rhs, labels)
    if isinstance(node, promql.Call):  # label_replace changes labels, so they are unknown inside
        return name_of(node) == "vector" or any(_is_aggregated(arg, None) for arg in node.args)
    if not isinstance(node, promql.AggregateExpr) or str(node.op) in RANKS:
        return False
    modifier = node.modifier
    if labels is None or modifier is None or modifier.type != promql.AggModifierType.By:
        return True
    return set(modifier.labels) <= set(labels)


_ADDING: Final = frozenset({"sum", "count"})
_Selectors = frozenset[SeriesSelector]


def _summed(node: Any, label: str) -> tuple[_Selectors, _Selectors]:
    """Two sets of selectors: those whose ``label`` remains in the series of this part, and those
    whose series are added up although they differ in it.
    """
    if isinstance(node, (promql.MatrixSelector, promql.VectorSelector)):
        return frozenset(_selectors(node)), frozenset()
    parts = parts_of(node)
    operator = str(node.op) if isinstance(node, promql.BinaryExpr) else ""
    if operator in ("and", "unless"):
        parts = [node.lhs]
    found = [_summed(part, label) for part in parts]
    kept = frozenset[SeriesSelector]().union(*(each for each, _ in found))
    added = frozenset[SeriesSelector]().union(*(each for _, each in found))
    if operator == "/" and all(each for _, each in found):
        return kept, frozenset()
    if isinstance(node, promql.AggregateExpr) and not _keeps(node.modifier, label):
        return frozenset(), added | (kept if str(node.op) in _ADDING else frozenset())
    return kept, added


def _keeps(modifier: Any, label: str) -> bool:
    by = modifier is None or modifier.type == promql.AggModifierType.By
    return by == (modifier is not None and label in modifier.labels)
