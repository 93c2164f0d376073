"""The values that all other modules exchange. All are frozen and independent of their source.

Units, everywhere: times are Unix seconds (float, UTC), durations are seconds (float),
values have the unit of the rule's expression (most often percent).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from ipaddress import AddressValueError, IPv6Address
from typing import Any, NamedTuple

from msgspec import Struct

from dynsched.rules.rule_set import Rule


class Sample(Struct, frozen=True, gc=False):
    """One value as it was answered; ``timestamp`` is in Unix seconds."""

    labels: Mapping[str, str]
    value: float
    """May be NaN or infinite: ``engine.nodes.match`` makes such a sample INVALID, never 0."""
    timestamp: float


@dataclass(frozen=True, slots=True)
class QueryResult:
    """The result of one rule's query: samples or an error. A failed query raises no exception."""

    samples: Sequence[Sample] = ()
    """Empty when the query failed, by ``error``: nothing is known then, which is not "no load"."""
    error: str | None = None
    """One line for a person (what is wrong, where, what to do) when the query failed."""
    warnings: tuple[str, ...] = ()
    """Not empty for a partial answer: a node without a sample in it is MISSING, not cool."""
    duration: float = 0.0
    refused: bool = False
    """Whether the server says that the query itself is wrong."""


@dataclass(frozen=True, slots=True)
class Series:
    """Many values of the same labels."""

    labels: Mapping[str, str]
    points: tuple[tuple[float, float], ...]
    """Pairs ``(timestamp, value)``, in the order of their timestamps."""


def canonical(text: str) -> str:
    """The one text of a name or an address. An IPv6 address is compressed and in lower case
    (RFC 5952), without its zone; one that only wraps an IPv4 address is that address. All else is
    taken for a name: in lower case, without the dot that ends a fully qualified one.
    """
    if ":" in text:
        try:
            address = IPv6Address(text.partition("%")[0])
        except AddressValueError:
            return text.lower()
        return str(address.ipv4_mapped or address)
    lowered = text.lower().removesuffix(".")
    return text if lowered == text else lowered  # the same object: it is kept for every node


@dataclass(frozen=True, slots=True)
class Node:
    """The fields of a Kubernetes Node that dynsched keeps (the whole object is 9 KB and more)."""

    name: str
    uid: str = ""
    """Differs for a node that was deleted and created again under its name."""
    resource_version: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    """Only the annotations under ``dynsched.io/``."""
    taints: tuple[Mapping[str, Any], ...] = ()
    """As they came: ``spec.taints`` is an atomic list, so a write must send the taints of others
    back unchanged."""
    addresses: tuple[tuple[str, str], ...] = ()
    """Pairs ``(type, address)``."""
    allocatable: Mapping[str, float] = field(default_factory=dict)
    """``cpu`` in cores, ``memory`` in bytes."""
    created: float = 0.0
    """In whole Unix seconds, by the API server's clock; 0 when it is unknown."""
    owned: frozenset[str] = frozenset()
    """Keys of the labels whose present values dynsched wrote, according to managedFields."""
    known_as: tuple[str, ...] = field(init=False, repr=False, compare=False)
    """The name, then the addresses, as `canonical` gives them: once per change of the node."""

    def __post_init__(self) -> None:
        texts = (self.name, *(address for _kind, address in self.addresses))
        object.__setattr__(self, "known_as", tuple(dict.fromkeys(map(canonical, texts))))


@dataclass(frozen=True, slots=True)
class NodeUsage:
    """One NodeMetrics of metrics-server: what a node uses."""

    node: str
    amounts: Mapping[str, float]
    """Cores (``cpu``) and bytes (``memory``), without what could not be read."""
    taken_at: float | None
    """None where the time could not be read."""


class Quality(StrEnum):
    """Of one rule's sample for one node in this tick."""

    OK = "ok"
    MISSING = "missing"  # the query succeeded, but has no sample for this node
    STALE = "stale"  # the sample is older than stale_after
    INVALID = "invalid"  # NaN or infinite
    FAILED = "failed"  # the query itself failed


class AlertState(StrEnum):
    """The states of Prometheus. An alert that fires only because of ``keep_firing_for`` is FIRING,
    with ``keep_firing_since`` set.
    """

    INACTIVE = "inactive"
    PENDING = "pending"
    FIRING = "firing"


