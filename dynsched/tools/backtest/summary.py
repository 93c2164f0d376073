"""A replay in numbers, as JSON. The names are a contract (docs/check.md): no key is ever left
out, and a number that is not known is null.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import pairwise
from statistics import median
from typing import Any, Final

from dynsched.rules.rule_set import Rule, RuleSet
from dynsched.tools.backtest.replay import NodeRecord, Record, Runs

Json = dict[str, Any]

FLAP: Final = 600.0
"""Seconds: a node that is marked again within this time after its release has flapped."""
DAY: Final = 86_400.0
ENOUGH: Final = 0.5
"""The share of the window in which there must be nodes, and of their time that must be known: with
less, a rule's numbers say little."""


def side(rule_set: RuleSet, record: Record) -> Json:
    rules = [_rule(rule, record) for rule in rule_set.rules]
    rules.sort(key=lambda rule: (-(rule["flaps"] or 0), -(rule["node_time_marked"] or 0)))
    return {
        "rules": rules,
        "total": _total(record),
        "nodes": _nodes(record),
    }


def difference(before: Record, after: Record) -> list[Json]:
    """The nodes that differ, of the same nodes in both."""
    found = []
    for name, old in before.nodes.items():
        new = after.nodes[name]
        if (old.marked.steps, len(old.marked.runs)) != (new.marked.steps, len(new.marked.runs)):
            found.append(
                {
                    "node": name,
                    "marked_before": _share(_time_marked(old)),
                    "marked_after": _share(_time_marked(new)),
                    "marks_before": len(old.marked.runs),
                    "marks_after": len(new.marked.runs),
                    "difference": _share(_time_marked(new) - _time_marked(old)),
                }
            )
    return sorted(found, key=lambda one: (-abs(one["difference"]), one["node"]))


def _rule(rule: Rule, record: Record) -> Json:
    nodes = [node for node in record.nodes.values() if node.eligible and rule.name in node.rules]

    known = sum(node.rules[rule.name].known for node in nodes)
    coverage = _ratio(known, _present(nodes)) * record.lasted
    numbers = tally(
        [node.rules[rule.name].active for node in nodes],
        _present(nodes),
        record.window.step,
        record.lasted,
    )
    return {
        "rule": rule.name,
        "shadow": rule.shadow,
        "op": rule.op,
        "threshold": rule.threshold,
        "clear_threshold": rule.clear_threshold,
        "for_seconds": rule.hold_duration,
        "keep_firing_for_seconds": rule.keep_firing_for,
        **(numbers if coverage else dict.fromkeys(numbers)),
        "coverage": _share(coverage),
        "enough_data": coverage >= ENOUGH,
    }


def _total(record: Record) -> Json:
    nodes = [node for node in record.nodes.values() if node.eligible]
    step, moments, present = record.window.step, max(1, record.moments), _present(nodes)
    per_day = round(record.writes / (moments * step / DAY), 2) if record.lasted >= ENOUGH else None
    return {
        **tally([node.marked for node in nodes], present, step, record.lasted),
        "writes": record.writes,
        "writes_per_day": per_day,
        "peak_marked": record.peak,
        "time_at_cap": _share(record.capped / moments),
        "coverage": _coverage(nodes, record),
        "node_days": round(present * step / DAY, 3),
    }


def _nodes(record: Record) -> list[Json]:
    found = [
        {
            "node": name,
            "eligible": node.eligible,
            "marks": len(node.marked.runs),
            "node_time_marked": _share(_time_marked(node)),
            "coverage": _coverage([node] if node.eligible else [], record)
            if node.present
            else None,
        }
        for name, node in record.nodes.items()
    ]
    return sorted(found, key=lambda one: (-one["node_time_marked"], one["node"]))


def _present(nodes: Iterable[NodeRecord]) -> int:
    return sum(node.present for node in nodes)


def _coverage(nodes: Collection[NodeRecord], record: Record) -> float:
    """The share of the nodes' time in which any rule has a good value, and of the whole window."""
    return _share(_ratio(sum(n.known for n in nodes), _present(nodes)) * record.lasted)


def _time_marked(node: NodeRecord) -> float:
    return node.marked.steps / max(1, node.present)


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def _share(value: float) -> float:
    return round(value, 6)


def tally(
    by_node: Iterable[Runs], present: int, step: float, lasted: float = 1.0
) -> dict[str, Any]:
    """Under their names in the report. ``present``: the steps of all nodes that count. Of too short
    a time there are no numbers per day.
    """
    nodes = [each.runs for each in by_node]
    runs = [(ended - begun) * step for runs in nodes for begun, ended in runs]
    gaps = [(later[0] - earlier[1]) * step for runs in nodes for earlier, later in pairwise(runs)]
    days = max(1, present) * step / DAY
    return {
        "marks": len(runs),
        "marks_per_node_day": round(len(runs) / days, 4) if lasted >= ENOUGH else None,
        "median_mark_seconds": float(median(runs)) if runs else None,
        "longest_mark_seconds": max(runs, default=None),
        "flaps": sum(gap <= FLAP for gap in gaps),
        "node_time_marked": _share(_ratio(sum(e - b for runs in nodes for b, e in runs), present)),
    }
