"""What one tick came to, whole: every answer, page and log line is made from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dynsched.engine.decision import NodeViews
from dynsched.engine.model import NodePatch, RuleHealth, Unmatched, WriteFailure
from dynsched.engine.pod_values import PodsSummary, PodUse
from dynsched.rules.rule_set import RuleSet


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The immutable result of one tick. All HTTP answers are made from the last Snapshot."""

    taken_at: float
    """When the tick was finished, in Unix seconds."""
    tick: int
    """The number of the tick; the first after a start is 1."""
    duration: float
    """How long the tick took, in seconds, queries and writes included."""
    rule_set: RuleSet
    """The rules that are in force."""
    nodes: NodeViews
    """All nodes of the cluster, by name."""
    rules: tuple[RuleHealth, ...]
    """One per rule, in the order of the rules."""
    unmatched: tuple[Unmatched, ...] = ()
    """Samples that match no node."""
    capped: frozenset[str] = frozenset()
    """The pools in which ``guard.max_marked`` is reached and hot nodes stay unmarked; the empty
    string stands for all nodes, when no pools are configured."""
    disputes: Mapping[str, str] = field(default_factory=dict)
    """By node name: a sign that another program or person changes the node's mark too."""
    planned: tuple[NodePatch, ...] = ()
    """The patches that were due. In a dry run: only those that it would not have sent in an
    earlier tick."""
    applied: tuple[NodePatch, ...] = ()
    """The patches that the API server accepted."""
    failures: tuple[WriteFailure, ...] = ()
    """The patches that the API server did not accept, and why."""
    delayed: int = 0
    """How many of the planned patches wait for ``guard.max_writes_per_minute``."""
    error: str | None = None
    """One line with the reason when the tick failed; None when it succeeded."""
    dry_run: bool = False
    """Whether nothing is written at all."""
    leading: bool = True
    """Whether this process is the leader and writes."""
    leader: str | None = None
    """The identity of the leader, when it is known."""
    rules_error: str | None = None
    """Why the present content of the rules file is refused while older rules are in force; else
    None."""
    reloaded: bool = False
    """Whether the rules file changed since the last tick and its content was accepted."""
    refused: bool = False
    """Whether the rules file changed since the last tick and its content was refused."""
    uses: Mapping[str, PodUse] = field(default_factory=dict)
    """By rule: what a pod is expected to use; empty when nothing is known of pods."""
    pod_changes: int = 0
    """The number of the last change of pods that the loads contain (`RecentPods.sequence`)."""
    queried: bool = True
    """Whether the rules were queried for it; False where it was decided again on the last answers,
    because pods were bound or ended."""
    pods: PodsSummary | None = None
    """How much is known of pods; None where they are not watched."""
