"""Turns the samples of one rule into a reading for each node.

Exporters identify a node by its name or by one of its addresses, with or without a port, and in the
label ``node`` or ``instance``.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from operator import itemgetter
from typing import Final

from msgspec import Struct

from dynsched.core.nodes import AddressLookup
from dynsched.core.percent import plausible_values
from dynsched.rules.rule_set import Rule

_MAX_SEARCHED: Final = 200
"""Maximum number of samples that are searched for a label with the node."""


class Sample(Struct, frozen=True, gc=False):
    """One sample of a query result; ``timestamp`` is in Unix seconds."""

    labels: Mapping[str, str]
    value: float
    """May be NaN or infinite: such a sample is INVALID, never 0."""
    timestamp: float


class Series(Struct, frozen=True, gc=False):
    """Values with the same labels, in the order of their times."""

    labels: Mapping[str, str]
    points: Sequence[tuple[float, float]]
    """Pairs of Unix seconds and value."""

    def last(self, since: float, until: float) -> Sample | None:
        """The last point in ``(since, until]``."""
        at = bisect_right(self.points, until, key=itemgetter(0)) - 1
        if at < 0 or self.points[at][0] <= since:
            return None
        return Sample(self.labels, self.points[at][1], self.points[at][0])


class Quality(StrEnum):
    """The quality of one rule's reading on one node in one evaluation."""

    OK = "ok"
    MISSING = "missing"  # the query succeeded, but has no sample for this node
    STALE = "stale"  # the sample is older than stale_after
    INVALID = "invalid"  # NaN, infinite, or not plausible for the rule
    FAILED = "failed"  # the query itself failed


@dataclass(frozen=True, slots=True)
class QueryResult:
    """The result of one rule's query: samples or an error. A failed query raises no exception."""

    samples: Sequence[Sample] = ()
    """Empty if the query failed, which means "unknown", not "no load"."""
    error: str | None = None
    """If the query failed, one line that says what is wrong, where, and what to do."""
    warnings: tuple[str, ...] = ()
    """Not empty for a partial answer. A node without a sample in it is MISSING, not cool."""
    duration: float = 0.0
    refused: bool = False
    """Whether the query itself is wrong: the server rejects it, or its result is of a type that has
    no sample for each node, such as a scalar."""
    is_new: bool = True
    """False for an earlier answer that is used again, because the next one has not arrived yet."""


@dataclass(frozen=True, slots=True)
class NodeUsage:
    """What a node uses, from one NodeMetrics object of metrics-server."""

    node: str
    amounts: Mapping[str, float]
    """Cores (``cpu``) and bytes (``memory``), without unreadable values."""
    taken_at: float | None
    """In Unix seconds, or None if the time could not be read."""


class Reading(Struct, frozen=True, gc=False):
    """A rule's sample on a node; ``taken`` is in Unix seconds."""

    value: float
    taken: float
    quality: Quality
    expected: float | None = None
    """The expected value, or None if the measured one is compared."""


MISSING: Final = Reading(math.nan, math.nan, Quality.MISSING)
FAILED: Final = Reading(math.nan, math.nan, Quality.FAILED)


class Unmatched(Struct, frozen=True, gc=False):
    """A sample that matches no node, and why. ``value`` is of the label that should name it."""

    rule: str
    value: str
    reason: str


class SeveralSeries(Struct, frozen=True, gc=False):
    """A rule has more than one series for each of ``nodes`` nodes; the worst value counts.
    ``labels`` are the ones in which the series of the node ``example`` differ.
    """

    rule: str
    nodes: int
    example: str
    labels: tuple[str, ...]


class Matched(Struct, frozen=True, gc=False):
    """One rule's readings, keyed by node name, and the problems found when matching them."""

    readings: Mapping[str, Reading]
    unmatched: tuple[Unmatched, ...] = ()
    several: SeveralSeries | None = None
    holder: str = ""
    """The result of `holder_of`."""


