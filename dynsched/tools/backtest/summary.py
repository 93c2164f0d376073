"""A replay in numbers, as JSON. The names are a contract (docs/backtest.md): none is ever left out,
and a number that is not known is null.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np

from dynsched.engine.columns import Bools, Floats, Ints
from dynsched.rules.rule_set import Rule, RuleSet
from dynsched.tools.backtest.engine import Record

Json = dict[str, Any]

FLAP: Final = 600.0
"""Seconds: a node that is marked again within this time after its release has flapped."""
DAY: Final = 86_400.0
ENOUGH: Final = 0.5
"""The share of the window in which there must be nodes, and of their time that must be known: with
less, a rule's numbers say little."""
_CELLS: Final = 56  # of a node's strip: three hours each for a week


class Runs(NamedTuple):
    """Times without a break, by node and then by time. ``ended``: the step after the last."""

    node: Ints
    begun: Ints
    ended: Ints

    def flaps(self, step: float) -> Bools:
        """Which of them began within FLAP after the one before on the same node."""
        again = np.zeros(len(self.node), np.bool_)
        gap = (self.begun[1:] - self.ended[:-1]) * step
        again[1:] = (self.node[1:] == self.node[:-1]) & (gap <= FLAP)
        return again


def runs_of(active: Bools) -> Runs:
    """The runs in an array of shape (steps, nodes); what is active at the end ends there."""
    node, changed = np.nonzero(np.diff(active.T, axis=1, prepend=False, append=False))
    # Of each node, every second change is an end.
    return Runs(node[::2], changed[::2], changed[1::2])


def side(rule_set: RuleSet, record: Record) -> Json:
    counted = record.counted
    rules = [_rule(rule, index, record, counted) for index, rule in enumerate(rule_set.rules)]
    rules.sort(key=lambda rule: (-(rule["flaps"] or 0), -(rule["node_time_marked"] or 0)))
    known = record.any_known
    return {
        "rules": rules,
        "total": _total(record, counted, known),
        "pools": list(_pools(rule_set, record, counted, known)),
        "nodes": _nodes(record, counted, known),
    }


def difference(before: Record, after: Record) -> list[Json]:
    """The nodes are the same in both; only those that differ are told."""
    (old, old_marks), (new, new_marks) = map(_by_node, (before, after))
    found = [
        {
            "node": before.world.names[index],
            "marked_before": _share(old[index]),
            "marked_after": _share(new[index]),
            "marks_before": int(old_marks[index]),
            "marks_after": int(new_marks[index]),
            "difference": _share(new[index] - old[index]),
        }
        for index in np.flatnonzero((old != new) | (old_marks != new_marks)).tolist()
    ]
    return sorted(found, key=lambda one: (-abs(one["difference"]), one["node"]))


def _rule(rule: Rule, index: int, record: Record, counted: Bools) -> Json:
    known = record.known[rule.name]
    counted = counted & record.world.selected(rule)
    coverage = share(known, counted) * record.lasted
    firing = record.firing[index]
    # Where nothing is marked, what is told is when it would be.
    active = firing & (counted if rule.shadow or record.marks_nothing else record.marked)
    numbers = tally(active, counted, record.window.step, record.lasted)
    pools = [
        name
        for number, name in enumerate(record.world.pools)
        if (there := counted & (record.world.pool == number)).any() and share(known, there) < ENOUGH
    ]
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
        "pools_without_enough_data": pools,
    }


def _total(record: Record, counted: Bools, known: Bools) -> Json:
    step, moments = record.window.step, max(1, record.moments)
    writes, is_enough = int(record.writes.sum()), record.lasted >= ENOUGH
    return {
        **tally(record.marked, counted, step, record.lasted),
        "writes": writes,
        "writes_per_day": round(writes / (moments * step / DAY), 2) if is_enough else None,
        "peak_marked": int(record.marked.sum(axis=1).max(initial=0)),
        "time_at_cap": _share(record.withheld.any(axis=1).sum() / moments),
        "coverage": _share(share(known, counted) * record.lasted),
        "node_days": round(float(counted.sum()) * step / DAY, 3),
    }


