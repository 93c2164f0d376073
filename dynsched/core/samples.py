"""From the samples of one rule to a reading for each node.

Exporters name a node in many ways: by its name or by one of its addresses, with or without a port,
in the label ``node`` here and in ``instance`` there.
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

_LOOKED_AT: Final = 200
"""Samples among which a label with the node is looked for."""


class Sample(Struct, frozen=True, gc=False):
    """One value as it was answered; ``timestamp`` is in Unix seconds."""

    labels: Mapping[str, str]
    value: float
    """May be NaN or infinite: such a sample is INVALID, never 0."""
    timestamp: float


class Series(Struct, frozen=True, gc=False):
    """Many values of the same labels, in the order of their times."""

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
    """How good one rule's reading on one node is, in this evaluation."""

    OK = "ok"
    MISSING = "missing"  # the query succeeded, but has no sample for this node
    STALE = "stale"  # the sample is older than stale_after
    INVALID = "invalid"  # NaN, infinite, or no value that the rule can have
    FAILED = "failed"  # the query itself failed


@dataclass(frozen=True, slots=True)
class QueryResult:
    """The result of one rule's query: samples or an error. A failed query raises no exception."""

    samples: Sequence[Sample] = ()
    """Empty when the query failed: nothing is known then, which is not "no load"."""
    error: str | None = None
    """One line for a person when the query failed: what is wrong, where, what to do."""
    warnings: tuple[str, ...] = ()
    """Not empty for a partial answer: a node without a sample in it is MISSING, not cool."""
    duration: float = 0.0
    refused: bool = False
    """Whether the query itself is wrong: the server says so, or its result belongs to no node."""
    is_new: bool = True
    """False for an answer that counts again, because the next one is not there yet."""


@dataclass(frozen=True, slots=True)
class NodeUsage:
    """One NodeMetrics object of metrics-server: what a node uses."""

    node: str
    amounts: Mapping[str, float]
    """Cores (``cpu``) and bytes (``memory``), without what could not be read."""
    taken_at: float | None
    """In Unix seconds; None where the time could not be read."""


class Reading(Struct, frozen=True, gc=False):
    """A rule's sample on a node; ``taken`` is in Unix seconds."""

    value: float
    taken: float
    quality: Quality
    expected: float | None = None
    """What the value is expected to be; None where the rule compares the measured one."""


MISSING: Final = Reading(math.nan, math.nan, Quality.MISSING)
FAILED: Final = Reading(math.nan, math.nan, Quality.FAILED)


class Unmatched(Struct, frozen=True, gc=False):
    """A sample that belongs to no node, and why; ``value`` of the label that should name it."""

    rule: str
    value: str
    reason: str


class SeveralSeries(Struct, frozen=True, gc=False):
    """A rule has more than one series for each of ``nodes`` nodes; the worst value counts.
    ``labels``: those in which the series of the node ``example`` differ.
    """

    rule: str
    nodes: int
    example: str
    labels: tuple[str, ...]


class Matched(Struct, frozen=True, gc=False):
    """One rule's samples, by the name of their node."""

    readings: Mapping[str, Reading]
    unmatched: tuple[Unmatched, ...] = ()
    several: SeveralSeries | None = None
    holder: str = ""
    """As `holder_of` gives it."""


def holder_of(
    labels: Iterable[Mapping[str, str]], used: Sequence[str], lookup: AddressLookup
) -> str:
    """The label that holds the node, where it is none of ``used``; else "". Where a label of the
    exporter has the name of one that Prometheus adds, Prometheus calls the exporter's
    ``exported_...``, and the other one names the exporter's own node.
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
    """Match all samples of one rule.

    Where a node has several samples (an expression that does not aggregate, two clusters in one
    Prometheus), the worst one counts, in whatever order they came. A sample that is invalid, or
    older than ``fresh_since`` (Unix seconds), counts only where there is no better one.
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
    looked_at = [sample.labels for sample in samples[:_LOOKED_AT]] if is_suspect else ()
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
    """The sample with the highest one counts. Of samples that cannot be used, the latest."""
    if not plausible[0] <= sample.value <= plausible[1]:
        return False, False, sample.timestamp, 0.0
    height = sample.value if rule.higher_is_worse else -sample.value
    if sample.timestamp >= fresh_since:
        return True, True, height, sample.timestamp
    return True, False, sample.timestamp, height


def _several(rule: Rule, doubles: Mapping[str, Sequence[Sample]]) -> SeveralSeries:
    example = min(doubles)
    first, *others = (sample.labels for sample in doubles[example])
    # A label that differs between two of them differs from the first in one of these.
    differing = {name for other in others for name, _ in first.items() ^ other.items()}
    return SeveralSeries(rule.name, len(doubles), example, tuple(sorted(differing)))
