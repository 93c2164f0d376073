"""From a sample's labels to the node that it was measured on.

Exporters name a node in many ways: by node name or by one of its addresses, with a
port or without; in the label ``node`` here and in ``instance`` there.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dynsched.engine.columns import (
    INVALID,
    MISSING,
    OK,
    Bools,
    Codes,
    Floats,
    Ints,
    Roster,
    Vector,
)
from dynsched.engine.loads import rule_loads
from dynsched.engine.model import Node, Sample, SeveralSeries, Unmatched, canonical
from dynsched.engine.wording import some
from dynsched.rules.rule_set import Rule

_SPARE: Final = 4
"""For each name and address of a node, or series of the largest answer where these are more: series
that are remembered."""
_NOWHERE: Final = -1
_MAX_NAMED: Final = 3
"""Nodes that are named where many share one address."""


def spellings(text: str) -> Iterable[str]:
    """What a sample's label may stand for, in the order in which it is looked up: the whole text;
    what is before the port, without brackets; the canonical text of that.
    """
    yield text
    host, colon, port = text.rpartition(":")
    # The last group of a bare IPv6 address is no port, though it may be all digits.
    has_port = colon and port.isdigit() and (":" not in host or host.startswith("["))
    bare = (host if has_port else text).removeprefix("[").removesuffix("]")
    yield bare
    yield canonical(bare)


class _KnownSeries:
    """Which nodes series are of, which is the same at every tick. Mutable, for one thread at a
    time.
    """

    __slots__ = ("indices", "largest", "unmatched")

    def __init__(self) -> None:
        self.indices: dict[Hashable, int] = {}
        self.unmatched: dict[Hashable, tuple[str, str]] = {}
        """Of those whose index is -1: the value of the label, and why it names no node."""
        self.largest = 0


@dataclass(frozen=True, slots=True)
class NodeIndex:
    """``node_of``: every name and address of every node, in its canonical text -> the node's name.
    ``shared``: those addresses that several nodes have -> all their names. ``roster``: these nodes.
    """

    node_of: Mapping[str, str]
    shared: Mapping[str, list[str]]
    roster: Roster
    _known: dict[tuple[str, ...], _KnownSeries] = field(
        default_factory=dict, repr=False, compare=False
    )

    def find(self, text: str) -> tuple[int, str]:
        """The index of the node of a label value; -1 where it has none, and why."""
        for spelling in spellings(text):
            if spelling in self.shared:
                names = some(sorted(self.shared[spelling]), _MAX_NAMED)
                return _NOWHERE, f"more than one node has the address {spelling}: {names}"
            if spelling in self.node_of:
                return self.roster.indices[self.node_of[spelling]], ""
        return _NOWHERE, "no node has this name or address"

    def known(self, labels: tuple[str, ...], series: int) -> _KnownSeries:
        """What was found for the series of rules with these ``node_labels``: most rules have the
        same ones. ``series``: how many are to be read. Where many came and went, all is forgotten.
        """
        found = self._known.setdefault(labels, _KnownSeries())
        found.largest = max(found.largest, series, len(self.node_of))
        if len(found.indices) > _SPARE * found.largest:
            found.indices.clear()
            found.unmatched.clear()
        return found


def index_nodes(nodes: Iterable[Node], roster: Roster | None = None) -> NodeIndex:
    """By name and by every address. A name always wins over an address. ``roster``: that of these
    nodes, where there is one already.
    """
    nodes = tuple(nodes)
    names: dict[str, str] = {}
    shared: dict[str, list[str]] = {}
    for node in nodes:
        for address in node.known_as[1:]:
            other = names.setdefault(address, node.name)
            if other != node.name:
                shared.setdefault(address, [other]).append(node.name)
    for node in nodes:
        names[node.known_as[0]] = node.name
        shared.pop(node.known_as[0], None)
    return NodeIndex(names, shared, Roster(nodes) if roster is None else roster)


@dataclass(frozen=True, slots=True, eq=False)
class NodeReadings:
    """One rule's samples, by node: every array has an element for each node of ``roster``."""

    roster: Roster
    value: Floats
    """To be used only where ``quality`` is OK."""
    taken: Floats
    """When the sample was taken, in Unix seconds."""
    quality: Codes
    expected: Floats | None = None
    """What the values are expected to be; None where the rule compares the measured ones."""

    @classmethod
    def none(cls, roster: Roster) -> NodeReadings:
        """All MISSING, in arrays that are not used elsewhere."""
        nothing = np.full(len(roster.names), np.nan)
        quality = np.full(nothing.shape, MISSING, np.int8)
        return cls(roster, nothing, nothing.copy(), quality)

    def only(self, which: Bools) -> NodeReadings:
        """The others become MISSING."""
        if which.all():
            return self
        return replace(self, quality=np.where(which, self.quality, MISSING).astype(np.int8))

    def good(self, fresh_since: float) -> NodeReadings:
        """Those that are finite numbers, and not older than that (Unix seconds)."""
        return self.only((self.quality == OK) & (self.taken >= fresh_since))

    def has(self, node: str) -> bool:
        """Whether there was a sample for the node, good or not."""
        return self.quality.item(self.roster.indices[node]) != MISSING

    @property
    def count(self) -> int:
        """The number of nodes with a sample, good or not."""
        return int(np.count_nonzero(self.quality != MISSING))

    def loads(self, rule: Rule) -> Floats:
        """In points, NaN where a reading is not OK; in an array of its own."""
        return rule_loads(rule, np.where(self.quality == OK, self.value, np.nan))


