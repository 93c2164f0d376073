"""Series for each node, as text: prometheus_client would take a hundred times longer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from math import isnan
from typing import Final

import numpy as np

from dynsched.api.why import Reason, reasons
from dynsched.engine.columns import Floats
from dynsched.engine.loads import rule_loads
from dynsched.engine.snapshot import Snapshot
from dynsched.rules.rule_set import Rule
from dynsched.util.formatting import escaped

FAMILIES: Final = (
    (
        "dynsched_node_verdict",
        "1: marked, and a firing rule has not cleared. 0: known to be cool. 0.5: all else.",
    ),
    (
        "dynsched_node_measured_load",
        "The load by the rule's last value, in points: 100 is full. Absent without a good value.",
    ),
    (
        "dynsched_node_expected_load",
        "The same, with what pods change that were just bound or ended. Absent if not watched.",
    ),
    (
        "dynsched_node_load_above_mean",
        "The measured load less the mean of nodes that take the same pods. Only with `resource`.",
    ),
    (
        "dynsched_node_hot_unmarked",
        "1 for each hot node without the mark; absent for all others. `reason` says why.",
    ),
)
"""The series are gone while ticks are overdue."""

_VERDICT, _MEASURED, _EXPECTED, _ABOVE, _UNMARKED = (name for name, _ in FAMILIES)


class NodeSeries:
    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._alerts = snapshot.nodes.verdicts.alerts
        rules = [snapshot.rule_set.by_name[name] for name in self._alerts.rules]
        self._rules = [(row, rule) for row, rule in enumerate(rules) if rule.is_asked]
        self._above = {
            row: self._above_mean(row, rule) for row, rule in self._rules if rule.resource
        }
        self._expected = {
            row: snapshot.nodes.expected_loads(row)
            for row, rule in self._rules
            if rule.name in snapshot.nodes.expected
        }
        self._parts: dict[str, list[bytes]] = {name: [] for name, _ in FAMILIES}

    def add(self, names: Sequence[str]) -> None:
        nodes = self._snapshot.nodes
        indices = np.array(nodes.indices_of(names), np.int64)
        verdicts = nodes.verdict_values(names)
        self._put(_VERDICT, _lines(_VERDICT, names, [f"{value:g}" for value in verdicts]))
        self._put(_UNMARKED, self._unmarked(names))
        measured, expected, above = [], [], []
        for row, rule in self._rules:
            labels = f'",rule="{escaped(rule.name)}'
            loads = rule_loads(rule, self._alerts.good_values(row, indices))
            measured.append(_lines(_MEASURED, names, _texts(loads), labels))
            if row in self._above:
                loads = self._above[row][indices]
                above.append(_lines(_ABOVE, names, _texts(loads), labels))
            if row in self._expected:
                loads = self._expected[row][indices]
                expected.append(_lines(_EXPECTED, names, _texts(loads), labels))
        # All rules of a node, then those of the next one.
        self._put(_MEASURED, chain.from_iterable(zip(*measured, strict=True)))
        self._put(_EXPECTED, chain.from_iterable(zip(*expected, strict=True)))
        self._put(_ABOVE, chain.from_iterable(zip(*above, strict=True)))

    def pieces(self) -> list[bytes]:
        """In Prometheus's text format, without metrics that have no series."""
        found: list[bytes] = []
        for name, explained in FAMILIES:
            if parts := self._parts[name]:
                found.append(f"# HELP {name} {explained}\n# TYPE {name} gauge\n".encode())
                found += parts
        return found

    def _above_mean(self, row: int, rule: Rule) -> Floats:
        # Clipped: one odd value says nothing about all others.
        loads = np.clip(rule_loads(rule, self._alerts.good_values(row)), 0.0, 100.0)
        return loads - self._snapshot.nodes.inventory.columns.kind_means(loads)

    def _put(self, family: str, lines: Iterable[str]) -> None:
        if text := "".join(lines):
            self._parts[family].append(text.encode())

    def _unmarked(self, names: Sequence[str]) -> Iterator[str]:
        nodes = self._snapshot.nodes
        names = [name for name in names if name in nodes.hot and name not in nodes.marked]
        whys = reasons(self._snapshot, names, nodes.due_of(names))
        for name in names:
            reason = whys[name].reason if name in whys else Reason.NEXT_TICK
            yield f'{_UNMARKED}{{node="{name}",reason="{reason}"}} 1\n'


def _texts(loads: Floats) -> list[str]:
    return ["" if isnan(load) else f"{load:.4g}" for load in loads.tolist()]


def _lines(family: str, names: Sequence[str], values: Sequence[str], labels: str = "") -> list[str]:
    """One for each node; empty where its value is."""
    before, after = f'{family}{{node="', f'{labels}"}} '
    return [
        f"{before}{name}{after}{value}\n" if value else ""
        for name, value in zip(names, values, strict=True)
    ]
