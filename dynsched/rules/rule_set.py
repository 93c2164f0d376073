"""What rules.yaml holds: the rules, and what follows from them and the other sections together.

``rules.parse`` makes it of a parsed mapping, or says all that is wrong.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Annotated, Any, Final, Literal

from pydantic import Field, ValidationInfo, field_validator

from dynsched.rules.fields import (
    MAX_RULES,
    TRAITS,
    Duration,
    Expr,
    FileSource,
    Key,
    Name,
    Number,
    PositiveDuration,
    SourceName,
    SourceTraits,
    read_by,
)
from dynsched.rules.labels import Mark, Selector, parse_selector
from dynsched.rules.rule_errors import problem
from dynsched.rules.sections import (
    ExtenderRules,
    GuardRules,
    MarkRules,
    Model,
    NodeRules,
)

EARLY_SUFFIX: Final = "-early"
"""What is added to the name of a rule for that of the rule that its ``early`` stands for."""

COMPARE: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}


class EarlyMark(Model):
    """``early`` of a rule: marks a node before it is hot, by its expected load (`engine.expected`)
    compared with the early line of its kind (`engine.expected.above_line`): the mean, or
    ``mean_at_least``. All are
    points: 0 is idle, 100 is full.
    """

    above_mean: Number = 0.0
    """A node is marked whose expected load is more than this above the line."""
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


class Rule(Model):
    """One threshold rule."""

    name: Name
    """Unique among the rules."""
    source: SourceName = "prometheus"
    """Where the values come from."""
    expr: Expr | None = Field(default=None, validate_default=True)
    """The PromQL expression, for source prometheus."""
    resource: Literal["cpu", "memory"] | None = Field(default=None, validate_default=True)
    """The resource that the rule measures. Required for source metrics-server; beside ``expr`` it
    says in which unit the use of pods is added to the value."""
    op: Literal[">", ">=", "<", "<="] = ">"
    """The comparison ``value op threshold`` that must be true to breach the threshold."""
    threshold: Number
    """In the unit of the value."""
    clear_threshold: Number = Field(default_factory=lambda data: data.get("threshold", 0.0))
    """A firing alert goes on firing while ``value op clear_threshold`` is true (hysteresis)."""
    hold_duration: Duration = Field(default=0.0, alias="for")
    """``for``: how long the threshold must be breached before the alert fires, in seconds."""
    keep_firing_for: Duration = 0.0
    """How long an alert goes on firing after its condition has ended, in seconds."""
    node_label: Key | None = None
    """The sample label that names the node; None stands for ``node``, else ``instance``."""
    full_at: Annotated[Number, Field(gt=0)] | None = None
    """The value that counts as full (100 points of load) in the extender's scores; None: derived
    from the threshold."""
    stale_after: PositiveDuration | None = None
    """Overrides ``stale_after`` of the file for this rule, in seconds."""
    on_stale: Literal["release", "hold"] | None = None
    """Overrides ``on_stale`` of the file for this rule."""
    lag: PositiveDuration | None = None
    """How long it takes until the value shows all of what a new pod uses, in seconds; None: by the
    ranges of the expression and the scrape interval."""
    early: EarlyMark | None = None
    """Marks nodes before they are hot; None: not."""
    selector: Annotated[Selector, read_by(parse_selector)] = Selector()
    """A label selector, as `kubectl -l` takes it: the rule applies to the nodes that match."""
    shadow: Annotated[bool, Field(strict=True)] = False
    """Whether the rule is only on trial: it is evaluated and shown, and marks no node."""

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
        needed = TRAITS[source].needs
        if value is None and info.field_name == needed:
            raise problem(f"is missing: a rule of source {source} needs it")
        # `resource` beside `expr` says in which unit the use of pods is added to the value.
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
    def traits(self) -> SourceTraits:
        """What follows from its source."""
        return TRAITS[self.source]

    @property
    def node_labels(self) -> tuple[str, ...]:
        """The sample labels that may name the node; the first that a sample has is used."""
        return (self.node_label,) if self.node_label else ("node", "instance")

    def breached(self, value: float | None) -> bool:
        """Whether ``value op threshold`` is true; False when the value is None (unknown)."""
        return value is not None and bool(COMPARE[self.op](value, self.threshold))

    @property
    def rises(self) -> bool:
        """Whether its values rise with load."""
        return self.op in (">", ">=")

    @property
    def early_of(self) -> str | None:
        """The name of the rule whose ``early`` this one stands for; None: it stands for itself."""
        return None

    def applies_to(self, labels: Mapping[str, str]) -> bool:
        """Whether the rule is evaluated on a node that has these labels."""
        return self.selector.unmet(labels) is None

    @property
    def answered_by(self) -> str:
        """The name of the rule whose query has the values for this one: most often its own."""
        return self.early_of or self.name


class EarlyRule(Rule):
    """The rule that ``early`` of another one stands for. Its value is how far a node's expected
    load is above its early line, in points.
    """

    measures: str
    """The name of the other rule."""

    @property
    def early_of(self) -> str | None:
        """As of `Rule`."""
        return self.measures


class FileRule(Rule):
    """A rule as a file can have it."""

    source: FileSource = "prometheus"

    @property
    def early_rule(self) -> EarlyRule | None:
        """The rule that ``early`` stands for."""
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


class RuleSet(Model):
    """A whole rules file."""

    mark_rules: MarkRules = Field(default_factory=MarkRules, alias="mark")
    """The ``mark`` section: the label and the taint of a hot node."""
    nodes: NodeRules = Field(default_factory=NodeRules)
    """The ``nodes`` section: the nodes that may be marked."""
    guard: GuardRules = Field(default_factory=GuardRules)
    """The ``guard`` section: limits on marking and releasing."""
    stale_after: PositiveDuration = 300.0
    """How old the last OK reading may be before an alert is unknown, in seconds."""
    on_stale: Literal["release", "hold"] = "release"
    """Whether a firing alert ends (release) or goes on firing (hold) once it is unknown."""
    file_rules: Annotated[tuple[FileRule, ...], Field(max_length=MAX_RULES)] = Field(alias="rules")
    """The rules of the file, in its order."""
    extender: ExtenderRules = Field(default_factory=ExtenderRules)
    """The ``extender`` section: the scheduler extender's filter and scores."""

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
        """All rules by their names."""
        return {rule.name: rule for rule in self.rules}

    @cached_property
    def asked_rules(self) -> tuple[Rule, ...]:
        """The rules whose source is asked for values, and that may mark nodes: where none of them
        has a value, nothing is known. If all are shadow rules, those.
        """
        asked = tuple(rule for rule in self.rules if rule.traits.asked)
        return tuple(rule for rule in asked if not rule.shadow) or asked

    @property
    def has_early(self) -> bool:
        """Whether nodes are marked by their expected load."""
        return any(rule.early is not None for rule in self.file_rules)

    @property
    def uses_expected_load(self) -> bool:
        """Whether marks or scores go by what pods are expected to use."""
        return self.has_early or self.has_extender

    @property
    def has_extender(self) -> bool:
        """Whether there is a section ``extender``, so that its paths answer."""
        return "extender" in self.model_fields_set

    @property
    def mark(self) -> Mark:
        """The label and the taint that mark a hot node."""
        return Mark(self.mark_rules.label, self.mark_rules.taint)

    def stale_after_of(self, rule: Rule) -> float:
        """Seconds without a good reading after which an alert of this rule is unknown."""
        return self.stale_after if rule.stale_after is None else rule.stale_after

    def holds_stale(self, rule: Rule) -> bool:
        """Whether a firing alert of this rule goes on firing once it is unknown."""
        return (rule.on_stale or self.on_stale) == "hold"