@dataclass(frozen=True, slots=True)
class Matched:
    """One rule's samples: a reading for each node of the roster, what found no node (in an order of
    its own, not the answer's), and whether a node had more than one.
    """

    readings: NodeReadings
    unmatched: list[Unmatched]
    several: SeveralSeries | None = None


def match_samples(
    rule: Rule, samples: Iterable[Sample], index: NodeIndex, *, fresh_since: float = -math.inf
) -> Matched:
    """Match all samples of one rule.

    Where a rule gives several samples for one node (an expression that does not aggregate, two
    clusters in one Prometheus), the worst one counts, whatever their order: one hot series is
    enough to make a node hot. A sample that is older than ``fresh_since`` (Unix seconds), NaN or
    infinite counts only where there is no better one.
    """
    vector = samples if isinstance(samples, Vector) else Vector.of(samples)
    indices, unmatched = _indices_of(rule, vector, index)
    which = np.flatnonzero(indices >= 0)
    readings = NodeReadings.none(index.roster)
    counts = np.bincount(indices[which], minlength=readings.value.size)
    several = None
    if counts.size and counts.max() > 1:
        is_double = counts[indices[which]] > 1
        doubles = which[is_double]
        several = _several(rule, vector, doubles, indices[doubles], index)
        best = doubles[_best(rule, vector, doubles, indices[doubles], fresh_since)]
        which = np.concatenate([which[~is_double], best])
    at, values = indices[which], vector.values[which]
    readings.value[at], readings.taken[at] = values, vector.taken[which]
    readings.quality[at] = np.where(np.isfinite(values), OK, INVALID)
    return Matched(readings, unmatched, several)


def _indices_of(rule: Rule, vector: Vector, index: NodeIndex) -> tuple[Ints, list[Unmatched]]:
    """The index of each sample's node, -1 where it has none; and why it has none."""
    known = index.known(rule.node_labels, len(vector.series))
    found = list(map(known.indices.get, vector.series))
    if None in found:
        for number, key in enumerate(vector.series):
            if found[number] is None:
                text, at, why = _index_of(rule, vector.labels_of(key), index)
                found[number] = known.indices[key] = at
                if at == _NOWHERE:
                    known.unmatched[key] = text, why
    indices = np.array(found, np.int64)
    unmatched = [
        Unmatched(rule.name, *known.unmatched[vector.series[number]])
        for number in np.flatnonzero(indices == _NOWHERE).tolist()
    ]
    return indices, sorted(unmatched, key=attrgetter("value", "reason"))


def _index_of(rule: Rule, labels: Mapping[str, str], index: NodeIndex) -> tuple[str, int, str]:
    """The value of the label that names the node; the node's index, -1 for none, and why."""
    for label in rule.node_labels:
        text = labels.get(label)
        if text is not None:
            return text, *index.find(text)
    return "", _NOWHERE, f"the sample has no label {' or '.join(rule.node_labels)}"


def _best(
    rule: Rule, vector: Vector, doubles: Ints, indices: Ints, fresh_since: float
) -> NDArray[np.intp]:
    """Of the ``doubles`` samples, of nodes at these ``indices``, those that count: indices into
    both, one for each node. Among samples that cannot be used, the latest.
    """
    values, taken = vector.values[doubles], vector.taken[doubles]
    is_valid = np.isfinite(values)
    is_fresh = is_valid & (taken >= fresh_since)
    height = np.where(is_valid, values if rule.rises else -values, 0.0)
    # By the last key first; of equal ones the first in the answer comes first.
    order = np.lexsort(
        (-height, -taken, np.where(is_fresh, -height, 0.0), ~is_valid, ~is_fresh, indices)
    )
    return order[np.unique(indices[order], return_index=True)[1]]


def _several(
    rule: Rule, vector: Vector, doubles: Ints, indices: Ints, index: NodeIndex
) -> SeveralSeries:
    """How many nodes have more than one series; and of one of them, in which labels these differ:
    to read the labels of all series of a node for each core would take longer than all else.
    """
    names = index.roster.names
    nodes = np.unique(indices).tolist()
    example = min(nodes, key=names.__getitem__)
    first, *others = (
        vector.labels_of(vector.series[number]) for number in doubles[indices == example].tolist()
    )
    # A label that differs in two of them differs from the first in one of these.
    differing = {name for other in others for name, _ in first.items() ^ other.items()}
    return SeveralSeries(rule.name, len(nodes), names[example], tuple(sorted(differing)))
