"""A replay's result as JSON. The names are a contract (docs/backtest.md): none is ever left out; a
number that is not known is null.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from dynsched.engine.columns import Bools, Floats
from dynsched.rules.rule_set import Rule, RuleSet
from dynsched.tools.backtest.gathering import Gathered
from dynsched.tools.backtest.tallies import DAY, Record, Tally, cells, share, tally
from dynsched.util.formatting import format_time

Json = dict[str, Any]

ENOUGH: Final = 0.5
"""The share of the window in which there must be nodes, and of their time that must be known: with
less, a rule's numbers say little."""
CELLS: Final = 56
"""Of a node's strip: three hours each for a week."""


def side(rule_set: RuleSet, record: Record) -> Json:
    """Everything about one replay."""
    counted = record.counted
    rules = [_rule(rule, record, counted) for rule in rule_set.rules]
    rules.sort(key=lambda rule: (-(rule["flaps"] or 0), -(rule["node_time_marked"] or 0)))
    return {
        "rules": rules,
        "total": _total(record, counted),
        "pools": _pools(rule_set, record, counted),
        "nodes": _nodes(record, counted),
        "regret": None,
        "suggested": None,
    }


def heading(gathered: Gathered, from_series: bool) -> Json:  # noqa: FBT001 (the one flag)
    """What was replayed."""
    window = gathered.window
    return {
        "since": format_time(window.start),
        "until": format_time(window.end),
        "step_seconds": window.step,
        "wanted_step_seconds": gathered.wanted_step,
        "scrape_interval_seconds": gathered.scrape,
        "steps": window.count,
        "samples": gathered.samples,
        "queries": gathered.asked,
        "node_count": len(gathered.nodes),
        "nodes_from": "series" if from_series else "cluster",
        "notes": list(gathered.notes),
    }


def difference(before: Record, after: Record) -> list[Json]:
    """By node, where there is any: the share of time that it is marked, and marks. The nodes are
    the same in both.
    """
    found = []
    times = [_by_node(record) for record in (before, after)]
    for number, name in enumerate(before.world.names):
        (old, old_marks), (new, new_marks) = (
            (float(time[number]), int(marks[number])) for time, marks in times
        )
        if old != new or old_marks != new_marks:
            found.append(
                {
                    "node": name,
                    "marked_before": _share(old),
                    "marked_after": _share(new),
                    "marks_before": old_marks,
                    "marks_after": new_marks,
                    "difference": _share(new - old),
                }
            )
    found.sort(key=lambda one: (-abs(float(str(one["difference"]))), str(one["node"])))
    return found


def _rule(rule: Rule, record: Record, counted: Bools) -> Json:
    known = record.known[rule.answered_by]
    counted = counted & record.world.selected(rule)
    coverage = share(known, counted)
    firing = record.firing[rule.name]
    # A shadow rule marks nothing: what is told is when it would.
    active = firing & counted if rule.shadow else firing & record.marked
    told = tally(active, counted, record.window.step) if coverage else None
    return {
        "rule": rule.name,
        "early": rule.early_of is not None,
        "shadow": rule.shadow,
        "op": rule.op,
        "threshold": rule.threshold,
        "clear_threshold": rule.clear_threshold,
        "for_seconds": rule.hold_duration,
        "keep_firing_for_seconds": rule.keep_firing_for,
        **_numbers(told),
        "coverage": _share(coverage),
        "enough_data": min(coverage, record.moments / record.window.count) >= ENOUGH,
        "pools_without_enough_data": [
            _pool_name(record, number)
            for number in range(len(record.world.pools))
            if (there := _in_pool(record, counted, number)).any() and share(known, there) < ENOUGH
        ],
    }


def _numbers(told: Tally | None) -> Json:
    return {
        "marks": told and told.marks,
        "marks_per_node_day": told and round(told.marks_per_node_day, 4),
        "median_mark_seconds": told and told.median_seconds,
        "longest_mark_seconds": told and told.longest_seconds,
        "flaps": told and told.flaps,
        "node_time_marked": told and _share(told.node_time),
    }


