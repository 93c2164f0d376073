"""Series for each node, as text: prometheus_client would take a hundred times longer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from math import isnan
from typing import Final

import numpy as np

from dynsched.api.why import Kind, notes
from dynsched.engine.columns import Floats
from dynsched.engine.loads import rule_loads
from dynsched.engine.snapshot import Snapshot
from dynsched.util.formatting import escaped

FAMILIES: Final = {
    "dynsched_node_verdict": "1: marked, and a firing rule has not cleared. 0: known to be cool. "
    "0.5: all else.",
    "dynsched_node_measured_load": "The load by the rule's last value, in points: 100 is full. "
    "Absent without a good value.",
    "dynsched_node_expected_load": "Measured load, adjusted for pods that were just bound or have "
    "just ended. Absent where pods are not watched.",
    "dynsched_node_load_above_mean": "The measured load less the mean of nodes that take the same "
    "pods. Only with `resource`.",
    "dynsched_node_hot_unmarked": "1 for each hot node without the mark; absent for all others. "
    "`reason` says why.",
}
"""The series are gone while ticks are overdue."""

_VERDICT, _MEASURED, _EXPECTED, _ABOVE, _UNMARKED = FAMILIES


class NodeSeries:
    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot, nodes = snapshot, snapshot.nodes
        self._parts: dict[str, list[bytes]] = {name: [] for name in FAMILIES}
        self._loads: dict[str, list[tuple[str, Floats]]] = {
            family: [] for family in (_MEASURED, _EXPECTED, _ABOVE)
        }
        for row, name in enumerate(nodes.verdicts.alerts.rules):
            rule, labels = snapshot.rule_set.by_name[name], f'",rule="{escaped(name)}'
            loads = rule_loads(rule, nodes.verdicts.alerts.good_values(row))
            self._loads[_MEASURED].append((labels, loads))
            if name in nodes.expected:
                self._loads[_EXPECTED].append((labels, nodes.expected_loads(row)))
            if rule.resource:
                loads = np.clip(loads, 0.0, 100.0)  # one odd value says nothing about others
                above = loads - nodes.inventory.columns.kind_means(loads)
                self._loads[_ABOVE].append((labels, above))

    def add(self, names: Sequence[str]) -> None:
        nodes = self._snapshot.nodes
        verdicts = [f"{value:g}" for value in nodes.verdict_values(names)]
        self._put(_VERDICT, _lines(_VERDICT, names, verdicts))
        self._put(_UNMARKED, self._unmarked(names))
        indices = np.array(nodes.indices_of(names), np.int64)
        for family, of_rules in self._loads.items():
            # All rules of a node, then those of the next one.
            lines = [
                _lines(family, names, _texts(loads[indices]), labels) for labels, loads in of_rules
            ]
            self._put(family, chain.from_iterable(zip(*lines, strict=True)))

    def encoded(self) -> bytes:
        """In Prometheus's text format, without metrics that have no series."""
        found: list[bytes] = []
        for name, parts in self._parts.items():
            if parts:
                head = f"# HELP {name} {FAMILIES[name]}\n# TYPE {name} gauge\n"
                found += head.encode(), *parts
        return b"".join(found)

    def _put(self, family: str, lines: Iterable[str]) -> None:
        if text := "".join(lines):
            self._parts[family].append(text.encode())

    def _unmarked(self, names: Sequence[str]) -> Iterator[str]:
        nodes = self._snapshot.nodes
        names = [name for name in names if name in nodes.hot and name not in nodes.marked]
        found = notes(self._snapshot, names)
        for name in names:
            kind = found[name].kind if name in found else Kind.NEXT_TICK
            yield f'{_UNMARKED}{{node="{name}",reason="{kind}"}} 1\n'


def _texts(loads: Floats) -> list[str]:
    return ["" if isnan(load) else f"{load:.4g}" for load in loads.tolist()]


def _lines(family: str, names: Sequence[str], values: Sequence[str], labels: str = "") -> list[str]:
    """One for each node; empty where its value is."""
    before, after = f'{family}{{node="', f'{labels}"}} '
    return [
        f"{before}{name}{after}{value}\n" if value else ""
        for name, value in zip(names, values, strict=True)
    ]
