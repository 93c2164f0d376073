"""Warnings about rules that are valid, but probably do not do what was intended.

Expressions that cannot be parsed here get no warning: Prometheus reports what is wrong with them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import promql_parser as promql

from dynsched.rules.promql import RANKS, UnreadError, bare, name_of, parse, parts_of, walk
from dynsched.rules.rule_set import RuleSet
from dynsched.util.formatting import one_line

_COMPARISONS: Final = frozenset({"==", "!=", ">", "<", ">=", "<="})
_ALERTS: Final = frozenset({"ALERTS", "ALERTS_FOR_STATE"})
_MAX_SHOWN: Final = 60
_RATES: Final = frozenset({"rate", "irate", "increase"})
_BOUNDS: Final = frozenset({"clamp_max", "clamp"})
_CORE: Final = "node_cpu_seconds_total"
_PRESSURE: Final = ("node_pressure_", "container_pressure_")
_REMOVED_METRICS: Final = frozenset(
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
    """A warning about the expression of the rule with this index and name."""

    message: str
    index: int
    rule: str

    def __str__(self) -> str:
        return f"rule {self.rule}: {self.message}"


def lint(rule_set: RuleSet) -> Iterator[LintWarning]:
    """Warnings about expressions that probably measure something other than intended."""
    for index, rule in enumerate(rule_set.rules):
        try:
            expression = None if rule.expr is None else parse(rule.expr)
        except UnreadError:
            continue
        if expression is not None:
            for message in _messages_for(expression):
                yield LintWarning(message, index, rule.name)


def _messages_for(expression: Any) -> Iterator[str]:
    """The warnings about one expression. Each ends with a sentence that says what to do."""
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
    for name in sorted(metrics & _REMOVED_METRICS):
        yield f"kubelets give 0 as {name}, and newer ones no longer have it. Use another metric"


def _has_unbounded_rate(found: Any, *, bounded: bool = False) -> bool:
    """Whether the CPU time of a core may count by more than one second per second."""
    name = name_of(found)
    if name in _RATES:
        of_core = any(getattr(each, "name", None) == _CORE for each in walk(found))
        return of_core and not bounded
    bounded = name in _BOUNDS or (bounded and isinstance(found, promql.ParenExpr))
    return any(_has_unbounded_rate(part, bounded=bounded) for part in parts_of(found))


_Cause = tuple[str, str]
"""What leaves series out of the answer, and what to do about it."""
_ALERTS_CAUSE: Final[_Cause] = (
    "ALERTS has a series only while an alert is pending or fires",
    "Write the alert's own expression, without its comparison",
)


def _cause(found: Any) -> _Cause | None:
    """What leaves series out of the answer, among the outermost operators, or None."""
    found = bare(found)
    name = name_of(found)
    if isinstance(found, promql.VectorSelector):
        return _ALERTS_CAUSE if found.name in _ALERTS else None
    if name in RANKS and found.modifier is None:
        remedy = "Remove it: guard.max_marked limits how many nodes are marked, the hottest first"
        return f"{name} leaves all other nodes out of the answer", remedy
    if _compares(found):
        from_operator = str(found).removeprefix(str(found.lhs)).replace("{}", "")
        compared = one_line(from_operator, _MAX_SHOWN)
        what = f"the comparison {compared!r} leaves out the nodes for which it does not hold"
        return what, "Remove it: op and threshold compare"
    operator = str(found.op) if isinstance(found, promql.BinaryExpr) else ""
    if operator in ("and", "unless"):
        return _cause(found.lhs) or _cause_in_condition(found)
    if operator == "or":  # one side may have what the other leaves out
        return _cause(found.rhs) and _cause(found.lhs)
    # With a number, the other operators only change the unit. Without one, a comparison may be
    # intended: it may keep a divisor from being 0, for example.
    is_unit = operator and isinstance(bare(found.rhs), promql.NumberLiteral)
    return _cause(found.lhs) if is_unit else None


def _compares(found: Any) -> bool:
    return (
        isinstance(found, promql.BinaryExpr)
        and str(found.op) in _COMPARISONS
        and not (found.modifier and found.modifier.return_bool)
    )


def _cause_in_condition(found: Any) -> _Cause | None:
    """What ``and`` or ``unless`` leaves out, or None.

    Tests for equality (of a state) and of times (for freshness) are accepted.
    """
    condition = bare(found.rhs)
    by_time = any(name_of(each) in ("time", "timestamp") for each in walk(condition))
    if not _compares(condition) or str(condition.op) in ("==", "!=") or by_time:
        return None
    what = f"{str(found.op)!r} with a condition on a value leaves nodes out of the answer"
    return what, "Multiply by the condition instead, with bool: A * on (instance) (B > bool 80)"
