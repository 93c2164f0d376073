"""From a sample's labels to the node that it was measured on.

Exporters name a node in many ways (FIELD, wish 4): by node name or by one of its addresses, with a
port or without; in the label ``node`` here and in ``instance`` there.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from operator import attrgetter
from typing import Final

import numpy as np

from dynsched.core.columns import INVALID, OK, Ints, NodeReadings, Roster, Vector
from dynsched.core.formatting import canonical
from dynsched.core.model import Node, Sample, SeveralSeries, Unmatched
from dynsched.core.rules import Rule
from dynsched.core.wording import some

_MAX_KEPT: Final = 8192
"""Spellings of IPv6 addresses that are remembered: each is read anew in 5 microseconds, and comes
with every tick. Those that are canonical, or mostly so, need no memory."""
_MAX_SERIES: Final = 4
"""For each name and address of a node: series whose places are remembered."""
_NOWHERE: Final = -1
_MAX_NAMED: Final = 3
"""Nodes that are named where many share one address."""


_canonical = lru_cache(maxsize=_MAX_KEPT)(canonical)


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
    yield _canonical(bare) if ":" in bare else canonical(bare)


@dataclass(frozen=True, slots=True)
class NodeIndex:
    """Every name and address of every node, in its canonical text -> the node's name; the names of
    all of them where several nodes share an address. ``roster``: the places of these nodes.
    """

    places: Mapping[str, str | list[str]]
    roster: Roster
    _found: dict[tuple[str, ...], dict[Hashable, int]] = field(
        default_factory=dict, repr=False, compare=False
    )

    def find(self, text: str) -> str | None:
        """The node of a label value, or None. ValueError when several nodes share that address."""
        for spelling in spellings(text):
            name = self.places.get(spelling)
            if isinstance(name, str):
                return name
            if name is not None:
                names = some(sorted(name), _MAX_NAMED)
                raise ValueError(f"more than one node has the address {spelling}: {names}")
        return None

    def known(self, labels: tuple[str, ...]) -> dict[Hashable, int]:
        """The places that were found for the series of rules with these ``node_labels``: the same
        series come at every tick, and most rules have the same ones.
        """
        found = self._found.setdefault(labels, {})
        if len(found) > _MAX_SERIES * len(self.places):
            found.clear()  # so many series of one node come and go
        return found


def index_nodes(nodes: Iterable[Node], roster: Roster | None = None) -> NodeIndex:
    """Index nodes by name and by every address. A name always wins over an address. ``roster``:
    that of these nodes, where there is one already.
    """
    nodes = tuple(nodes)
    places: dict[str, str | list[str]] = {}
    for node in nodes:
        for address in node.known_as[1:]:
            other = places.setdefault(address, node.name)
            if other is not node.name:
                _share(places, address, other, node.name)
    places.update((node.known_as[0], node.name) for node in nodes)
    return NodeIndex(places, Roster(nodes) if roster is None else roster)


def _share(
    places: dict[str, str | list[str]], address: str, other: str | list[str], name: str
) -> None:
    if isinstance(other, list):
        other.append(name)
    elif other != name:
        places[address] = [other, name]


@dataclass(frozen=True, slots=True)
class Matched:
    """One rule's samples: readings by node name, what found no node (in an order of its own, not
    the answer's), and whether a node had more than one.
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
    vector = Vector.of(samples)
    places, unmatched = _places(rule, vector, index)
    which = np.flatnonzero(places >= 0)
    counts = np.bincount(places[which], minlength=len(index.roster))
    crowd = _Crowd()
    if counts.size and counts.max() > 1:
        several = which[counts[places[which]] > 1].tolist()
        found = ((places.item(number), number, vector[number]) for number in several)
        best = _best(rule, found, crowd, fresh_since)
        which = np.concatenate([which[counts[places[which]] == 1], np.array(best, np.int64)])
    readings = NodeReadings.none(index.roster)
    at, values = places[which], vector.values[which]
    readings.value[at], readings.taken[at] = values, vector.taken[which]
    readings.quality[at] = np.where(np.isfinite(values), OK, INVALID)
    return Matched(readings, unmatched, crowd.summary(rule, index.roster))


def _places(rule: Rule, vector: Vector, index: NodeIndex) -> tuple[Ints, list[Unmatched]]:
    """The place of each sample's node, -1 where it has none; and why it has none."""
    known = index.known(rule.node_labels)
    found = list(map(known.get, vector.series))
    unmatched = []
    if None in found:
        for number, place in enumerate(found):
            if place is not None:
                continue
            key = vector.series[number]
            labels = vector.labels_of(key)
            value = next((labels[label] for label in rule.node_labels if label in labels), None)
            name, why = _node_of(rule, value, index)
            if name is not None:
                found[number] = known[key] = index.roster.places[name]
            else:
                found[number] = _NOWHERE
                unmatched.append(Unmatched(rule.name, value or "", why))
    unmatched.sort(key=attrgetter("value", "reason"))
    return np.array(found, np.int64), unmatched


def _node_of(rule: Rule, value: str | None, index: NodeIndex) -> tuple[str | None, str]:
    """The node of a label's value, or why there is none."""
    if value is None:
        return None, f"the sample has no label {' or '.join(rule.node_labels)}"
    try:
        return index.find(value), "no node has this name or address"
    except ValueError as error:
        return None, str(error)


def _best(
    rule: Rule, samples: Iterable[tuple[int, int, Sample]], crowd: _Crowd, fresh_since: float
) -> list[int]:
    """Of samples with their nodes' places and their own numbers: the numbers of those that count,
    one for each node.
    """
    best: dict[int, tuple[int, Sample]] = {}
    for place, number, sample in samples:
        _, other = best.setdefault(place, (number, sample))
        if other is not sample:
            crowd.add(place, other.labels, sample.labels)
            if _rank(rule, sample, fresh_since) > _rank(rule, other, fresh_since):
                best[place] = number, sample
    return [number for number, _ in best.values()]


def _rank(rule: Rule, sample: Sample, fresh_since: float) -> tuple[bool, bool, float, float, float]:
    """The highest counts. Among samples that cannot be used, the latest."""
    valid = math.isfinite(sample.value)
    fresh = valid and sample.timestamp >= fresh_since
    excess = rule.excess(sample.value) if valid else 0.0
    return fresh, valid, excess if fresh else 0.0, sample.timestamp, excess


class _Crowd:
    """The nodes that have more than one series, and in which labels these differ."""

    def __init__(self) -> None:
        self._nodes: set[int] = set()
        self._labels: set[str] = set()

    def add(self, place: int, one: Mapping[str, str], other: Mapping[str, str]) -> None:
        self._nodes.add(place)
        # Each series against the worst so far: a label that differs in two of them differs here.
        self._labels.update(dict(one.items() ^ other.items()))

    def summary(self, rule: Rule, roster: Roster) -> SeveralSeries | None:
        if not self._nodes:
            return None
        example = min(roster.names[place] for place in self._nodes)
        return SeveralSeries(rule.name, len(self._nodes), example, tuple(sorted(self._labels)))
