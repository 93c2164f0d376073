"""A PromQL expression, as far as the checks go by its form."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import promql_parser as promql

from dynsched.rules.promql import UnreadError, is_hundred, parse, parts_of, walk
from dynsched.util.formatting import escaped, label_name

_LEGACY: Final = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]*")
_MATCH: Final = {"Equal": "=", "NotEqual": "!=", "Re": "=~", "NotRe": "!~"}


class Matcher(NamedTuple):
    name: str
    op: str
    value: str

    def __str__(self) -> str:
        return f"{label_name(self.name)}{self.op}{quoted(self.value)}"


@dataclass(frozen=True, slots=True)
class SeriesSelector:
    """``is_condition``: it only picks series of others, at the right of ``and`` or ``unless``."""

    metric: str
    matchers: tuple[Matcher, ...]
    is_condition: bool = False

    @property
    def text(self) -> str:
        return selector_text(self.metric, self.matchers)


@dataclass(frozen=True, slots=True)
class Expression:
    """``unread``: why it could not be parsed; nothing else is known then."""

    unread: str | None = None
    selectors: tuple[SeriesSelector, ...] = ()
    divides: bool = False
    is_percent: bool = False
    root: Any = None

    def adds_up(self, selector: SeriesSelector, label: str) -> bool:
        """Whether a sum or a count adds up the series of a selector that differ in ``label``. In
        both sides of a division that changes nothing.
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
        root=root,
    )


def quoted(value: str) -> str:
    return f'"{escaped(value)}"'


def selector_text(metric: str, matchers: tuple[Matcher, ...]) -> str:
    """``metric{label="value"}``; a name with dots or the like is written as a matcher."""
    if metric and _LEGACY.fullmatch(metric) is None:
        metric, matchers = "", (Matcher("__name__", "=", metric), *matchers)
    inner = ",".join(map(str, matchers))
    return f"{metric}{{{inner}}}" if inner or not metric else metric


def _selectors(node: Any, *, picks: bool = False) -> Iterator[SeriesSelector]:
    """Those in a part of an expression. ``picks``: the part is a condition."""
    if isinstance(node, promql.MatrixSelector):
        node = node.vector_selector
    if isinstance(node, promql.VectorSelector):
        yield SeriesSelector(*_matched(node), picks)
    elif isinstance(node, promql.BinaryExpr):
        yield from _selectors(node.lhs, picks=picks)
        picks = picks or str(node.op).lower() in ("and", "unless")
        yield from _selectors(node.rhs, picks=picks)
    else:
        for each in parts_of(node):
            yield from _selectors(each, picks=picks)


def _matched(node: Any) -> tuple[str, tuple[Matcher, ...]]:
    matchers = tuple(
        Matcher(each.name, _MATCH[str(each.op).rpartition(".")[2]], each.value)
        for each in node.matchers.matchers
    )
    named = [each.value for each in matchers if (each.name, each.op) == ("__name__", "=")]
    metric = node.name or "".join(named[:1])
    return metric, tuple(each for each in matchers if not (each.name == "__name__" and metric))


_ADDING: Final = frozenset({"sum", "count"})
_Selectors = frozenset[SeriesSelector]


def _summed(node: Any, label: str) -> tuple[_Selectors, _Selectors]:
    """The selectors whose ``label`` is still there in the series of this part, and the selectors of
    which series that differ in it are added up.
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
