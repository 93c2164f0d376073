"""The part of `/metrics` that has series for each node, as text: their number grows with the
cluster, and prometheus_client would take a hundred times longer for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final

from dynsched.core.loads import rule_load
from dynsched.core.model import NodeView, Quality, Snapshot
from dynsched.core.verdict_value import verdict_value
from dynsched.web.reasons import Reason, Reasons

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
        "dynsched_node_hot_unmarked",
        "1 for each hot node without the mark; absent for all others. `reason` says why.",
    ),
)
"""Name and help of each metric. The series are gone while ticks are overdue."""


class NodeSeries:
    """Lines for nodes, collected one after the other."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._reasons = Reasons(snapshot)
        self._lines: tuple[list[str], ...] = tuple([] for _ in FAMILIES)

    def add(self, views: Iterable[NodeView]) -> None:
        """Take in some more nodes."""
        verdicts, measured, expected, unmarked = self._lines
        rule_set, uses = self._snapshot.rule_set, self._snapshot.uses
        for view in views:
            verdicts.append(f'{{node="{view.name}"}} {verdict_value(view, rule_set):g}')
            if view.pressured and not view.marked:
                unmarked.append(f'{{node="{view.name}",reason="{self._reason(view)}"}} 1')
            for rule, load in _loads(view, self._snapshot):
                labels = f'{{node="{view.name}",rule="{_escaped(rule)}"}}'
                measured.append(f"{labels} {load:.4g}")
                if rule in uses:
                    added = view.added.get(rule)
                    expected.append(f"{labels} {load if added is None else added.to(load):.4g}")

    def _reason(self, view: NodeView) -> str:
        why = self._reasons.of(view)
        return (Reason.NEXT_TICK if why is None else why.reason).value

    def text(self) -> bytes:
        """All of it in Prometheus's text format; a metric without series is left out."""
        parts: list[str] = []
        for (name, explained), lines in zip(FAMILIES, self._lines, strict=True):
            if lines:
                parts += [f"# HELP {name} {explained}", f"# TYPE {name} gauge"]
                parts += [name + line for line in lines]
        return "".join(f"{part}\n" for part in parts).encode()


def _loads(view: NodeView, snapshot: Snapshot) -> Iterator[tuple[str, float]]:
    """By rule: the load that was measured. What ``early`` stands for is compared, not measured."""
    for alert in view.alerts:
        if alert.quality is Quality.OK and alert.value is not None:
            rule = snapshot.rule_set.by_name[alert.rule]
            if rule.traits.asked and (load := rule_load(rule, alert.value)) is not None:
                yield rule.name, load


@lru_cache(maxsize=256)
def _escaped(text: str) -> str:
    """The value of a label; a rule's name may hold quotes."""
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
