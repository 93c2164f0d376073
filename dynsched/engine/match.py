"""From a sample's labels to the node that it was measured on.

Exporters name a node in many ways: by node name or by one of its addresses, with a
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
from numpy.typing import NDArray

from dynsched.engine.columns import INVALID, OK, Ints, NodeReadings, Roster, Vector
from dynsched.engine.model import Node, Sample, SeveralSeries, Unmatched
from dynsched.engine.wording import some
from dynsched.rules.rule_set import Rule
from dynsched.util.formatting import canonical

_MAX_KEPT: Final = 8192
"""Spellings of IPv6 addresses that are remembered: each is read anew in 5 microseconds, and comes
with every tick. Those that are canonical, or mostly so, need no memory."""
_SPARE: Final = 4
"""For each name and address of a node, or series of the largest answer where these are more: series
whose places are remembered."""
_MAX_TEXTS: Final = 100_000
"""Values of labels that are remembered with what they stand for, those too that name no node: the
nodes of other clusters in the same Prometheus."""
_NOWHERE: Final = -1
_NO_NODE: Final = _NOWHERE, "no node has this name or address"
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


class KnownSeries:
    """The places of the nodes of series, which are the same at every tick. Mutable, for one thread
    at a time.
    """

    __slots__ = ("_largest", "places")

    def __init__(self) -> None:
        self.places: dict[Hashable, int] = {}
        self._largest = 0

    def make_room(self, series: int) -> None:
        """Before an answer of so many ``series`` is looked at, or where there are so many names and
        addresses of nodes: where many series came and went, forget all.
        """
        self._largest = max(self._largest, series)
        if len(self.places) > _SPARE * self._largest:
            self.places.clear()


@dataclass(frozen=True, slots=True)
class NodeIndex:
    """Every name and address of every node, in its canonical text -> the node's name; the names of
    all of them where several nodes share an address. ``roster``: the places of these nodes.
    """

    places: Mapping[str, str | list[str]]
    roster: Roster
    _found: dict[tuple[str, ...], KnownSeries] = field(
        default_factory=dict, repr=False, compare=False
    )
    _texts: dict[str, tuple[int, str]] = field(default_factory=dict, repr=False, compare=False)

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

    def place_of(self, text: str) -> tuple[int, str]:
        """The place of the node of a label value; -1 where it has none, and why."""
        found = self._texts.get(text)
        if found is None:
            if len(self._texts) > _SPARE * len(self.places) + _MAX_TEXTS:
                self._texts.clear()
            try:
                name = self.find(text)
            except ValueError as error:
                found = _NOWHERE, str(error)
            else:
                found = (self.roster.places[name], "") if name is not None else _NO_NODE
            self._texts[text] = found
        return found

    def known(self, labels: tuple[str, ...]) -> KnownSeries:
        """What was found for the series of rules with these ``node_labels``: most rules have the
        same ones.
        """
        return self._found.setdefault(labels, KnownSeries())


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
    several = None
    if counts.size and counts.max() > 1:
        is_crowded = counts[places[which]] > 1
        crowded = which[is_crowded]
        several = _several(rule, vector, crowded, places[crowded], index)
        best = crowded[_best(rule, vector, crowded, places[crowded], fresh_since)]
        which = np.concatenate([which[~is_crowded], best])
    readings = NodeReadings.none(index.roster)
    at, values = places[which], vector.values[which]
    readings.value[at], readings.taken[at] = values, vector.taken[which]
    readings.quality[at] = np.where(np.isfinite(values), OK, INVALID)
    return Matched(readings, unmatched, several)


def _places(rule: Rule, vector: Vector, index: NodeIndex) -> tuple[Ints, list[Unmatched]]:
    """The place of each sample's node, -1 where it has none; and why it has none."""
    known = index.known(rule.node_labels)
    known.make_room(max(len(vector), len(index.places)))
    found = list(map(known.places.get, vector.series))
    unmatched = []
    if None in found:
        for number, place in enumerate(found):
            if place is not None:
                continue
            key = vector.series[number]
            text, at, why = _place_of(rule, vector.labels_of(key), index)
            found[number] = at
            if at != _NOWHERE:
                known.places[key] = at
            else:
                unmatched.append(Unmatched(rule.name, text, why))
    unmatched.sort(key=attrgetter("value", "reason"))
    return np.array(found, np.int64), unmatched


def _place_of(rule: Rule, labels: Mapping[str, str], index: NodeIndex) -> tuple[str, int, str]:
    """The value of the label that names the node; the node's place, -1 for none, and why."""
    for label in rule.node_labels:
        text = labels.get(label)
        if text is not None:
            return text, *index.place_of(text)
    return "", _NOWHERE, f"the sample has no label {' or '.join(rule.node_labels)}"


def _best(
    rule: Rule, vector: Vector, crowded: Ints, places: Ints, fresh_since: float
) -> NDArray[np.intp]:
    """Of the ``crowded`` samples, of nodes at these ``places``, those that count: indices into
    both, one for each node. Among samples that cannot be used, the latest.
    """
    values, taken = vector.values[crowded], vector.taken[crowded]
    is_valid = np.isfinite(values)
    is_fresh = is_valid & (taken >= fresh_since)
    height = np.where(is_valid, values if rule.rises else -values, 0.0)
    # By the last key first; of equal ones the first in the answer comes first.
    order = np.lexsort(
        (-height, -taken, np.where(is_fresh, -height, 0.0), ~is_valid, ~is_fresh, places)
    )
    return order[np.unique(places[order], return_index=True)[1]]


def _several(
    rule: Rule, vector: Vector, crowded: Ints, places: Ints, index: NodeIndex
) -> SeveralSeries:
    """How many nodes have more than one series; and of one of them, in which labels these differ:
    to read the labels of all series of a node for each core would take longer than all else.
    """
    names = index.roster.names
    nodes = np.unique(places).tolist()
    example = min(nodes, key=names.__getitem__)
    first, *others = (
        vector.labels_of(vector.series[number]) for number in crowded[places == example].tolist()
    )
    # A label that differs in two of them differs from the first in one of these.
    differing = {name for other in others for name, _ in first.items() ^ other.items()}
    return SeveralSeries(rule.name, len(nodes), names[example], tuple(sorted(differing)))
