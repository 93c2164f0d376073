"""One rule, and the whole of rules.yaml. docs/rules.md explains each key."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Annotated, Any, Final, Literal

from pydantic import (
    BeforeValidator,
    Field,
    ValidationInfo,
    field_validator,
)

from dynsched.rules import fields, promql
from dynsched.rules.fields import MAX_RULES, Number, PositiveDuration
from dynsched.rules.labels import Mark, Selector
from dynsched.rules.rule_errors import problem
from dynsched.rules.sections import (
    NO_MARK,
    ExtenderRules,
    Flag,
    GuardRules,
    MarkRules,
    NodeRules,
    OrderRules,
    RulesModel,
    SelectorText,
)

COMPARE: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
CLEAR_OP: Final[Mapping[str, str]] = {">": "<=", ">=": "<", "<": ">=", "<=": ">"}
"""Per ``op`` of a rule, how the value of a clearing alert compares with ``clear_threshold``."""
_INHERITED: Final = ("stale_after", "on_stale")
"""Keys that a rule takes from the top level of the file if it does not set them."""


class Rule(RulesModel):
    """One threshold rule. Durations are in seconds."""

    name: fields.Name
    source: fields.SourceName = "prometheus"
    expr: fields.Expr | None = Field(default=None, validate_default=True)
    resource: Literal["cpu", "memory"] | None = Field(default=None, validate_default=True)
    """What metrics-server measures. With ``expr``: what it measures, for the expected load."""
    op: Literal[">", ">=", "<", "<="] = ">"
    threshold: Number
    clear_threshold: Number = Field(default_factory=lambda data: data.get("threshold", 0.0))
    """A firing alert keeps firing while ``value op clear_threshold`` is true (hysteresis)."""
    hold_duration: fields.Duration = Field(default=0.0, alias="for")
    keep_firing_for: fields.Duration = 0.0
    node_label: fields.Key | None = None
    full_at: Annotated[Number, Field(gt=0)] | None = None
    """The value at full load (100 %). If None, it is derived from the threshold."""
    stale_after: PositiveDuration = 300.0
    """How old the last OK reading may be before an alert counts as unknown."""
    on_stale: Literal["release", "hold"] = "release"
    """Whether a firing alert ends (release) or keeps firing (hold) once it is unknown."""
    lag: PositiveDuration | None = None
    """Time until the value shows all of a new pod's use. If None, it is derived from the ranges of
    the expression and the scrape interval."""
    by: Literal["measured", "expected"] = "measured"
    """Which load the threshold is compared with. The expected one is the measured one, adjusted for
    pods that were just bound or have just ended (docs/expected-load.md)."""
    selector: SelectorText = Selector()
    shadow: Flag = False
    """Whether the rule is on trial: it is evaluated and shown, but marks no node."""

    @field_validator("expr", "resource")
    @classmethod
    def _fits_the_source(cls, value: str | None, info: ValidationInfo) -> str | None:
        source = info.data.get("source")
        if source is None:
            return value  # `source` itself is invalid and has its own error
        needed = fields.NEEDS.get(source)
        if value is None and info.field_name == needed:
            raise problem(f"is missing: a rule of source {source} needs it")
        if value is not None and needed not in (info.field_name, "expr"):
            raise problem(f"has no meaning for source {source}; use {needed}")
        return value

    @field_validator("clear_threshold")
    @classmethod
    def _on_the_clear_side(cls, value: float, info: ValidationInfo) -> float:
        threshold, op = info.data.get("threshold"), info.data.get("op")
        if threshold is not None and op is not None and value != threshold:
            upward = op in (">", ">=")
            if (value > threshold) is upward:
                side = "above" if upward else "below"
                raise problem(
                    f"{value:g} is {side} the threshold {threshold:g}: with op {op!r} "
                    "a firing rule would clear before it fires"
                )
        return value

    @field_validator("by")
    @classmethod
    def _has_an_expected_load(cls, value: str, info: ValidationInfo) -> str:
        if value != "expected":
            return value
        op, threshold = info.data.get("op"), info.data.get("threshold")
        if op in ("<", "<="):
            raise problem("expected needs a value that rises with load: op is > or >=")
        has_scale = info.data.get("source") == "metrics-server" or info.data.get("full_at", True)
        is_share = threshold is None or 0 < threshold <= 100  # noqa: PLR2004 (per cent)
        if not (has_scale or is_share):
            raise problem(
                f"expected needs full_at: with the threshold {threshold:g} it is not known which "
                "value is full load"
            )
        return value

    @cached_property
    def node_labels(self) -> tuple[str, ...]:
        """The labels that may name the node. The first one that a sample has is used."""
        return (self.node_label,) if self.node_label else ("node", "instance")

    def breached(self, value: float | None) -> bool:
        """Whether the value breaches the threshold; False if it is None (unknown)."""
        return value is not None and bool(COMPARE[self.op](value, self.threshold))

    def holds(self, value: float) -> bool:
        """Whether a firing alert keeps firing at this value."""
        return bool(COMPARE[self.op](value, self.clear_threshold))

    def excess(self, value: float | None) -> float:
        """How far a value is beyond the threshold, as a share of it; 0 if it is not, or is None."""
        return 0.0 if value is None else max(0.0, self.distance(value))

    def distance(self, value: float) -> float:
        """How far a value is beyond the threshold, as a share of it; negative if it is not."""
        beyond = value - self.threshold if self.higher_is_worse else self.threshold - value
        return beyond / (abs(self.threshold) or 1.0)

    @property
    def higher_is_worse(self) -> bool:
        """True for CPU in use, for example; False for free memory."""
        return self.op in (">", ">=")

    @cached_property
    def measures_share(self) -> bool:
        """Whether the values are known to be shares of full load: the rule has a ``resource``, or
        its values are in percent.
        """
        return self.resource is not None or self.is_percent

    @cached_property
    def is_percent(self) -> bool:
        """Whether the values are known to be in percent, from ``full_at`` or the expression."""
        return self.full_at == 100 or promql.is_percent(self.expr or "")  # noqa: PLR2004

    def applies_to(self, labels: Mapping[str, str]) -> bool:
        """Whether the rule's selector selects a node with these labels."""
        return self.selector.matches(labels)


