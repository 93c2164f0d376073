"""One tick without the world: answers and nodes in, alerts and patches out.

This is match -> evaluate -> guard -> plan in their one order; the loop, ``dynsched plan`` and
the tests all decide by it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import compress
from typing import NamedTuple

import numpy as np

from dynsched.engine.alerting.alerts import AlertTable, Verdicts, next_alerts
from dynsched.engine.alerting.guard import LEFT, UNMARKED, MarkCandidates, MarkCaps, Selection
from dynsched.engine.alerting.plan import plan_node
from dynsched.engine.alerting.restore import with_adopted, with_renamed
from dynsched.engine.load.expected import (
    NO_PODS,
    ExpectedLoad,
    KnownPods,
    added_on,
    expected_load,
)
from dynsched.engine.model import Node, QueryResult
from dynsched.engine.nodes.inventory import Inventory, take_inventory
from dynsched.engine.nodes.match import Matched, NodeReadings, match_samples
from dynsched.engine.snapshot import Decision
from dynsched.engine.wording import Reason
from dynsched.rules.rule_set import RuleSet


def decide(
    rule_set: RuleSet,
    results: Mapping[str, QueryResult],
    nodes: Mapping[str, Node],
    previous: AlertTable,
    now: float,
    *,
    pods: KnownPods = NO_PODS,
    released: int = 0,
    before: Inventory | None = None,
) -> Decision:
    """Decide over all nodes. ``results`` by rule name; ``previous``: the last evaluation's alerts.
    ``released``: how many marks went in this tick before, of those that ``guard.max_releases``
    allows in one. ``before``: the last inventory of the nodes.

    A node that carries our mark and has no alert in ``previous`` is adopted as firing; so is one
    that has replaced another of its name.
    """
    seen = take_inventory(nodes, rule_set, before)
    columns, roster = seen.columns, seen.index.roster
    found = _read_answers(seen, results, pods, now)
    table = previous.on([rule.name for rule in rule_set.rules], roster)
    if seen.marked:  # only a node that carries the mark can be adopted
        table = with_adopted(rule_set, seen.marked_states, table, now)
        table = with_renamed(rule_set, seen.marked_states, previous, table, now)
    alerts = next_alerts(seen.limits, found.readings, table, columns.applies, now)
    verdicts = Verdicts.of(alerts, seen.limits)
    # On all other nodes nothing can be due. In the order of the nodes, so that the order of patches
    # does not depend on a hash.
    wanting = np.flatnonzero(verdicts.hot).tolist()
    indices = sorted({*wanting, *(roster.indices[name] for name in seen.touched)})
    concerned = [roster.names[index] for index in indices]
    verdict_of = dict(zip(concerned, verdicts.of_nodes(indices), strict=True))
    if rule_set.mark.is_none:
        selection = _no_marks(seen, wanting)
    else:
        selection = select(seen, verdicts, released)
    hottest_first = sorted(concerned, key=lambda name: -verdict_of[name].severity)
    each = ((seen.states[name], verdict_of[name]) for name in hottest_first)
    planned = (
        plan_node(state, verdict, rule_set, selection, added_on(verdict.node, found.expected))
        for state, verdict in each
    )
    return Decision(
        inventory=seen,
        verdicts=verdicts,
        selection=selection,
        patches=tuple(patch for patch in planned if patch is not None),
        unmatched=tuple(entry for each in found.matched.values() for entry in each.unmatched),
        several={
            name: each.several for name, each in found.matched.items() if each.several is not None
        },
        expected=found.expected,
    )


def _no_marks(seen: Inventory, wanting: Sequence[int]) -> Selection:
    """With ``mark: none``: what would be marked is not, and what is there stays."""
    columns, names = seen.columns, seen.index.roster.names
    unmarked = (names[index] for index in wanting if columns.may_mark[index])
    withheld = dict.fromkeys(unmarked, UNMARKED) | dict.fromkeys(seen.marked, LEFT)
    return Selection(frozenset(), withheld, capped=frozenset())


def select(seen: Inventory, verdicts: Verdicts, released: int = 0) -> Selection:
    """Apply the guard to all nodes. ``released``: as for `decide`."""
    guard, columns, roster = seen.rule_set.guard, seen.columns, seen.index.roster
    marked = np.zeros_like(columns.may_mark)
    marked[[roster.indices[name] for name in seen.marked]] = True
    caps = MarkCaps.of(columns, guard.max_marked)
    gone = caps.pool[columns.kind[marked & ~columns.may_mark]]
    outgoing = np.bincount(gone, minlength=len(caps.pools))
    concerned = np.flatnonzero((verdicts.hot | marked) & columns.may_mark)
    # Of nodes that are equally hot the names decide, in whatever order the nodes came.
    indices = np.array(sorted(concerned.tolist(), key=roster.names.__getitem__), np.int64)
    kind, hot = columns.kind[indices], verdicts.hot[indices]
    candidates = MarkCandidates(kind, hot, marked[indices])
    limits = guard.max_releases, outgoing, released
    chosen = caps.choose(candidates, lambda: verdicts.severity[indices], *limits)
    names = [roster.names[index] for index in indices]
    hot_in_pool = np.bincount(caps.pool[kind[hot]], minlength=len(caps.pools))
    return Selection(
        marked=frozenset(compress(names, chosen)),
        withheld={
            name: Reason("max_marked", str(guard.max_marked))
            if wants
            else Reason("max_releases", str(guard.max_releases))
            for name, wants, gets in zip(names, hot, chosen, strict=True)
            if wants != gets
        },
        capped=frozenset(compress(caps.pools, hot_in_pool > caps.by_pool)),
    )


class _Found(NamedTuple):
    """All by the name of the rule."""

    matched: dict[str, Matched]
    readings: dict[str, NodeReadings]
    expected: dict[str, ExpectedLoad]


def _read_answers(
    seen: Inventory, results: Mapping[str, QueryResult], pods: KnownPods, now: float
) -> _Found:
    """Of the rules that were answered."""
    rule_set, columns = seen.rule_set, seen.columns
    matched, readings, expected = found = _Found({}, {}, {})
    for row, rule in enumerate(rule_set.rules):
        result, name = results.get(rule.name), rule.name
        if result is None or result.error is not None:
            continue
        fresh_since = now - seen.limits.stale_after.item(row)
        matched[name] = match_samples(rule, result.samples, seen.index, fresh_since=fresh_since)
        readings[name] = answer = matched[name].readings
        if pods is NO_PODS or not (rule.by == "expected" or rule_set.scores_nodes):
            continue
        good = answer.only(columns.applies[row]).good(fresh_since)
        expected[name] = expected_load(rule, good, seen.nodes, pods, now, columns=columns)
        if rule.by == "expected":
            values = expected[name].values(rule, answer.value, columns)
            readings[name] = replace(answer, expected=values)
    return found