class Alert(Struct, frozen=True, gc=False):
    """The state of one rule on one node after one evaluation. All times are Unix seconds."""

    rule: str
    node: str
    state: AlertState
    since: float
    updated_at: float
    """Never decreases, even if the clock is set back."""
    known_at: float
    """When there last was an OK reading, or when the alert was adopted: stale since then."""
    quality: Quality = Quality.OK
    value: float | None = None
    """The value of the last OK reading; None before the first."""
    compared: float | None = None
    """The value that the threshold was compared with then: with ``by: expected`` the expected one.
    """
    sampled_at: float | None = None
    active_since: float | None = None
    """When the threshold was first breached, while PENDING or FIRING (Prometheus's ActiveAt)."""
    keep_firing_since: float | None = None
    """While it fires only because of ``keep_firing_for``: when the value first was on the clear
    side of ``clear_threshold`` (Prometheus's KeepFiringSince)."""
    adopted: bool = False
    """Whether it was derived from a mark on the node, without an OK reading since."""
    uid: str = ""
    """The node's: one that was created again under its name gets new alerts."""

    @property
    def firing(self) -> bool:
        """Also while it fires because of ``keep_firing_for`` alone."""
        return self.state is AlertState.FIRING


class Verdict(Struct, frozen=True, gc=False):
    """What the alerts of one node come to together."""

    node: str
    hot: bool
    """At least one alert fires."""
    since: float | None
    severity: float
    """How far the worst firing alert is beyond its threshold, as a share of the threshold; 0
    when none fires or no value is known."""
    alerts: tuple[Alert, ...]
    """One per rule that applies to the node, in the order of the rules."""


class Action(StrEnum):
    """What a patch does to the mark."""

    MARK = "mark"
    RELEASE = "release"
    REPAIR = "repair"
    """The mark stays; a part of it was missing or belongs to an older configuration."""


@dataclass(frozen=True, slots=True)
class NodePatch:
    """One JSON merge patch for one node, not sent yet."""

    node: str
    action: Action
    body: Mapping[str, Any]
    """With the observed resourceVersion, so that the API server refuses it when the Node has
    changed since."""
    reason: str
    """One line for a person: the rules, values and thresholds behind the patch."""

    @property
    def version(self) -> str:
        """The observed resourceVersion; empty when there is none."""
        return str(self.body.get("metadata", {}).get("resourceVersion", ""))


@dataclass(frozen=True, slots=True)
class Unmatched:
    """A sample that belongs to no node, and why."""

    rule: str
    value: str
    """The value of the label that should name the node."""
    reason: str


@dataclass(frozen=True, slots=True)
class SeveralSeries:
    """A rule that has more than one series for a node. The worst value is used."""

    rule: str
    nodes: int
    """How many have more than one series."""
    example: str
    labels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RuleHealth:
    """The outcome of one rule's last query, and counts of its readings and alerts."""

    rule: Rule
    error: str | None
    warnings: tuple[str, ...]
    duration: float
    last_success: float | None
    """In Unix seconds; None if the query never succeeded."""
    samples: int
    unmatched: int
    quality: Mapping[Quality, int]
    states: Mapping[AlertState, int]
    past_error: str | None = None
    """In the first Snapshot after a start: why there was no history of the rule, so that its
    durations count from the start."""
    several: SeveralSeries | None = None

    @property
    def ok(self) -> bool:
        """Whether the last query was answered."""
        return self.error is None


@dataclass(frozen=True, slots=True)
class WriteFailure:
    """A node that the API server did not let us change, and why; as text ``node: cause``."""

    node: str
    cause: str
    again: bool = False
    """Whether it was refused in an earlier tick, and is not tried again yet."""

    def __str__(self) -> str:
        return f"{self.node}: {self.cause}"


@dataclass(frozen=True, slots=True)
class User:
    """Who asks over HTTP, as the API server knows them: RBAC goes by name and groups, a webhook
    perhaps by all.
    """

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class Level(NamedTuple):
    """Nodes that are preferred alike; ``weight`` 1 to 100."""

    weight: int
    nodes: tuple[str, ...]


NodeList = tuple[Level, ...]
"""What one pod gets."""


@dataclass(frozen=True, slots=True)
class Order:
    """``lists`` by pool (a value of the label ``pool_label``); those of all nodes together, for
    pods that choose no pool, by the empty string. ``further``: beside these, for pods that
    kube-scheduler does not spread by itself; a pool of which it has none is missing.
    """

    lists: Mapping[str, tuple[NodeList, ...]]
    further: Mapping[str, tuple[NodeList, ...]] = field(default_factory=dict)
    pool_label: str | None = None
    loads: Mapping[str, int] = field(default_factory=dict, repr=False, compare=False)
    """Tenths of a point, by node, where they are known. Other loads of the same rank are no other
    order, which would have to be written."""
    counts: Mapping[str, int] = field(default_factory=dict, compare=False)
    """Of all nodes: those that are ``ranked`` by their load, of ``unknown`` load, and in no list
    because they are ``hot``, ``closed`` (see `placing.order.is_closed`), ``full`` or ``unnamed``
    (see `placing.order.host_names`)."""
    left_out: tuple[str, ...] = field(default=(), compare=False)
    """Pools for which the object has no room."""