def _total(record: Record, counted: Bools) -> Json:
    step = record.window.step
    moments = max(1, record.moments)
    known = _any_known(record)
    return {
        **_numbers(tally(record.marked, counted, step)),
        "hot": _numbers(tally(record.marked & ~record.early, counted, step)),
        "early": _numbers(tally(record.early, counted, step)),
        "writes": int(record.writes.sum()),
        "writes_per_day": round(float(record.writes.sum()) / (moments * step / DAY), 2),
        "peak_marked": int(record.marked.sum(axis=1).max(initial=0)),
        "time_at_cap": _share(float(record.withheld.any(axis=1).sum() / moments)),
        "coverage": _share(share(known, counted)),
        "node_days": round(float(counted.sum()) * step / DAY, 3),
    }


def _pools(rule_set: RuleSet, record: Record, counted: Bools) -> list[Json]:
    found, moments = [], max(1, record.moments)
    for number in range(len(record.world.pools)):
        here = record.world.pool == number
        marked = record.marked[:, here].sum(axis=1)
        peak = int(marked.argmax()) if len(marked) else 0
        found.append(
            {
                "pool": record.world.pools[number],
                "nodes": int(here.sum()),
                "eligible": int((here & record.world.eligible).sum()),
                "max_marked": str(rule_set.guard.max_marked),
                "peak_marked": int(marked.max(initial=0)),
                "cap_at_peak": int(record.caps[peak, number]),
                "time_at_cap": _share(float(record.withheld[:, number].sum() / moments)),
                "coverage": _share(share(_any_known(record), _in_pool(record, counted, number))),
            }
        )
    return found


def _nodes(record: Record, counted: Bools) -> list[Json]:
    times, marks = _by_node(record)
    known_cells = cells(_any_known(record) & record.present, CELLS)
    marked_cells = cells(record.marked, CELLS)
    early_cells = cells(record.early, CELLS)
    there = counted.sum(axis=0)
    known = (_any_known(record) & counted).sum(axis=0)
    found = [
        {
            "node": node.name,
            "pool": record.world.pools[int(record.world.pool[number])],
            "eligible": bool(record.world.eligible[number]),
            "marks": int(marks[number]),
            "node_time_marked": _share(float(times[number])),
            "coverage": _share(float(known[number] / there[number])) if there[number] else None,
            "strip": _strip(known_cells[:, number], marked_cells[:, number]),
            "early_strip": _strip(known_cells[:, number], early_cells[:, number]),
        }
        for number, node in enumerate(record.world.nodes)
    ]
    found.sort(key=lambda one: (-float(str(one["node_time_marked"])), str(one["node"])))
    return found


def _strip(known: Floats, marked: Floats) -> list[float | None]:
    """The share of each stretch of time in which it was marked; null: nothing is known of it."""
    return [
        None if not there and not share_marked else round(float(share_marked), 2)
        for there, share_marked in zip(known, marked, strict=True)
    ]


def _by_node(record: Record) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The share of each node's time that it is marked, and how often it was."""
    there = np.maximum(1, record.present.sum(axis=0))
    begun = record.marked.copy()
    begun[1:] &= ~record.marked[:-1]
    return record.marked.sum(axis=0) / there, begun.sum(axis=0)


def _any_known(record: Record) -> Bools:
    found: Bools = np.zeros(record.marked.shape, np.bool_)
    for known in record.known.values():
        found |= known
    return found


def _in_pool(record: Record, counted: Bools, number: int) -> Bools:
    found: Bools = counted & (record.world.pool == number)
    return found


def _pool_name(record: Record, number: int) -> str:
    return record.world.pools[number]


def _share(value: float) -> float:
    return round(value, 6)


def whole(head: Mapping[str, Any], sides: Sequence[Json], changed: list[Json] | None) -> Json:
    """The JSON of one replay, or of two side by side."""
    if changed is None:
        return {**head, **sides[0]}
    before, after = sides
    return {**head, "before": before, "after": after, "difference": changed}
