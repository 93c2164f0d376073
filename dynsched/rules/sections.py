"""The sections of rules.yaml beside the rules: the mark, the nodes, the guard, the extender."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator

from dynsched.rules import keys
from dynsched.rules.fields import (
    MAX_NODES,
    MAX_PROFILES,
    MAX_RULES,
    Key,
    Limit,
    NodeLimit,
    Weight,
    read_by,
)
from dynsched.rules.labels import (
    LabelMark,
    Selector,
    TaintMark,
    parse_label,
    parse_selector,
    parse_taint,
)
from dynsched.rules.rule_errors import problem


class Model(BaseModel):
    """A part of rules.yaml. It never changes; a key that it does not know is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)


class MarkRules(Model):
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


class NodeRules(Model):
    """The ``nodes`` section: which nodes are eligible."""

    selector: Annotated[Selector, read_by(parse_selector)] = Selector()
    """A label selector, as `kubectl -l` takes it; the empty one selects all nodes."""
    include_control_plane: Annotated[bool, Field(strict=True)] = False
    """Whether control-plane nodes may be marked too."""


class GuardRules(Model):
    max_marked: NodeLimit = Limit(0.5, is_share=True)
    """How many nodes of a pool may be marked at the same time: a number, or a share of the eligible
    ones."""
    pool_label: Key | None = None
    """The node label whose value names the node's pool; None when all nodes are one pool."""
    max_releases: NodeLimit = Limit(0.25, is_share=True)
    """How many nodes may be released in one tick: a number, or a share of the marked ones; one node
    may always be released."""
    max_writes_per_minute: Annotated[int, Field(strict=True, gt=0, le=MAX_NODES)] = 240
    """How many writes to nodes there may be in a minute, over all nodes. Marks of hot nodes count,
    and are never delayed."""
    bind_burst: Annotated[bool, BeforeValidator(lambda given: given is not None)] = False
    """Whether the file names this key, which has no effect any more (`lint.obsolete`)."""


class Profile(Model):
    """How the extender scores nodes for the pods of one schedulerName."""

    score: Mapping[str, Weight]
    """Rule name -> weight of the rule's value in the score."""
    method: Literal["linear", "relative", "least"] = "linear"
    """How a value becomes a score (docs/extender.md); ``least`` is now the same as ``relative``."""


class ExtenderRules(Model):
    require_label: Key | None = None
    """Only nodes with this label pass the filter; None accepts all nodes."""
    reject: Annotated[tuple[str, ...], Field(max_length=MAX_RULES)] = ()
    """Names of rules: the filter refuses a node on which one of them fires."""
    profiles: Annotated[Mapping[str, Profile], Field(max_length=MAX_PROFILES)] = Field(
        default_factory=dict
    )
    """schedulerName -> how nodes are scored for its pods."""