def _pools(rule_set: RuleSet, record: Record, counted: Bools, known: Bools) -> Iterator[Json]:
    for number, pool in enumerate(record.world.pools):
        here = record.world.pool == number
        marked = record.marked[:, here].sum(axis=1)
        peak = int(marked.argmax())
        yield {
            "pool": pool,
            "nodes": int(here.sum()),
            "eligible": int((here & record.world.eligible).sum()),
            "max_marked": str(rule_set.guard.max_marked),
            "peak_marked": int(marked[peak]),
            "cap_at_peak": int(record.caps[peak, number]),
            "time_at_cap": _share(record.withheld[:, number].sum() / max(1, record.moments)),
            "coverage": _share(share(known, counted & here) * record.lasted),
        }


def _nodes(record: Record, counted: Bools, known: Bools) -> list[Json]:
    world = record.world
    times, marks = _by_node(record)
    there, covered = counted.sum(axis=0), (known & counted).sum(axis=0) * record.lasted
    known_cells = cells(known & record.present, _CELLS)

    def strip(active: Floats, node: int) -> list[float | None]:
        """The share of each stretch of time in which it was marked; null: nothing is known."""
        found = zip(known_cells[:, node].tolist(), active[:, node].tolist(), strict=True)
        return [round(marked, 2) if known or marked else None for known, marked in found]

    marked = cells(record.marked, _CELLS)
    found = [
        {
            "node": name,
            "pool": world.pools[int(world.pool[index])],
            "eligible": bool(world.eligible[index]),
            "marks": int(marks[index]),
            "node_time_marked": _share(times[index]),
            "coverage": _share(covered[index] / there[index]) if there[index] else None,
            "strip": strip(marked, index),
        }
        for index, name in enumerate(world.names)
    ]
    return sorted(found, key=lambda one: (-one["node_time_marked"], one["node"]))


def _by_node(record: Record) -> tuple[Floats, Ints]:
    """The share of each node's time that it is marked, and how often it was."""
    there = np.maximum(1, record.present.sum(axis=0))
    marks = np.bincount(runs_of(record.marked).node, minlength=len(there))
    return record.marked.sum(axis=0) / there, marks


def _share(value: float) -> float:
    return round(float(value), 6)


def tally(active: Bools, counted: Bools, step: float, lasts: float = 1.0) -> dict[str, Any]:
    """Under their names in the report. ``counted``: the nodes and times that count; of too little
    time there are no numbers per day.
    """
    found, total = runs_of(active), int(counted.sum())
    lasted, days = (found.ended - found.begun) * step, max(1, total) * step / DAY
    return {
        "marks": len(found.node),
        "marks_per_node_day": round(len(found.node) / days, 4) if lasts >= ENOUGH else None,
        "median_mark_seconds": float(np.median(lasted)) if len(found.node) else None,
        "longest_mark_seconds": float(lasted.max()) if len(found.node) else None,
        "flaps": int(found.flaps(step).sum()),
        "node_time_marked": round(float(active.sum() / total), 6) if total else 0.0,
    }


def share(part: Bools, whole: Bools) -> float:
    """Of the cells where ``whole`` is, those where ``part`` is too; 0 where there are none."""
    total = int(whole.sum())
    return float((part & whole).sum() / total) if total else 0.0


def cells(array: Bools, number: int) -> Floats:
    """The means of ``number`` stretches of time, shape (stretches, nodes)."""
    edges = np.linspace(0, len(array), min(number, len(array)) + 1).round().astype(int)[:-1]
    sums = np.add.reduceat(array.astype(np.int32), edges, axis=0)
    lengths = np.diff([*edges.tolist(), len(array)])
    return np.asarray(sums / lengths[:, None], np.float64)
