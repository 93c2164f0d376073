"""The numbers of a replay, as JSON. The keys are a contract (docs/check.md): none is ever left out,
and an unknown number is null.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import pairwise
from statistics import median
from typing import Any, Final

from dynsched.rules.rule_set import Rule, RuleSet
from dynsched.tools.backtest.history import Window
from dynsched.tools.backtest.replay import NodeRecord, Record, Times

Json = dict[str, Any]

FLAP: Final = 600.0
"""Seconds: a node that is marked again within this time after its release has flapped."""
_DAY: Final = 86_400.0


def side(rule_set: RuleSet, record: Record) -> Json:
    window, nodes = record.window, record.nodes
    rules = [_rule(rule, record) for rule in rule_set.rules]
    rules.sort(key=lambda rule: (-(rule["flaps"] or 0), -(rule["node_time_marked"] or 0)))
    writes_per_day = record.writes * _DAY / (window.count * window.step)
    found = [{"node": name, **_of_node(node, window)} for name, node in nodes.items()]
    return {
        "rules": rules,
        "total": {
            **tally([node.marked for node in nodes.values()], window),
            "writes_per_day": round(writes_per_day, 2),
            "peak_marked": record.peak,
            "time_at_cap": _share(record.capped, window.count),
        },
        "nodes": sorted(found, key=lambda one: (-one["node_time_marked"], one["node"])),
    }


def difference(before: Record, after: Record) -> list[Json]:
    """The nodes that differ, those with the largest difference first."""
    found = []
    for name in before.nodes.keys() | after.nodes.keys():
        old, new = (_of_node(each.nodes.get(name), each.window) for each in (before, after))
        if old | {"coverage": 0} != new | {"coverage": 0}:
            found.append(
                {
                    "node": name,
                    "marks_before": old["marks"],
                    "marks_after": new["marks"],
                    "marked_before": old["node_time_marked"],
                    "marked_after": new["node_time_marked"],
                }
            )
    return sorted(
        found, key=lambda one: (-abs(one["marked_after"] - one["marked_before"]), one["node"])
    )


def tally(by_node: Collection[Times], window: Window) -> Json:
    """The numbers of a rule, or of all rules, over these nodes, by their keys in the report."""
    nodes, step = [each.active.runs for each in by_node], window.step
    runs = [(ended - begun) * step for runs in nodes for begun, ended in runs]
    gaps = [(later[0] - earlier[1]) * step for runs in nodes for earlier, later in pairwise(runs)]
    whole = len(nodes) * window.count
    return {
        "marks": len(runs),
        "median_mark_seconds": float(median(runs)) if runs else None,
        "flaps": sum(gap <= FLAP for gap in gaps),
        "node_time_marked": _share(sum(each.active.steps for each in by_node), whole),
        "coverage": _share(sum(each.known for each in by_node), whole),
    }


def _rule(rule: Rule, record: Record) -> Json:
    of_rule = (node.rules.get(rule.name) for node in record.nodes.values())
    numbers = tally([each for each in of_rule if each is not None], record.window)
    if not numbers["coverage"]:
        numbers = dict.fromkeys(numbers) | {"coverage": 0.0}
    return {
        "rule": rule.name,
        "shadow": rule.shadow,
        "op": rule.op,
        "threshold": rule.threshold,
        "for_seconds": rule.hold_duration,
        **numbers,
    }


def _of_node(node: NodeRecord | None, window: Window) -> Json:
    numbers = tally([node.marked] if node else [], window)
    return {key: numbers[key] for key in ("marks", "node_time_marked", "coverage")}


def _share(part: int, whole: int) -> float:
    return round(part / whole, 6) if whole else 0.0
