"""What is known of the rules' world, as plain values. None stands for what could not be asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from dynsched.engine.model import Node, QueryResult
from dynsched.kube.inspection import Program, Right
from dynsched.rules.rule_set import FileRule, RuleSet
from dynsched.tools.doctor.avoiders import Reach
from dynsched.tools.doctor.expressions import Expression, Matcher, Selector

if TYPE_CHECKING:  # it brings numpy, 13 MB that `dynsched reach` has no use for
    from dynsched.engine.match import NodeIndex

AUTOSCALER: Final = "cluster-autoscaler"
KARPENTER: Final = "karpenter"
DESCHEDULER: Final = "descheduler"
"""Parts of the names of images, by which the programs are known."""


class Missing(NamedTuple):
    """A label matcher that selects nothing now, and (some) values of its label on the metric."""

    matcher: Matcher
    values: tuple[str, ...]


class Copies(NamedTuple):
    """A label that tells clusters (or replicas of Prometheus) apart, how many values of it one
    selector finds, and how many addresses stand under more than one of them.
    """

    label: str
    values: tuple[str, ...]
    shared: int


@dataclass(frozen=True, slots=True)
class SelectorFacts:
    """One selector, as Prometheus knows it."""

    selector: Selector
    series: int | None = None
    """How many series it selects now."""
    seen: bool | None = None
    """Whether it selected any at one of the hourly looks at the last seven days."""
    metric_series: int | None = None
    """Where it selects none: how many the metric has with any labels."""
    metric_seen: bool | None = None
    missing: tuple[Missing, ...] = ()
    interval: float | None = None
    """Seconds between two samples of a series, of the job that is scraped most rarely."""
    job: str = ""
    """That job."""
    kind: str | None = None
    """The metric's type: ``counter``, ``gauge``, ..."""
    lag: float | None = None
    """Seconds since its newest sample."""
    copies: tuple[Copies, ...] = ()


@dataclass(frozen=True, slots=True)
class Seen:
    """The values of an expression over time, of all series since ``since`` seconds ago."""

    least: float
    most: float
    since: float
    odd: int = 0
    """Of how many series, at the worst moment, the value was no finite number."""


@dataclass(frozen=True, slots=True)
class RuleFacts:
    """One rule that Prometheus answers."""

    rule: FileRule
    answer: QueryResult
    expression: Expression = field(default_factory=Expression)
    selectors: tuple[SelectorFacts, ...] = ()
    past: Seen | None = None
    seconds: float | None = None
    """How long its query took, the quicker of two."""
    samples: int | None = None
    """How many samples one evaluation touches."""
    recorded: tuple[str, str] | None = None
    """A recording rule (name, expression) that computes a part of it, or all."""


@dataclass(frozen=True, slots=True)
class World:
    """The rules that Prometheus answers, and what their checks know besides."""

    rule_set: RuleSet
    interval: float = 10.0
    """Seconds between ticks."""
    nodes: Mapping[str, Node] = field(default_factory=dict)
    index: NodeIndex | None = None
    """Of the nodes; None where the API server did not tell."""
    rules: tuple[RuleFacts, ...] = ()
    retention: float | None = None
    """Seconds."""
    skew: float | None = None
    """By how many seconds Prometheus's clock is ahead of ours."""
    node_skew: float | None = None
    """By how many seconds the worst node's clock differs from Prometheus's."""
    throttled: int | None = None
    """How many series of containers were throttled within the last minutes."""
    errors: Mapping[str, str] = field(default_factory=dict)
    """By code: why what its check needs could not be asked."""


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """One cluster. What could not be asked is in ``errors``."""

    nodes: Mapping[str, Node]
    reach: Reach | None = None
    refused: Sequence[Right] = ()
    """The rights that we lack."""
    holders: tuple[str, ...] | None = None
    """Who holds a Lease `dynsched` and renews it, a line each; None: not asked."""
    guardrail: Mapping[str, Any] | None = None
    """The ValidatingAdmissionPolicy of manifests/components/guardrail."""
    injection: Mapping[str, Any] | None = None
    """The MutatingAdmissionPolicy that gives pods their affinity."""
    programs: Sequence[Program] = ()
    """Autoscalers and deschedulers."""
    policies: Mapping[str, Any] = field(default_factory=dict)
    """The descheduler's policies, read, by where they stand."""
    cilium: Mapping[str, str] | None = None
    """The data of Cilium's ConfigMap."""
    metrics: str | None = None
    """Why metrics-server, which a rule asks, does not answer."""
    errors: Mapping[str, str] = field(default_factory=dict)
    """By code: why what its check needs could not be asked."""
