"""The sections of rules.yaml other than its rules. docs/rules.md explains each key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from dynsched.rules import fields, keys
from dynsched.rules.fields import MAX_RULES, AsText, IntOrPercent, read_by
from dynsched.rules.labels import (
    LabelMark,
    Selector,
    TaintMark,
    parse_label,
    parse_selector,
    parse_taint,
)
from dynsched.rules.rule_errors import problem

Flag = Annotated[bool, Field(strict=True)]
EqualBelow = Annotated[float, Field(ge=0, le=100)]
"""Percent: nodes with less expected load are equally good, so kube-scheduler decides."""
DEFAULT_EQUAL_BELOW: Final = 40.0
PACK_BELOW: Final = 55.0
"""The default with ``pack``. docs/effect.md has measurements of both defaults."""
SelectorText = Annotated[Selector, read_by(parse_selector), AsText]


class RulesModel(BaseModel):
    """The base of all parts of the file. They are immutable, and unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)


class MarkRules(RulesModel):
    """The section ``mark``. None means no label, or no taint. One of them is required, except in
    ``NO_MARK``.
    """

    label: Annotated[Annotated[LabelMark, AsText] | None, read_by(parse_label)] = Field(
        default_factory=lambda: parse_label(keys.DEFAULT_LABEL)
    )
    taint: Annotated[Annotated[TaintMark, AsText] | None, read_by(parse_taint)] = Field(
        default=None, validate_default=True
    )

    @field_validator("taint")
    @classmethod
    def _marks_somehow(cls, taint: TaintMark | None, info: ValidationInfo) -> TaintMark | None:
        if taint is None and info.data.get("label", "") is None:
            raise problem("is missing: without a label there must be a taint to mark nodes with")
        return taint


NO_MARK: Final = MarkRules.model_construct(label=None, taint=None)
"""``mark: none``."""


class NodeRules(RulesModel):
    """The section ``nodes``: which nodes may be marked."""

    selector: SelectorText = Selector()
    include_control_plane: Flag = False


class GuardRules(RulesModel):
    """The section ``guard``: how many nodes may be marked, released and written."""

    max_marked: fields.NodeLimit = IntOrPercent(0.5, is_share=True)
    """Per pool; a percentage is of its eligible nodes that are not closed."""
    pool_label: fields.Key | None = None
    max_releases: fields.NodeLimit = IntOrPercent(0.25, is_share=True)
    """Per tick; a percentage is of the marked nodes. At least one may always be released."""
    max_writes_per_minute: Annotated[int, Field(strict=True, gt=0, le=fields.MAX_NODES)] = 240
    """New marks of hot nodes count toward it, but are never delayed."""


Method = Literal["linear", "relative"]


class Profile(RulesModel):
    """How the extender scores nodes for the pods of one schedulerName."""

    score: Mapping[str, fields.Weight]
    equal_below: EqualBelow = 0.0
    method: Method = "linear"


class ExtenderRules(RulesModel):
    """The section ``extender``: what the scheduler extender answers."""

    require_label: fields.Key | None = None
    reject: Annotated[tuple[str, ...], Field(max_length=MAX_RULES)] = ()
    profiles: Mapping[str, Profile] = Field(default_factory=dict)
    """Keyed by schedulerName."""


class OrderRules(RulesModel):
    """The section ``order``: the rules that rank the nodes for new pods (docs/order.md)."""

    score: Mapping[str, fields.Weight]
    pack: Flag = False
    """Whether the fullest of the nodes below `equal_below` come first, so that others get empty."""
    equal_below: EqualBelow = Field(
        default_factory=lambda data: PACK_BELOW if data.get("pack") else DEFAULT_EQUAL_BELOW
    )

    @field_validator("score")
    @classmethod
    def _weighs(cls, score: Mapping[str, float]) -> Mapping[str, float]:
        if not any(score.values()):
            raise problem("gives no rule a weight above 0: there would be no order")
        return score