class RuleSet(RulesModel):
    """A whole rules file, validated. Immutable."""

    mark_rules: Annotated[
        MarkRules, BeforeValidator(lambda given: NO_MARK if given == "none" else given)
    ] = Field(default_factory=MarkRules, alias="mark")
    nodes: NodeRules = Field(default_factory=NodeRules)
    guard: GuardRules = Field(default_factory=GuardRules)
    stale_after: PositiveDuration = 300.0
    on_stale: Literal["release", "hold"] = "release"
    rules: Annotated[tuple[Rule, ...], Field(max_length=MAX_RULES)]
    extender: ExtenderRules = Field(default_factory=ExtenderRules)
    order: OrderRules | None = None

    @field_validator("rules")
    @classmethod
    def _has_one(cls, rules: tuple[Rule, ...], info: ValidationInfo) -> tuple[Rule, ...]:
        if not rules:
            raise problem("is empty: there must be at least one rule")
        of_file = {key: info.data[key] for key in _INHERITED if key in info.data}
        return tuple(
            rule.model_copy(
                update={k: v for k, v in of_file.items() if k not in rule.model_fields_set}
            )
            for rule in rules
        )

    @cached_property
    def by_name(self) -> Mapping[str, Rule]:
        return {rule.name: rule for rule in self.rules}

    @cached_property
    def marking_rules(self) -> tuple[Rule, ...]:
        """The rules that may mark nodes, or all rules if all are shadow rules. If none of these has
        a value, nothing is known.
        """
        return tuple(rule for rule in self.rules if not rule.shadow) or self.rules

    @cached_property
    def has_expected(self) -> bool:
        """Whether any rule compares the expected load with its threshold."""
        return any(rule.by == "expected" for rule in self.rules)

    @cached_property
    def expecting_rules(self) -> tuple[Rule, ...]:
        """The rules whose expected load marks, scores or the order use."""
        if self.has_extender:
            return self.rules
        scored = {} if self.order is None else self.order.score
        return tuple(rule for rule in self.rules if rule.by == "expected" or rule.name in scored)

    @property
    def uses_expected_load(self) -> bool:
        """Whether marks, scores or the order use the expected load of any rule."""
        return bool(self.expecting_rules)

    @cached_property
    def follows_pods(self) -> bool:
        """Whether marks or the order change as soon as pods are bound or end."""
        return self.has_expected or self.order is not None

    @property
    def has_extender(self) -> bool:
        """Whether the file has the section ``extender``, even an empty one."""
        return "extender" in self.model_fields_set

    @cached_property
    def mark(self) -> Mark:
        """The label and the taint of the section ``mark``."""
        return Mark(self.mark_rules.label, self.mark_rules.taint)
