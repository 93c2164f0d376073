"""Rules that are valid, but probably do not do what was intended."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from dynsched.rules.promql import BINDING, COMPARISONS, Expression, NotUnderstoodError, parse
from dynsched.rules.rule_errors import RuleError
from dynsched.rules.rule_set import Rule, RuleSet
from dynsched.util.formatting import one_line

_RANKS: Final = frozenset({"topk", "bottomk", "limitk", "limit_ratio"})
_ALWAYS_ANSWER: Final = frozenset({"absent", "absent_over_time", "scalar", "vector"})
_ALERTS: Final = frozenset({"ALERTS", "ALERTS_FOR_STATE"})
_SHOWN: Final = 60


@dataclass(frozen=True, slots=True)
class Doubt:
    """One rule, by its place in the file and its name; what it will do, and what to write."""

    index: int
    rule: str
    message: str


def doubts(rule_set: RuleSet) -> tuple[Doubt, ...]:
    """The rules whose expression leaves nodes out of its answer depending on their load (such a
    node is unknown and not cool, so that its mark goes by ``stale_after`` alone), and those whose
    value is 0 or 1, on the same side of the threshold both times.
    """
    found = []
    for index, rule in enumerate(rule_set.rules):
        why = None if rule.expr is None else _why_of(rule, rule.expr)
        if why is not None:
            found.append(Doubt(index, rule.name, why))
    return tuple(found)


def obsolete(rule_set: RuleSet) -> Iterator[RuleError]:
    """Settings of older versions, which are read and no longer do what they did."""
    if rule_set.guard.bind_burst:
        yield RuleError(
            ("guard", "bind_burst"),
            "has no effect any more: the expected load counts pods from their binding on. Remove "
            "it; `early` in a rule marks nodes by that load",
        )
    for name, profile in rule_set.extender.profiles.items():
        if profile.method == "least":
            yield RuleError(
                ("extender", "profiles", name, "method"),
                "'least' is now the same as 'relative'. Write 'relative'",
            )


class _Cause(NamedTuple):
    """What leaves series out, and what to do about it."""

    what: str
    remedy: str


def _why_of(rule: Rule, expr: str) -> str | None:
    try:
        found = parse(expr)
    except NotUnderstoodError:
        return None
    cause = _cause(expr, found)
    if cause is None:
        return _why_nothing_changes(rule, expr, found)
    return (
        f"{cause.what}, and a node that is left out is unknown, not cool: its mark goes only after "
        f"stale_after, and clear_threshold has no effect. {cause.remedy}"
    )


def _why_nothing_changes(rule: Rule, expr: str, found: Expression) -> str | None:
    """``load > bool 80`` is 0 or 1, and with a minus before it 0 or -1: a threshold of 80 is never
    passed.
    """
    one = 1
    while found.operator == "same":
        one *= -1 if found.is_negated else 1
        found = found.parts[0]
    if not found.is_bool or rule.breached(0.0) is not rule.breached(float(one)):
        return None
    compared = one_line(expr[found.at : found.end], _SHOWN)
    return (
        f"the comparison {compared!r} gives 0 or {one}, so that with op {rule.op!r} and threshold "
        f"{rule.threshold:g} the rule {'always' if rule.breached(0.0) else 'never'} fires. Remove "
        "the comparison: op and threshold compare"
    )


def _cause(text: str, found: Expression, *, deep: bool = False) -> _Cause | None:
    """What leaves series out of the value of ``found``. ``deep``: inside of what makes a new value
    of it; there, a comparison with 0 or for equality is taken to pick series on purpose.
    """
    if not found.operator:
        return _OF_ALERTS if found.word in _ALERTS else None
    if found.operator in COMPARISONS and not found.is_bool:
        return _of_comparison(text, found, deep=deep)
    if found.operator in BINDING:
        return _of_operator(text, found, deep=deep)
    return _of_call(text, found, deep=deep)


def _of_operator(text: str, found: Expression, *, deep: bool) -> _Cause | None:
    operator, parts = found.operator, found.parts
    if operator in ("and", "unless"):
        return _cause(text, parts[0], deep=deep) or _of_condition(text, found)
    deep = deep or (operator != "or" and not any(part.is_scalar for part in parts))
    causes = [_cause(text, part, deep=deep) for part in parts]
    if operator == "or" and not all(causes):  # what one side leaves out the other has
        return None
    return next(filter(None, causes), None)


def _of_call(text: str, found: Expression, *, deep: bool) -> _Cause | None:
    operator = found.operator
    if operator in _ALWAYS_ANSWER:
        return None
    if operator in _RANKS and not found.is_grouped:
        return _Cause(
            f"{operator} leaves all other nodes out of the answer",
            "Remove it: guard.max_marked limits how many nodes are marked, the hottest first",
        )
    deep = deep or operator != "same"
    return next(filter(None, (_cause(text, part, deep=deep) for part in found.parts)), None)


def _of_comparison(text: str, found: Expression, *, deep: bool) -> _Cause | None:
    if found.is_scalar or (deep and _picks(found)):
        return None
    compared = one_line(text[found.at : found.end], _SHOWN)
    remedy = "Remove it: op and threshold compare"
    if deep:
        remedy = "With bool it gives 0 or 1 for each node, and leaves none out"
    return _Cause(
        f"the comparison {compared!r} leaves out the nodes for which it does not hold", remedy
    )


def _of_condition(text: str, found: Expression) -> _Cause | None:
    """``and`` and ``unless``: their right side decides which series of the left side stay."""
    condition = _cause(text, found.parts[1], deep=True)
    if condition is None:
        return None
    return _Cause(
        f"{found.operator!r} with a condition on a value leaves nodes out of the answer",
        "Multiply by the condition instead, with bool: A * on (instance) (B > bool 80)",
    )


def _picks(found: Expression) -> bool:
    """Whether a comparison is on something else than load: an equality is on a state, one with 0
    keeps from dividing by it, and one with a time picks samples that are fresh.
    """
    return found.operator in ("==", "!=") or any(
        _is_zero(part) or _is_of_time(part) for part in found.parts
    )


def _is_of_time(part: Expression) -> bool:
    return part.operator in ("time", "timestamp") or any(map(_is_of_time, part.parts))


def _bare(part: Expression) -> Expression:
    """What stands inside of brackets, signs, ranges and offsets."""
    while part.operator == "same":
        part = part.parts[0]
    return part


def _is_zero(part: Expression) -> bool:
    part = _bare(part)
    return part.is_scalar and part.word.strip("0.") == ""


_OF_ALERTS: Final = _Cause(
    "ALERTS has a series only while an alert is pending or fires",
    "Write the alert's own expression, without its comparison",
)
