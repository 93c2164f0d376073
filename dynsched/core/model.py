"""The values that everything else passes around. All frozen; none knows how it was come by.

Units, everywhere: times are Unix seconds (float, UTC), durations are seconds (float),
values are whatever the rule's expression gives (most often percent).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from dynsched.core.addresses import canonical
from dynsched.core.rules import Rule, RuleSet


@dataclass(frozen=True, slots=True)
class Sample:
    """One element of an instant vector: the series' labels, its value and when it was taken.

    ``value`` may be NaN or infinite: ``core.match`` makes such a sample INVALID, never 0.
    """

    labels: Mapping[str, str]
    value: float
    timestamp: float


@dataclass(frozen=True, slots=True)
class QueryResult:
    """What one rule's query came to: samples, or an error; never an exception.

    ``error`` is one line for a person (what is wrong, where, what to do) when the query failed;
    ``samples`` is then empty and means *nothing is known*, not *no load*.
    ``warnings`` not empty: a partial answer; nodes missing in it are missing, not cool.
    """

    samples: tuple[Sample, ...] = ()
    error: str | None = None
    warnings: tuple[str, ...] = ()
    duration: float = 0.0


@dataclass(frozen=True, slots=True)
class Series:
    """One series over time: its labels, and ``(timestamp, value)`` points with rising times."""

    labels: Mapping[str, str]
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Node:
    """The small projection of a Kubernetes Node that we keep (a body is 9 KB and more).

    ``addresses`` are ``(type, address)`` pairs, as InternalIP, Hostname, ExternalIP.
    ``annotations`` holds those under ``dynsched.io/`` only.
    ``taints`` are the raw mappings as the API server sent them, in its order: ``spec.taints``
    is an atomic list, so a write must return foreign taints exactly as they were.
    ``allocatable`` is in cores (``cpu``) and bytes (``memory``). ``created``: when the Node was
    made, to the second, by the API server's clock; 0 where that is not known. ``owned``: the keys
    of the labels whose values dynsched wrote last, as the API server records it (managedFields).
    ``known_as``: the name, then the addresses, in their canonical text (`core.addresses`).
    """

    name: str
    uid: str = ""
    resource_version: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Mapping[str, Any], ...] = ()
    addresses: tuple[tuple[str, str], ...] = ()
    allocatable: Mapping[str, float] = field(default_factory=dict)
    created: float = 0.0
    owned: frozenset[str] = frozenset()
    known_as: tuple[str, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Read the addresses once a change of the node, and not once a tick."""
        texts = (self.name, *(address for _kind, address in self.addresses))
        object.__setattr__(self, "known_as", tuple(dict.fromkeys(map(canonical, texts))))


class Quality(StrEnum):
    """What is known of one rule on one node in this tick."""

    OK = "ok"
    MISSING = "missing"  # the query answered, this node was not in it
    STALE = "stale"  # the sample is older than stale_after
    INVALID = "invalid"  # NaN or infinite
    FAILED = "failed"  # the query itself failed


@dataclass(frozen=True, slots=True)
class Reading:
    """A sample on a node. ``value`` counts only where ``quality`` is OK."""

    node: str
    value: float
    timestamp: float
    quality: Quality = Quality.OK


class AlertState(StrEnum):
    """As in Prometheus. A firing alert whose condition has ended and that ``keep_firing_for``
    holds is still FIRING, with ``keep_firing_since`` set.
    """

    INACTIVE = "inactive"
    PENDING = "pending"
    FIRING = "firing"


@dataclass(frozen=True, slots=True)
class Alert:
    """One rule on one node, after one evaluation.

    ``since`` is when the present state began; ``active_since`` when the breach began (PENDING and
    FIRING), as Prometheus's ActiveAt. ``value``/``sampled_at`` are of the last OK reading, None
    before the first. ``known_at`` is when there last was an OK reading (or when the alert was
    adopted): staleness is measured from it. ``updated_at`` never decreases. ``uid`` is the node's:
    a node that replaced another under its name begins with alerts of its own.
    """

    rule: str
    node: str
    state: AlertState
    since: float
    updated_at: float
    known_at: float
    quality: Quality = Quality.OK
    value: float | None = None
    sampled_at: float | None = None
    active_since: float | None = None
    keep_firing_since: float | None = None
    adopted: bool = False
    uid: str = ""

    @property
    def firing(self) -> bool:
        """Whether this alert puts its node under pressure."""
        return self.state is AlertState.FIRING


