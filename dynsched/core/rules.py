"""rules.yaml: the schema, and the way from a parsed mapping to rules or to all its errors.

The file itself is read by ``dynsched.rules_file``, which turns an error's path into line:column.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from dynsched.core import keys
from dynsched.core.marks import LabelMark, Mark, TaintMark, parse_label, parse_taint
from dynsched.core.rule_errors import (
    RuleError,
    RulesInvalidError,
    explain,
    problem,
    shown,
)
from dynsched.core.rule_fields import (
    MAX_PODS,
    MAX_PROFILES,
    MAX_RULES,
    Duration,
    Expr,
    Key,
    Limit,
    Name,
    NodeLimit,
    Number,
    PositiveDuration,
    Weight,
    read_by,
)
from dynsched.core.selector import Selector, parse_selector

DYNAMIC_SCHEDULER_KEY: Final = "Rulename"
"""The top-level key by which a file in the format of dynamicScheduler is recognised."""
BIND_BURST: Final = "bind-burst"
"""The name of the rule that ``guard.bind_burst`` stands for: over so many pods it fires."""
BOUND_PODS: Final = "bound-pods"
"""Its source, which no rule of the file can name."""

_COMPARE: Final[Mapping[str, Callable[[float, float], bool]]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)


class Rule(_Model):
    """One threshold rule; its durations are in seconds."""

    name: Name
    source: Literal["prometheus", "metrics-server"] = "prometheus"
    expr: Expr | None = Field(default=None, validate_default=True)
    resource: Literal["cpu", "memory"] | None = Field(default=None, validate_default=True)
    op: Literal[">", ">=", "<", "<="] = ">"
    threshold: Number
    clear_threshold: Number = Field(default_factory=lambda data: data.get("threshold", 0.0))
    hold_duration: Duration = Field(default=0.0, alias="for")
    keep_firing_for: Duration = 0.0
    node_label: Key | None = None
    full_at: Annotated[Number, Field(gt=0)] | None = None
    stale_after: PositiveDuration | None = None
    on_stale: Literal["release", "hold"] | None = None

    @field_validator("expr", "resource")
    @classmethod
    def _fits_the_source(cls, value: str | None, info: ValidationInfo) -> str | None:
        source = info.data.get("source")
        if source is None:
            return value  # the source itself is wrong, and said to be
        needed = "expr" if source == "prometheus" else "resource"
        if value is None and info.field_name == needed:
            raise problem(f"is missing: a rule of source {source} needs it")
        # `resource` beside `expr` tells which requests of just-bound pods add to the value.
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
    def node_labels(self) -> tuple[str, ...]:
        """Which sample labels may name the node, first present wins."""
        return (self.node_label,) if self.node_label else ("node", "instance")

    def breached(self, value: float | None) -> bool:
        """Whether a value is over the threshold (under it, for ``<`` and ``<=``); None is not."""
        return value is not None and _COMPARE[self.op](value, self.threshold)

    def holds(self, value: float) -> bool:
        """Whether a value keeps a firing alert firing: breached, or inside the dead band."""
        return _COMPARE[self.op](value, self.clear_threshold)

    def excess(self, value: float) -> float:
        """How far a value is over the threshold, as a share of it; below 0 when it is not over."""
        distance = value - self.threshold
        return (distance if self.op in (">", ">=") else -distance) / (abs(self.threshold) or 1.0)


def _burst_rule(pods: int) -> Rule:
    limit = float(pods)
    plain = Rule(name=BIND_BURST, expr=BOUND_PODS, threshold=limit)
    return plain.model_copy(update={"source": BOUND_PODS, "expr": None})


class MarkRules(_Model):
    """The ``mark`` section."""

    label: Annotated[LabelMark | None, read_by(parse_label)] = Field(
        default_factory=lambda: parse_label(keys.DEFAULT_LABEL)
    )
    taint: Annotated[TaintMark | None, read_by(parse_taint)] = Field(
        default=None, validate_default=True
    )

    @field_validator("taint")
    @classmethod
    def _marks_somehow(cls, taint: TaintMark | None, info: ValidationInfo) -> TaintMark | None:
        if taint is None and info.data.get("label", "") is None:
            raise problem("is missing: without a label there must be a taint to mark nodes with")
        return taint


class NodeRules(_Model):
    """The ``nodes`` section: which nodes are eligible."""

    selector: Annotated[Selector, read_by(parse_selector)] = Selector()
    include_control_plane: Annotated[bool, Field(strict=True)] = False


class BindBurst(_Model):
    """So many pods bound to one node within the window put it under pressure."""

    pods: Annotated[int, Field(strict=True, gt=0, le=MAX_PODS)]
    window: PositiveDuration = 60.0


class GuardRules(_Model):
    """The ``guard`` section: how many nodes may be marked, and released in one tick; and an early
    mark for nodes that take many pods at once.
    """

    max_marked: NodeLimit = Limit(0.5, is_share=True)
    pool_label: Key | None = None
    max_releases: NodeLimit = Limit(0.25, is_share=True)
    bind_burst: BindBurst | None = None


class Profile(_Model):
    """How the extender scores for one schedulerName: rule name -> weight."""

    score: Mapping[str, Weight]
    method: Literal["linear", "relative", "least"] = "linear"


class ExtenderRules(_Model):
    """The ``extender`` section."""

    require_label: Key | None = None
    reject: Annotated[tuple[str, ...], Field(max_length=MAX_RULES)] = ()
    profiles: Annotated[Mapping[str, Profile], Field(max_length=MAX_PROFILES)] = Field(
        default_factory=dict
    )


class RuleSet(_Model):
    """A whole rules file."""

    mark_rules: MarkRules = Field(default_factory=MarkRules, alias="mark")
    nodes: NodeRules = Field(default_factory=NodeRules)
    guard: GuardRules = Field(default_factory=GuardRules)
    stale_after: PositiveDuration = 300.0
    on_stale: Literal["release", "hold"] = "release"
    rules: Annotated[tuple[Rule, ...], Field(max_length=MAX_RULES)]
    extender: ExtenderRules = Field(default_factory=ExtenderRules)

    @field_validator("rules")
    @classmethod
    def _not_empty(cls, rules: tuple[Rule, ...], info: ValidationInfo) -> tuple[Rule, ...]:
        if not rules:
            raise problem("is empty: there must be at least one rule")
        guard = info.data.get("guard")
        if guard is None or guard.bind_burst is None:
            return rules
        if any(rule.name == BIND_BURST for rule in rules):
            raise problem(f"{BIND_BURST!r} is the name of the rule that guard.bind_burst makes")
        return (*rules, _burst_rule(guard.bind_burst.pods))

    @property
    def mark(self) -> Mark:
        """What marks a node."""
        return Mark(self.mark_rules.label, self.mark_rules.taint)

    def stale_after_of(self, rule: Rule) -> float:
        """Seconds without a good reading after which an alert of this rule is unknown."""
        return self.stale_after if rule.stale_after is None else rule.stale_after

    def holds_stale(self, rule: Rule) -> bool:
        """Whether an alert of this rule goes on firing when nothing is known any more."""
        return (rule.on_stale or self.on_stale) == "hold"


class _DynamicSchedulerRule(_Model):
    model_config = ConfigDict(extra="ignore")

    promsql: Expr = Field(alias="Promsql")
    threshold: Annotated[float, Field(alias="Threshold", allow_inf_nan=False)]


class _DynamicSchedulerFile(_Model):
    """The rules file of dynamicScheduler; keys that it did not read are ignored here too."""

    model_config = ConfigDict(extra="ignore")

    rules: Annotated[
        Mapping[Name, _DynamicSchedulerRule],
        Field(alias=DYNAMIC_SCHEDULER_KEY, min_length=1, max_length=MAX_RULES),
    ]

    def as_rule_set(self) -> RuleSet:
        return RuleSet(
            rules=tuple(
                Rule(name=name, expr=rule.promsql, threshold=rule.threshold)
                for name, rule in self.rules.items()
            )
        )


def parse_rules(data: object) -> RuleSet:
    """A RuleSet from what a YAML parser made of a rules file, in either format.

    Raises RulesInvalidError with every error at once (of very many the first ones).
    """
    if not isinstance(data, Mapping):
        raise RulesInvalidError((RuleError((), "a rules file is a mapping with the key `rules`"),))
    try:
        if DYNAMIC_SCHEDULER_KEY in data:
            return _DynamicSchedulerFile.model_validate(data).as_rule_set()
        rule_set = RuleSet.model_validate(data)
    except ValidationError as error:
        told, more = explain(error, _known_keys())
        raise RulesInvalidError((*told, *_cross_checks(data)), more) from None
    if crossed := tuple(_cross_checks(data)):
        raise RulesInvalidError(crossed)
    return rule_set


def _known_keys() -> frozenset[str]:
    models = (
        RuleSet,
        MarkRules,
        NodeRules,
        GuardRules,
        BindBurst,
        Rule,
        ExtenderRules,
        Profile,
    )
    return frozenset(
        field.alias or name for model in models for name, field in model.model_fields.items()
    )


def _cross_checks(data: Mapping[Any, Any]) -> Iterable[RuleError]:
    """What one field alone cannot show; on raw data, so that it is found beside other errors."""
    rules = data.get("rules")
    names: dict[object, int] = {}
    for index, rule in enumerate(rules if isinstance(rules, list) else ()):
        name = rule.get("name") if isinstance(rule, Mapping) else None
        if not isinstance(name, str):
            continue
        if name in names:
            yield RuleError(
                ("rules", index, "name"),
                f"{shown(name)} is the name of rules[{names[name]}] already",
            )
        names.setdefault(name, index)
    extender = data.get("extender")
    if isinstance(extender, Mapping):
        for path, name in _rule_references(extender):
            if isinstance(name, str) and name not in names:
                yield RuleError(("extender", *path), f"{shown(name)} is not the name of a rule")


def _rule_references(
    extender: Mapping[Any, Any],
) -> Iterable[tuple[tuple[str | int, ...], object]]:
    reject = extender.get("reject")
    for index, name in enumerate(reject if isinstance(reject, list) else ()):
        yield ("reject", index), name
    profiles = extender.get("profiles")
    for profile, body in profiles.items() if isinstance(profiles, Mapping) else ():
        score = body.get("score") if isinstance(body, Mapping) else None
        for name in score if isinstance(score, Mapping) else ():
            yield ("profiles", profile, "score", name), name
