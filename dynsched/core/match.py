"""From a sample's labels to the node that it speaks of.

Exporters name a node in many ways (FIELD, wish 4): by node name, InternalIP, ``IP:port``,
Hostname or ExternalIP; in the label ``node`` here and in ``instance`` there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dynsched.core.model import Node, Quality, Reading, Sample, Unmatched
from dynsched.core.rules import Rule


@dataclass(frozen=True, slots=True)
class NodeIndex:
    """Every name and address of every node -> node name; None where two nodes share an address."""

    names: frozenset[str]
    addresses: Mapping[str, str | None]

    def find(self, text: str) -> str | None:
        """The node of a label value, or None. ValueError when two nodes share that address."""
        for candidate in _candidates(text):
            if candidate in self.names:
                return candidate
            if candidate in self.addresses:
                name = self.addresses[candidate]
                if name is None:
                    raise ValueError(f"more than one node has the address {candidate}")
                return name
        return None


def index_nodes(nodes: Iterable[Node]) -> NodeIndex:
    """Index nodes by name and by every address. A name always wins over an address."""
    names = set()
    addresses: dict[str, str | None] = {}
    for node in nodes:
        names.add(node.name)
        for _kind, address in node.addresses:
            if addresses.setdefault(address, node.name) != node.name:
                addresses[address] = None
    return NodeIndex(frozenset(names), addresses)


def _candidates(text: str) -> Iterable[str]:
    yield text
    host, colon, port = text.rpartition(":")
    if colon and port.isdigit() and (":" not in host or host.startswith("[")):
        # The last group of a bare IPv6 address is no port, though it may be all digits.
        yield host.removeprefix("[").removesuffix("]")
    elif text.startswith("["):
        yield text.removeprefix("[").removesuffix("]")


def match_samples(
    rule: Rule, samples: Iterable[Sample], index: NodeIndex
) -> tuple[dict[str, Reading], list[Unmatched]]:
    """Readings by node name, and what found no node.

    Where a rule gives several samples for one node (an expression that does not aggregate), the
    worst valid one counts: one hot series is enough to make a node hot.
    """
    readings: dict[str, Reading] = {}
    unmatched = []
    labels = rule.node_labels
    for sample in samples:
        value = next((sample.labels[label] for label in labels if label in sample.labels), None)
        if value is None:
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
        reading = _reading(name, sample)
        previous = readings.get(name)
        if previous is None or _is_worse(rule, reading, previous):
            readings[name] = reading
    return readings, unmatched


def _reading(node: str, sample: Sample) -> Reading:
    quality = Quality.OK if math.isfinite(sample.value) else Quality.INVALID
    return Reading(node, sample.value, sample.timestamp, quality)


def _is_worse(rule: Rule, reading: Reading, previous: Reading) -> bool:
    if Quality.INVALID in (reading.quality, previous.quality):
        return previous.quality is Quality.INVALID
    return rule.excess(reading.value) > rule.excess(previous.value)
