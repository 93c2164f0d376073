"""rules.yaml: the schema, and the way from a parsed mapping to rules or to all its errors.

The file itself is read by ``dynsched.rules_file``, which turns an error's path into line:column.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from dynsched.core import keys
from dynsched.core.labels import (
    LabelMark,
    Mark,
    Selector,
    TaintMark,
    parse_label,
    parse_selector,
    parse_taint,
)
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
    TRAITS,
    Duration,
    Expr,
    FileSource,
    Key,
    Limit,
    Name,
    NodeLimit,
    Number,
    PositiveDuration,
    SourceName,
    SourceTraits,
    Weight,
    read_by,
)

DYNAMIC_SCHEDULER_KEY: Final = "Rulename"
"""The top-level key by which a file in the format of dynamicScheduler is recognised."""
BIND_BURST: Final = "bind-burst"
"""Name of the rule that ``guard.bind_burst`` stands for. It fires on a node to which more pods than
``bind_burst.pods`` were bound within the window."""

_COMPARE: Final[Mapping[str, Callable[[float, float], bool]]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)


class Rule(_Model):
    """One threshold rule."""

    name: Name
    """Unique among the rules."""
    source: SourceName = "prometheus"
    """Where the values come from."""
    expr: Expr | None = Field(default=None, validate_default=True)
    """The PromQL expression, for source prometheus."""
    resource: Literal["cpu", "memory"] | None = Field(default=None, validate_default=True)
    """The resource that the rule measures. Required for source metrics-server; beside ``expr`` it
    says which requests of just-bound pods are added to the value."""
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

    @field_validator("expr", "resource")
    @classmethod
    def _fits_the_source(cls, value: str | None, info: ValidationInfo) -> str | None:
        source = info.data.get("source")
        if source is None:
            return value  # `source` itself is invalid and has its own error
        needed = TRAITS[source].needs
        if value is None and info.field_name == needed:
            raise problem(f"is missing: a rule of source {source} needs it")
        # `resource` beside `expr` says which requests of just-bound pods add to the value.
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
        return value is not None and _COMPARE[self.op](value, self.threshold)

    def holds(self, value: float) -> bool:
        """Whether a value keeps a firing alert firing: it breaches the threshold, or it is
        between ``threshold`` and ``clear_threshold`` (hysteresis).
        """
        return _COMPARE[self.op](value, self.clear_threshold)

    def excess(self, value: float) -> float:
        """How far a value is beyond the threshold, as a share of the threshold; below 0 when it
        does not breach the threshold.
        """
        distance = value - self.threshold
        return (distance if self.op in (">", ">=") else -distance) / (abs(self.threshold) or 1.0)


class FileRule(Rule):
    """A rule as a file can have it."""

    source: FileSource = "prometheus"


class MarkRules(_Model):
    """The ``mark`` section."""

    label: Annotated[LabelMark | None, read_by(parse_label)] = Field(
        default_factory=lambda: parse_label(keys.DEFAULT_LABEL)
    )
    """The label to set on hot nodes; None for none."""
    taint: Annotated[TaintMark | None, read_by(parse_taint)] = Field(
        default=None, validate_default=True
    )
    """The taint to set on hot nodes; None for none. There must be a label or a taint."""

    @field_validator("taint")
    @classmethod
    def _marks_somehow(cls, taint: TaintMark | None, info: ValidationInfo) -> TaintMark | None:
        if taint is None and info.data.get("label", "") is None:
            raise problem("is missing: without a label there must be a taint to mark nodes with")
        return taint


class NodeRules(_Model):
    """The ``nodes`` section: which nodes are eligible."""

    selector: Annotated[Selector, read_by(parse_selector)] = Selector()
    """A label selector, as `kubectl -l` takes it; the empty one selects all nodes."""
    include_control_plane: Annotated[bool, Field(strict=True)] = False
    """Whether control-plane nodes may be marked too."""


class BindBurst(_Model):
    """``guard.bind_burst``: a node to which many pods were just bound counts as under pressure."""

    pods: Annotated[int, Field(strict=True, gt=0, le=MAX_PODS)]
    """The threshold: a node to which more pods than this were bound within ``window`` is under
    pressure."""
    window: PositiveDuration = 60.0
    """The period in which bindings are counted, in seconds."""

    @property
    def rule(self) -> Rule:
        """The rule that it stands for."""
        return Rule(name=BIND_BURST, source="bound-pods", threshold=float(self.pods))


class GuardRules(_Model):
    """The ``guard`` section."""

    max_marked: NodeLimit = Limit(0.5, is_share=True)
    """How many nodes of a pool may be marked at the same time: a number, or a share of the eligible
    ones."""
    pool_label: Key | None = None
    """The node label whose value names the node's pool; None when all nodes are one pool."""
    max_releases: NodeLimit = Limit(0.25, is_share=True)
    """How many nodes may be released in one tick: a number, or a share of the marked ones; one node
    may always be released."""
    bind_burst: BindBurst | None = None
    """Marks nodes early to which many pods are bound within a short time; None turns it off."""


class Profile(_Model):
    """How the extender scores nodes for the pods of one schedulerName."""

    score: Mapping[str, Weight]
    """Rule name -> weight of the rule's value in the score."""
    method: Literal["linear", "relative", "least"] = "linear"
    """How a value becomes a score (docs/extender.md)."""


class ExtenderRules(_Model):
    """The ``extender`` section."""

    require_label: Key | None = None
    """Only nodes with this label pass the filter; None accepts all nodes."""
    reject: Annotated[tuple[str, ...], Field(max_length=MAX_RULES)] = ()
    """Names of rules: the filter refuses a node on which one of them fires."""
    profiles: Annotated[Mapping[str, Profile], Field(max_length=MAX_PROFILES)] = Field(
        default_factory=dict
    )
    """schedulerName -> how nodes are scored for its pods."""


class RuleSet(_Model):
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
    """The rules of the file, in its order; ``rules`` has the rule of ``guard.bind_burst`` too."""
    extender: ExtenderRules = Field(default_factory=ExtenderRules)
    """The ``extender`` section: the scheduler extender's filter and scores."""

    @field_validator("file_rules")
    @classmethod
    def _fit_the_guard(
        cls, rules: tuple[FileRule, ...], info: ValidationInfo
    ) -> tuple[FileRule, ...]:
        if not rules:
            raise problem("is empty: there must be at least one rule")
        guard = info.data.get("guard")
        burst = None if guard is None else guard.bind_burst
        if burst is not None and any(rule.name == BIND_BURST for rule in rules):
            raise problem(f"{BIND_BURST!r} is the name of the rule that guard.bind_burst makes")
        return rules

    @cached_property
    def rules(self) -> tuple[Rule, ...]:
        """All rules: those of the file, in its order, and that of ``guard.bind_burst``."""
        burst = self.guard.bind_burst
        return self.file_rules if burst is None else (*self.file_rules, burst.rule)

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
                FileRule(name=name, expr=rule.promsql, threshold=rule.threshold)
                for name, rule in self.rules.items()
            )
        )


def parse_rules(data: object) -> RuleSet:
    """A RuleSet from the parsed YAML of a rules file, in either format.

    Raises RulesInvalidError with all errors at once (if there are very many, with the first ones).
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
        FileRule,
        ExtenderRules,
        Profile,
    )
    return frozenset(
        field.alias or name for model in models for name, field in model.model_fields.items()
    )


def _cross_checks(data: Mapping[Any, Any]) -> Iterable[RuleError]:
    """Errors that concern several fields. They are looked for in the raw data, so that they are
    found even if there are other errors.
    """
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
