"""One tick as it is published: the evaluation after its writes, and the state of the process. Every
answer, page, metric and log line is made from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dynsched.core.alerts import AlertState
from dynsched.core.evaluate import Evaluation
from dynsched.core.guard import WriteFailure
from dynsched.core.load.expected import NO_PODS, KnownPods
from dynsched.core.marks import NodePatch
from dynsched.core.samples import Quality, SeveralSeries
from dynsched.rules.rule_set import Rule, RuleSet


@dataclass(frozen=True, slots=True)
class RuleHealth:
    """The outcome of one rule's last query, and counts of its readings and alerts."""

    rule: Rule
    error: str | None
    warnings: tuple[str, ...]
    duration: float
    is_new: bool
    """As in `QueryResult`."""
    last_success: float | None
    """In Unix seconds, or None if the query never succeeded."""
    samples: int
    unmatched: int
    quality: Mapping[Quality, int]
    states: Mapping[AlertState, int]
    past_error: str | None = None
    """In the first tick after a start: why the rule's history is not available. Its durations then
    count from the start."""
    several: SeveralSeries | None = None

    @property
    def ok(self) -> bool:
        """Whether the last query succeeded."""
        return self.error is None


@dataclass(frozen=True, slots=True)
class WriteResult:
    """The outcome of the patches that were due."""

    applied: tuple[NodePatch, ...] = ()
    failures: tuple[WriteFailure, ...] = ()
    untried: tuple[NodePatch, ...] = ()
    """Not sent, because too many others had failed."""


@dataclass(frozen=True, slots=True)
class RulesStatus:
    """The status of the rules file.

    ``error`` is why its current content is refused; older rules, or none, are then in force.
    ``reloaded`` or ``refused`` is set if it changed since the last tick, and was accepted or not.
    """

    error: str | None = None
    reloaded: bool = False
    refused: bool = False


@dataclass(frozen=True, slots=True)
class Leadership:
    """Which replica writes: this one if it is ``leading``. ``leader`` is the name of the one that
    does, or None if unknown. In a ``dry_run`` this process never writes.
    """

    leading: bool = True
    leader: str | None = None
    dry_run: bool = False


@dataclass(frozen=True)
class Tick:
    """One published tick. ``taken_at`` is when it finished, in Unix seconds."""

    evaluation: Evaluation
    taken_at: float
    number: int
    """1 for the first tick after a start; evaluations between two ticks count too."""
    duration: float
    """Seconds, queries and writes included."""
    rules: tuple[RuleHealth, ...]
    writes: WriteResult = WriteResult()
    planned: tuple[NodePatch, ...] = ()
    """The patches that were due; in a dry run, only those that would be sent now."""
    delayed: int = 0
    """Number of these patches that wait for ``guard.max_writes_per_minute``."""
    disputes: Mapping[str, str] = field(default_factory=dict)
    """Per node, a sign that another program or person changes its mark too."""
    error: str | None = None
    """Why the tick failed, in one line, or None if it succeeded."""
    leadership: Leadership = Leadership()
    rules_status: RulesStatus = RulesStatus()
    queried: bool = True
    """Whether the rules were queried for this tick. False if the last answers were evaluated again,
    because pods were bound or ended."""
    pods: KnownPods = NO_PODS
    """What was known about pods; NO_PODS if they are not watched."""

    @property
    def rule_set(self) -> RuleSet:
        """The rules that were evaluated."""
        return self.evaluation.rule_set
