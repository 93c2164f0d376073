"""From a sample's labels to the node that it was measured on.

Exporters name a node in many ways (FIELD, wish 4): by node name or by one of its addresses, with a
port or without; in the label ``node`` here and in ``instance`` there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from operator import attrgetter
from typing import Final

from dynsched.core.formatting import canonical
from dynsched.core.model import (
    Node,
    Quality,
    Reading,
    Sample,
    SeveralSeries,
    Unmatched,
)
from dynsched.core.rules import Rule
from dynsched.core.wording import some

_MAX_KEPT: Final = 8192
"""Spellings of IPv6 addresses that are remembered: each is read anew in 5 microseconds, and comes
with every tick. Those that are canonical, or mostly so, need no memory."""
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
    all of them where several nodes share an address.
    """

    places: Mapping[str, str | list[str]]
    _found: dict[str, str] = field(default_factory=dict, repr=False, compare=False)

    def find(self, text: str) -> str | None:
        """The node of a label value, or None. ValueError when several nodes share that address."""
        known = self._found.get(text)
        if known is not None:
            return known
        for spelling in spellings(text):
            name = self.places.get(spelling)
            if isinstance(name, str):
                # The same values come at every tick; more than one for each place are no names.
                if len(self._found) < 2 * len(self.places):
                    self._found[text] = name
                return name
            if name is not None:
                names = some(sorted(name), _MAX_NAMED)
                raise ValueError(f"more than one node has the address {spelling}: {names}")
        return None


def index_nodes(nodes: Iterable[Node]) -> NodeIndex:
    """Index nodes by name and by every address. A name always wins over an address."""
    nodes = tuple(nodes)
    places: dict[str, str | list[str]] = {}
    for node in nodes:
        for address in node.known_as[1:]:
            other = places.setdefault(address, node.name)
            if other is not node.name:
                _share(places, address, other, node.name)
    places.update((node.known_as[0], node.name) for node in nodes)
    return NodeIndex(places)


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

    readings: Mapping[str, Reading]
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
    best: dict[str, Sample] = {}
    unmatched = []
    crowd = _Crowd()
    labels = rule.node_labels
    for sample in samples:
        for label in labels:
            value = sample.labels.get(label)
            if value is not None:
                break
        else:
            reason = f"the sample has no label {' or '.join(labels)}"
            unmatched.append(Unmatched(rule.name, "", reason))
            continue
        try:
            name = index.find(value)
        except ValueError as error:
            unmatched.append(Unmatched(rule.name, value, str(error)))
            continue
        if name is None:
            unmatched.append(Unmatched(rule.name, value, "no node has this name or address"))
            continue
        other = best.setdefault(name, sample)
        if other is not sample:
            crowd.add(name, other.labels, sample.labels)
            if _rank(rule, sample, fresh_since) > _rank(rule, other, fresh_since):
                best[name] = sample
    unmatched.sort(key=attrgetter("value", "reason"))
    readings = {name: _reading(name, sample) for name, sample in best.items()}
    return Matched(readings, unmatched, crowd.summary(rule))


def _reading(node: str, sample: Sample) -> Reading:
    quality = Quality.OK if math.isfinite(sample.value) else Quality.INVALID
    return Reading(node, sample.value, sample.timestamp, quality)


def _rank(rule: Rule, sample: Sample, fresh_since: float) -> tuple[bool, bool, float, float, float]:
    """The highest counts. Among samples that cannot be used, the latest."""
    valid = math.isfinite(sample.value)
    fresh = valid and sample.timestamp >= fresh_since
    excess = rule.excess(sample.value) if valid else 0.0
    return fresh, valid, excess if fresh else 0.0, sample.timestamp, excess


class _Crowd:
    """The nodes that have more than one series, and in which labels these differ."""

    def __init__(self) -> None:
        self._nodes: set[str] = set()
        self._labels: set[str] = set()

    def add(self, node: str, one: Mapping[str, str], other: Mapping[str, str]) -> None:
        self._nodes.add(node)
        # Each series against the worst so far: a label that differs in two of them differs here.
        self._labels.update(dict(one.items() ^ other.items()))

    def summary(self, rule: Rule) -> SeveralSeries | None:
        if not self._nodes:
            return None
        return SeveralSeries(
            rule.name, len(self._nodes), min(self._nodes), tuple(sorted(self._labels))
        )
