"""What rules.yaml holds: its rules, and all together. docs/rules.md has what each key means."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field, PrivateAttr, ValidationInfo, field_validator

from dynsched.rules import fields
from dynsched.rules.fields import MAX_RULES, Number, PositiveDuration
from dynsched.rules.labels import Mark, Selector
from dynsched.rules.rule_errors import RuleError, problem
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

EARLY_SUFFIX: Final = "-early"
"""What is added to the name of a rule for that of the rule that its ``early`` stands for."""

COMPARE: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}


class EarlyMark(RulesModel):
    """Marks a node before it is hot, by how its expected load compares with the early line of its
    kind (`engine.load.expected.above_line`). All are points: 0 is idle, 100 is full.
    """

    above_mean: Number = 0.0
    clear_above_mean: Number = Field(default_factory=lambda data: data.get("above_mean", 0.0) - 8.0)
    """A marked node is released that is not more than this above the line (hysteresis)."""
    mean_at_least: Annotated[Number, Field(ge=0, le=100)] = 20.0
    """What the mean counts as at least: in a pool with little load nobody needs to be avoided."""

    @field_validator("clear_above_mean")
    @classmethod
    def _below(cls, value: float, info: ValidationInfo) -> float:
        above = info.data.get("above_mean")
        if above is not None and value > above:
            raise problem(
                f"{value:g} is above above_mean {above:g}: a node would be released before it is "
                "marked"
            )
        return value


class Rule(RulesModel):
    """One threshold rule. Durations are in seconds."""

    name: fields.Name
    source: fields.SourceName = "prometheus"
    expr: fields.Expr | None = Field(default=None, validate_default=True)
    resource: Literal["cpu", "memory"] | None = Field(default=None, validate_default=True)
    """For metrics-server; beside ``expr``: the unit in which the use of pods is added."""
    op: Literal[">", ">=", "<", "<="] = ">"
    threshold: Number
    clear_threshold: Number = Field(default_factory=lambda data: data.get("threshold", 0.0))
    """A firing alert goes on firing while ``value op clear_threshold`` is true (hysteresis)."""
    hold_duration: fields.Duration = Field(default=0.0, alias="for")
    keep_firing_for: fields.Duration = 0.0
    node_label: fields.Key | None = None
    full_at: Annotated[Number, Field(gt=0)] | None = None
    """The value that is 100 points of load; None: derived from the threshold."""
    stale_after: PositiveDuration | None = None
    on_stale: Literal["release", "hold"] | None = None
    """None, for both: as for the whole file."""
    lag: PositiveDuration | None = None
    """Until the value shows all that a new pod uses; None: by the expression's ranges and the
    scrape interval."""
    early: EarlyMark | None = None
    selector: SelectorText = Selector()
    shadow: Flag = False
    """On trial: it is evaluated and shown, and marks no node."""

    @field_validator("early")
    @classmethod
    def _rises_with_load(cls, value: EarlyMark | None, info: ValidationInfo) -> EarlyMark | None:
        if value is not None and info.data.get("op") in ("<", "<="):
            raise problem("needs a value that rises with load: op is > or >=")
        return value

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

    @property
    def is_asked(self) -> bool:
        """By a query, which may fail; else the value is worked out from that of another rule."""
        return self.source in fields.NEEDS

    @cached_property
    def node_labels(self) -> tuple[str, ...]:
        """Those that may name the node; the first that a sample has is used."""
        return (self.node_label,) if self.node_label else ("node", "instance")

    def breached(self, value: float | None) -> bool:
        """False when the value is None (unknown)."""
        return value is not None and bool(COMPARE[self.op](value, self.threshold))

    @property
    def rises(self) -> bool:
        """Whether more is worse, as of CPU in use; else less is, as of free memory."""
        return self.op in (">", ">=")

    @cached_property
    def early_of(self) -> str | None:
        """The name of the rule whose ``early`` this one stands for; None: it stands for itself."""
        return None

    def applies_to(self, labels: Mapping[str, str]) -> bool:
        """Whether the rule's selector selects a node with these labels."""
        return self.selector.matches(labels)

    @property
    def answered_by(self) -> str:
        """The name of the rule whose query has the values for this one: most often its own."""
        return self.early_of or self.name


class EarlyRule(Rule):
    """What ``early`` of the rule ``measures`` stands for. Value: points above the early line."""

    measures: str

    @cached_property
    def early_of(self) -> str | None:
        """The name of the rule in the file that it belongs to."""
        return self.measures


class FileRule(Rule):
    """A rule as a file can have it."""

    source: Literal["prometheus", "metrics-server"] = "prometheus"

    @cached_property
    def early_rule(self) -> EarlyRule | None:
        """The rule that ``early`` stands for; None without it."""
        if self.early is None:
            return None
        return EarlyRule.model_construct(
            name=self.name + EARLY_SUFFIX,
            measures=self.name,
            source="expected-load",
            threshold=self.early.above_mean,
            clear_threshold=self.early.clear_above_mean,
            stale_after=self.stale_after,
            on_stale=self.on_stale,
            selector=self.selector,
            shadow=self.shadow,
        )