def holder_of(
    labels: Iterable[Mapping[str, str]], used: Sequence[str], lookup: AddressLookup
) -> str:
    """The label that should name the node instead of those ``used``, or "" if there is none.

    If an exporter's label has the same name as one that Prometheus adds, Prometheus renames the
    exporter's label to ``exported_...``. The other one then names the node of the exporter itself.
    """
    named: defaultdict[str, set[str]] = defaultdict(set)
    for each in labels:
        nodes = {name: node for name, text in each.items() if (node := lookup.find(text).node)}
        for name in used:
            own = f"exported_{name}"
            if own in nodes and name in each and nodes[own] != nodes.get(name):
                return own
        for name, node in nodes.items():
            named[name].add(node)
    most = max((len(named[name]) for name in used), default=0)
    return next((name for name in sorted(named) if len(named[name]) > most), "")


def match_samples(
    rule: Rule, samples: Sequence[Sample], lookup: AddressLookup, *, fresh_since: float = -math.inf
) -> Matched:
    """Match all samples of one rule to nodes.

    If a node has several samples (an expression that does not aggregate, two clusters in one
    Prometheus), the worst one counts, whatever their order. A sample that is invalid, or older than
    ``fresh_since`` (Unix seconds), counts only if there is no better one.
    """
    chosen: dict[str, Sample] = {}
    doubles: dict[str, list[Sample]] = {}
    unmatched: list[Unmatched] = []
    for sample in samples:
        text = next((sample.labels[n] for n in rule.node_labels if n in sample.labels), None)
        if text is None:
            reason = f"the sample has no label {' or '.join(rule.node_labels)}"
            unmatched.append(Unmatched(rule.name, "", reason))
            continue
        node, reason = lookup.find(text)
        if node is None:
            unmatched.append(Unmatched(rule.name, text, reason))
        elif node in chosen:
            doubles.setdefault(node, [chosen[node]]).append(sample)
        else:
            chosen[node] = sample
    plausible = plausible_values(rule)
    for node, several in doubles.items():
        chosen[node] = max(
            several, key=lambda each: _precedence(rule, each, fresh_since, plausible)
        )
    is_suspect = (
        doubles or unmatched or any("exported_" in n for s in samples[:1] for n in s.labels)
    )
    looked_at = [sample.labels for sample in samples[:_MAX_SEARCHED]] if is_suspect else ()
    return Matched(
        {node: _reading(sample, plausible) for node, sample in chosen.items()},
        tuple(sorted(unmatched, key=lambda each: (each.value, each.reason))),
        _several(rule, doubles) if doubles else None,
        holder_of(looked_at, rule.node_labels, lookup),
    )


def _reading(sample: Sample, plausible: tuple[float, float]) -> Reading:
    least, most = plausible
    quality = Quality.OK if least <= sample.value <= most else Quality.INVALID
    return Reading(sample.value, sample.timestamp, quality)


def _precedence(
    rule: Rule, sample: Sample, fresh_since: float, plausible: tuple[float, float]
) -> tuple[bool, bool, float, float]:
    """Sort key: the sample with the highest key counts. Of unusable samples, the latest counts."""
    if not plausible[0] <= sample.value <= plausible[1]:
        return False, False, sample.timestamp, 0.0
    height = sample.value if rule.higher_is_worse else -sample.value
    if sample.timestamp >= fresh_since:
        return True, True, height, sample.timestamp
    return True, False, sample.timestamp, height


def _several(rule: Rule, doubles: Mapping[str, Sequence[Sample]]) -> SeveralSeries:
    example = min(doubles)
    first, *others = (sample.labels for sample in doubles[example])
    # Comparing with the first is enough: labels that are equal in all pairs with it never differ.
    differing = {name for other in others for name, _ in first.items() ^ other.items()}
    return SeveralSeries(rule.name, len(doubles), example, tuple(sorted(differing)))
