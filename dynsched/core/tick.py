"""One tick as it is published: the evaluation after its writes, and the state of the process around
it. Every answer, page, metric and log line is made from it.
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
    """In Unix seconds; None if the query never succeeded."""
    samples: int
    unmatched: int
    quality: Mapping[Quality, int]
    states: Mapping[AlertState, int]
    past_error: str | None = None
    """In the first tick after a start: why there was no history of the rule, so that its durations
    count from the start."""
    several: SeveralSeries | None = None

    @property
    def ok(self) -> bool:
        """Whether the last query was answered."""
        return self.error is None


@dataclass(frozen=True, slots=True)
class WriteResult:
    """What came of the patches that were due."""

    applied: tuple[NodePatch, ...] = ()
    failures: tuple[WriteFailure, ...] = ()
    untried: tuple[NodePatch, ...] = ()
    """Not sent, because too many had failed."""


@dataclass(frozen=True, slots=True)
class RulesStatus:
    """How the rules file stands. ``error``: why its present content is refused while older rules
    are in force, or none. ``reloaded``, ``refused``: it changed since the last tick, and was
    accepted or not.
    """

    error: str | None = None
    reloaded: bool = False
    refused: bool = False


@dataclass(frozen=True, slots=True)
class Leadership:
    """Who writes: this replica where it is ``leading``; ``leader`` is the name of the one that
    does, None where that is not known. ``dry_run``: nobody, as far as this process goes.
    """

    leading: bool = True
    leader: str | None = None
    dry_run: bool = False


@dataclass(frozen=True)
class Tick:
    """See above. ``taken_at``: when it was finished, in Unix seconds."""

    evaluation: Evaluation
    taken_at: float
    number: int
    """1 for the first after a start; evaluations between two ticks count too."""
    duration: float
    """Seconds, queries and writes included."""
    rules: tuple[RuleHealth, ...]
    writes: WriteResult = WriteResult()
    planned: tuple[NodePatch, ...] = ()
    """The patches that were due. In a dry run: only those that it would send now."""
    delayed: int = 0
    """How many of them wait for ``guard.max_writes_per_minute``."""
    disputes: Mapping[str, str] = field(default_factory=dict)
    """By node: a sign that another program or person changes the node's mark too."""
    error: str | None = None
    """Why the tick failed, in one line; None when it succeeded."""
    leadership: Leadership = Leadership()
    rules_status: RulesStatus = RulesStatus()
    queried: bool = True
    """Whether the rules were queried for it; False where it was evaluated again on the last
    answers, because pods were bound or ended."""
    pods: KnownPods = NO_PODS
    """What was known of pods; NO_PODS where they are not watched."""

    @property
    def rule_set(self) -> RuleSet:
        """The rules that were evaluated."""
        return self.evaluation.rule_set