class RuleSet(RulesModel):
    """A whole rules file, checked. Immutable."""

    mark_rules: Annotated[
        MarkRules, BeforeValidator(lambda given: NO_MARK if given == "none" else given)
    ] = Field(default_factory=MarkRules, alias="mark")
    nodes: NodeRules = Field(default_factory=NodeRules)
    guard: GuardRules = Field(default_factory=GuardRules)
    stale_after: PositiveDuration = 300.0
    """How old the last OK reading may be before an alert is unknown, in seconds."""
    on_stale: Literal["release", "hold"] = "release"
    """Whether a firing alert ends (release) or goes on firing (hold) once it is unknown."""
    file_rules: Annotated[tuple[FileRule, ...], Field(max_length=MAX_RULES)] = Field(alias="rules")
    extender: ExtenderRules = Field(default_factory=ExtenderRules)
    order: OrderRules | None = None
    _removed_keys: tuple[RuleError, ...] = PrivateAttr(())

    @field_validator("file_rules")
    @classmethod
    def _have_names_of_their_own(cls, rules: tuple[FileRule, ...]) -> tuple[FileRule, ...]:
        if not rules:
            raise problem("is empty: there must be at least one rule")
        names = {rule.name for rule in rules}
        for rule in rules:
            early = rule.early_rule
            if early is not None and early.name in names:
                raise problem(f"{early.name!r} is the name of the rule that {rule.name!r} makes")
        return rules

    @cached_property
    def rules(self) -> tuple[Rule, ...]:
        """All rules: those of the file, in its order, and those that their ``early`` stand for."""
        early = tuple(made for rule in self.file_rules if (made := rule.early_rule) is not None)
        return (*self.file_rules, *early)

    @cached_property
    def by_name(self) -> Mapping[str, Rule]:
        """All rules, those that ``early`` stands for among them."""
        return {rule.name: rule for rule in self.rules}

    @cached_property
    def asked_rules(self) -> tuple[Rule, ...]:
        """Those that may mark nodes (if all are shadow rules, those): where none of them has a
        value, nothing is known.
        """
        asked = tuple(rule for rule in self.rules if rule.is_asked)
        return tuple(rule for rule in asked if not rule.shadow) or asked

    @cached_property
    def has_early(self) -> bool:
        """Whether any node may be marked by its expected load."""
        return any(rule.early is not None for rule in self.file_rules)

    @cached_property
    def uses_expected_load(self) -> bool:
        """Whether marks, scores or the order go by what pods use."""
        return self.has_early or self.scores_nodes

    @cached_property
    def scores_nodes(self) -> bool:
        """Whether nodes are ranked, by the extender or by the order."""
        return self.has_extender or self.order is not None

    @property
    def has_extender(self) -> bool:
        """Whether the file has the section, even an empty one."""
        return "extender" in self.model_fields_set

    @cached_property
    def mark(self) -> Mark:
        """The label and the taint of the section ``mark``."""
        return Mark(self.mark_rules.label, self.mark_rules.taint)

    @property
    def removed_keys(self) -> tuple[RuleError, ...]:
        """Keys of older versions in the file, which have no effect (`rules.removed`)."""
        return self._removed_keys

    def model_post_init(self, context: tuple[RuleError, ...] | None) -> None:
        """``context``: the removed keys that `rules.file` found."""
        self._removed_keys = context or ()

    def stale_after_of(self, rule: Rule) -> float:
        """In seconds: the rule's own value, or that of the file."""
        return self.stale_after if rule.stale_after is None else rule.stale_after

    def holds_stale(self, rule: Rule) -> bool:
        """Whether a firing alert of the rule goes on while it is unknown."""
        return (rule.on_stale or self.on_stale) == "hold"


NONE_IN_FORCE: Final = "no rules are in force"
"""So `rules_error` begins where there are `NO_RULES`."""


def beside_refusal(rules_error: str) -> str:
    """What is told after "refused": older rules are in force, or none."""
    is_none = rules_error.startswith(NONE_IN_FORCE)
    return "" if is_none else "; what was in force before stays in force"


NO_RULES: Final = RuleSet.model_validate(
    {
        "nodes": {"include_control_plane": True},
        "guard": {"max_marked": "100%"},
        "rules": [
            {
                "name": "no-rules",
                "source": "metrics-server",
                "resource": "cpu",
                "threshold": 100.0,
                "early": {},
            }
        ],
    }
)
"""What is in force where no rules were ever accepted: one rule that is never asked, so that no node
is marked, and any mark that is found goes after ``stale_after`` as it is."""