@dataclass(frozen=True, slots=True)
class Verdict:
    """All alerts of one node, folded: pressured while any of them fires.

    ``severity`` is how far the worst firing alert is over its threshold, as a share of the
    threshold (0 when none fires or nothing is known); ``since`` is when the first of the firing
    alerts began to fire.
    """

    node: str
    pressured: bool
    since: float | None
    severity: float
    alerts: tuple[Alert, ...]


class Action(StrEnum):
    """What a patch does to the mark, seen by a person."""

    MARK = "mark"
    RELEASE = "release"
    REPAIR = (
        "repair"  # the mark stays; a part of it was missing or belongs to an older configuration
    )


@dataclass(frozen=True, slots=True)
class NodePatch:
    """One JSON merge patch for one Node; ``body`` carries the observed resourceVersion.

    ``reason`` is one line for a person: the rules, values and thresholds behind it.
    """

    node: str
    action: Action
    body: Mapping[str, Any]
    reason: str

    @property
    def version(self) -> str:
        """The resourceVersion that it was decided on; empty where it carries none."""
        return str((self.body.get("metadata") or {}).get("resourceVersion") or "")


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node as the last tick saw it; what `/nodes` tells.

    ``ineligible``: why it may not be marked at all, else None. ``carries``: the labels and taints
    of ours that are on it, each as ``label status=presure``; an older configuration's among them.
    ``pressured``: the rules say so. ``due``: the patch that is due on it and not written, else
    None. ``withheld``: why a pressured node is not marked (the cap) or a cool one not yet released,
    else None. ``conflict``: whose label or taint stands in our place, else None.
    """

    name: str
    ineligible: str | None
    carries: tuple[str, ...]
    pressured: bool
    since: float | None
    alerts: tuple[Alert, ...]
    due: NodePatch | None = None
    conflict: str | None = None
    withheld: str | None = None

    @property
    def eligible(self) -> bool:
        """Whether it may be marked."""
        return self.ineligible is None

    @property
    def marked(self) -> bool:
        """Whether it carries our mark, a part of it, or one of an older configuration."""
        return bool(self.carries)


@dataclass(frozen=True, slots=True)
class Unmatched:
    """A sample that found no node: the label value that was looked at, and why."""

    rule: str
    value: str
    reason: str


@dataclass(frozen=True, slots=True)
class SeveralSeries:
    """A rule that has more than one series for a node: for how many ``nodes``, one of these as an
    ``example``, and the ``labels`` in which such series differ. The worst value counts.
    """

    rule: str
    nodes: int
    example: str
    labels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RuleHealth:
    """One rule's last query, and how its readings on the nodes were (counts by Quality).

    ``error``: why the last query failed, else None. ``last_success``: when it last answered.
    ``unmatched``: how many of its samples found no node. ``past_error``: why its past could not be
    had, so that its durations count from now; told in the first Snapshot after a start, else None.
    ``several``: whether there was more than one sample for a node.
    """

    rule: Rule
    error: str | None
    warnings: tuple[str, ...]
    duration: float
    last_success: float | None
    samples: int
    unmatched: int
    quality: Mapping[Quality, int]
    states: Mapping[AlertState, int]
    past_error: str | None = None
    several: SeveralSeries | None = None

    @property
    def ok(self) -> bool:
        """Whether the last query answered."""
        return self.error is None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that one tick found and did, immutable. Every answer is made from the last of these.

    ``error`` is None when the tick succeeded, else one line with the reason. ``planned`` are the
    patches that were due (of a dry run: those that would not have been sent in a tick before);
    ``applied`` those that the API server took; ``failures`` one line for
    each that it did not. ``capped``: the pools (``""``: all nodes) where ``max_marked`` binds.
    ``disputes``: by node, a sign that somebody else decides on its mark.
    ``leading``: whether this process writes; ``leader``: who does, where that is known.
    ``rules_error``: why the rules file as it is now is refused, and older rules are in force.
    ``reloaded``/``refused``: a change of the rules file was seen in this tick, and taken or not.
    """

    taken_at: float
    tick: int
    duration: float
    rule_set: RuleSet
    nodes: Mapping[str, NodeView]
    rules: tuple[RuleHealth, ...]
    unmatched: tuple[Unmatched, ...] = ()
    capped: frozenset[str] = frozenset()
    disputes: Mapping[str, str] = field(default_factory=dict)
    planned: tuple[NodePatch, ...] = ()
    applied: tuple[NodePatch, ...] = ()
    failures: tuple[str, ...] = ()
    error: str | None = None
    dry_run: bool = False
    leading: bool = True
    leader: str | None = None
    rules_error: str | None = None
    reloaded: bool = False
    refused: bool = False
