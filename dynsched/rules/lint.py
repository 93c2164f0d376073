"""Rules that are valid, but probably do not do what was intended.

Expressions that are not parsed here get no warning: Prometheus reports what is wrong with them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import promql_parser as promql

from dynsched.rules.promql import RANKS, UnreadError, name_of, parse, parts_of, walk
from dynsched.rules.rule_errors import RuleError
from dynsched.rules.rule_set import RuleSet
from dynsched.util.formatting import one_line

_COMPARISONS: Final = frozenset({"==", "!=", ">", "<", ">=", "<="})
_ALWAYS_ANSWER: Final = frozenset({"absent", "absent_over_time", "scalar", "vector"})
_ALERTS: Final = frozenset({"ALERTS", "ALERTS_FOR_STATE"})
_WRAPPERS: Final = (promql.ParenExpr, promql.UnaryExpr, promql.SubqueryExpr)
_SHOWN: Final = 60
_RATES: Final = frozenset({"rate", "irate", "increase"})
_BOUNDS: Final = frozenset({"clamp_max", "clamp"})
_CORE: Final = "node_cpu_seconds_total"
_PRESSURE: Final = ("node_pressure_", "container_pressure_")
_LEAVING: Final = frozenset(
    {
        "container_cpu_load_average_10s",
        "container_cpu_load_d_average_10s",
        "container_tasks_state",
    }
)
_UNBOUNDED: Final = (
    f"when a counter of {_CORE} dips a little, as after a restart of node-exporter, all of its "
    "seconds count as new: an idle node looks hot, or a hot one idle. Bound each core: (1 - avg by "
    f'(instance) (clamp_max(rate({_CORE}{{mode="idle"}}[2m]), 1))) * 100'
)
_PRESSURE_ALONE: Final = (
    "pressure (PSI) also rises on an idle node, when containers reach their own limits. Combine it "
    "with the node's use (docs/rules.md#examples)"
)


@dataclass(frozen=True, slots=True)
class LintWarning:
    """About a rule, with its index and name, or about another setting, with its path."""

    message: str
    index: int = -1
    rule: str = ""
    path: tuple[str | int, ...] = ()

    def __str__(self) -> str:
        where = f"rule {self.rule}" if self.rule else RuleError(self.path, "").where
        return f"{where}: {self.message}"


def lint(rule_set: RuleSet) -> Iterator[LintWarning]:
    """Settings that have no effect, or another one than in older versions, and expressions that
    probably do not measure what was intended.
    """
    if rule_set.mark.is_none and not rule_set.scores_nodes:
        yield LintWarning(
            "none, without `order` or `extender`: the rules only show which nodes are hot",
            path=("mark",),
        )
    for removed in rule_set.removed_keys:
        yield LintWarning(removed.message, path=removed.path)
    for name, profile in rule_set.extender.profiles.items():
        if profile.method == "least":
            yield LintWarning(
                "'least' is now the same as 'relative'. Write 'relative'",
                path=("extender", "profiles", name, "method"),
            )
    for index, rule in enumerate(rule_set.rules):
        try:
            expression = None if rule.expr is None else parse(rule.expr)
        except UnreadError:
            continue
        if expression is not None:
            for message in _of_expression(expression):
                yield LintWarning(message, index, rule.name)


def _of_expression(expression: Any) -> Iterator[str]:
    """Each message ends in a sentence that says what to do."""
    cause = _cause(expression)
    if cause is not None:
        what, remedy = cause
        yield (
            f"{what}, and a node that is left out is unknown, not cool: its mark goes "
            f"only after stale_after, and clear_threshold has no effect. {remedy}"
        )
    if _has_unbounded_rate(expression):
        yield _UNBOUNDED
    selectors = (each for each in walk(expression) if isinstance(each, promql.VectorSelector))
    metrics = {each.name or "" for each in selectors}
    if metrics and all(name.startswith(_PRESSURE) for name in metrics):
        yield _PRESSURE_ALONE
    for name in sorted(metrics & _LEAVING):
        yield f"kubelets give 0 as {name}, and newer ones no longer have it. Use another metric"


def _has_unbounded_rate(found: Any, *, bounded: bool = False) -> bool:
    """Whether the CPU time of a core counts by more than one second per second."""
    name = name_of(found)
    if name in _RATES:
        of_core = any(getattr(each, "name", None) == _CORE for each in walk(found))
        return of_core and not bounded
    bounded = name in _BOUNDS or (bounded and isinstance(found, promql.ParenExpr))
    return any(_has_unbounded_rate(part, bounded=bounded) for part in parts_of(found))


_Cause = tuple[str, str]
"""What leaves series out, and what to do about it."""


def _cause(found: Any, *, deep: bool = False) -> _Cause | None:
    """What leaves series out of the value of ``found``. ``deep``: inside of what makes a new value
    of it; there, a comparison with 0 or for equality is taken to pick series on purpose.
    """
    if isinstance(found, promql.VectorSelector):
        return _OF_ALERTS if found.name in _ALERTS else None
    if isinstance(found, promql.BinaryExpr):
        is_bool = found.modifier and found.modifier.return_bool
        if str(found.op) in _COMPARISONS and not is_bool:
            return _of_comparison(found, deep=deep)
        return _of_operator(found, deep=deep)
    name = name_of(found)
    if name in _ALWAYS_ANSWER:
        return None
    if name in RANKS and found.modifier is None:
        remedy = "Remove it: guard.max_marked limits how many nodes are marked, the hottest first"
        return f"{name} leaves all other nodes out of the answer", remedy
    causes = (_cause(part, deep=deep or bool(name)) for part in parts_of(found))
    return next(filter(None, causes), None)


def _of_operator(found: Any, *, deep: bool) -> _Cause | None:
    operator = str(found.op)
    if operator in ("and", "unless"):
        return _cause(found.lhs, deep=deep) or _of_condition(found)
    sides = (found.lhs, found.rhs)
    deep = deep or (operator != "or" and not any(map(_is_scalar, sides)))
    causes = [_cause(side, deep=deep) for side in sides]
    if operator == "or" and not all(causes):  # what one side leaves out the other has
        return None
    return next(filter(None, causes), None)


def _of_comparison(found: Any, *, deep: bool) -> _Cause | None:
    if _is_scalar(found) or (deep and _picks(found)):
        return None
    remedy = "Remove it: op and threshold compare"
    if deep:
        remedy = "With bool it gives 0 or 1 for each node, and leaves none out"
    from_operator = str(found).removeprefix(str(found.lhs)).replace("{}", "")
    compared = one_line(from_operator, _SHOWN)
    return f"the comparison {compared!r} leaves out the nodes for which it does not hold", remedy


def _of_condition(found: Any) -> _Cause | None:
    """``and`` and ``unless``: their right side decides which series of the left side stay."""
    if _cause(found.rhs, deep=True) is None:
        return None
    what = f"{str(found.op)!r} with a condition on a value leaves nodes out of the answer"
    return what, "Multiply by the condition instead, with bool: A * on (instance) (B > bool 80)"


def _picks(found: Any) -> bool:
    """Whether a comparison is not on load: an equality is on a state, one with 0 keeps from
    dividing by it, and one with a time picks samples that are fresh.
    """
    sides = (found.lhs, found.rhs)
    return str(found.op) in ("==", "!=") or any(_is_zero(s) or _is_of_time(s) for s in sides)


def _is_scalar(found: Any) -> bool:
    if isinstance(found, promql.Call):
        return bool(found.func.return_type == promql.ValueType.Scalar)
    parts = parts_of(found)
    return isinstance(found, promql.NumberLiteral) or (
        isinstance(found, (promql.BinaryExpr, *_WRAPPERS)) and all(map(_is_scalar, parts))
    )


def _is_of_time(found: Any) -> bool:
    return name_of(found) in ("time", "timestamp") or any(map(_is_of_time, parts_of(found)))


def _is_zero(found: Any) -> bool:
    while isinstance(found, _WRAPPERS):
        found = found.expr
    return isinstance(found, promql.NumberLiteral) and found.val == 0


_OF_ALERTS: Final[_Cause] = (
    "ALERTS has a series only while an alert is pending or fires",
    "Write the alert's own expression, without its comparison",
)
