"""One tick without the world: answers and nodes in, alerts and patches out.

This is match -> evaluate -> guard -> plan in their one order; the loop, ``dynsched plan`` and
the tests all decide by it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from dynsched.engine.alerts import AlertTable, Evaluation, Verdicts, evaluated
from dynsched.engine.columns import NodeReadings
from dynsched.engine.expected import NO_PODS, ExpectedLoad, KnownPods, above_line, expected_load
from dynsched.engine.guard import select
from dynsched.engine.inventory import Inventory, take_inventory
from dynsched.engine.match import Matched, match_samples
from dynsched.engine.model import Node, QueryResult
from dynsched.engine.plan import plan
from dynsched.engine.replay import with_adopted, with_renamed
from dynsched.engine.snapshot import Decision
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
    matched = _match_rules(rule_set, results, seen, now)
    readings = {name: found.readings for name, found in matched.items()}
    good = {
        rule.name: readings[rule.name].good(now - rule_set.stale_after_of(rule))
        for rule in rule_set.file_rules
        if rule.name in readings and (rule.early is not None or rule_set.has_extender)
    }
    expected = {
        rule.name: expected_load(*(rule, good[rule.name], nodes, pods, now), columns=seen.columns)
        for rule in rule_set.file_rules
        if rule.name in good and pods is not NO_PODS
    }
    readings |= _early_readings(rule_set, good, expected, seen)
    table = previous.on([rule.name for rule in rule_set.rules], seen.index.roster)
    if seen.marked:  # only a node that carries the mark can be adopted
        table = with_adopted(rule_set, seen.marked_states, table, now)
        table = with_renamed(rule_set, seen.marked_states, previous, table, now)
    alerts = evaluated(rule_set, readings, table.with_new(seen.columns.applies, now), now)
    verdicts = Verdicts.of(alerts, rule_set)
    # On all other nodes nothing can be due. In the order of the nodes, so that the order of patches
    # does not depend on a hash.
    roster = seen.index.roster
    wanting = np.flatnonzero(verdicts.hot | verdicts.early).tolist()
    places = sorted({*wanting, *roster.places_of(seen.touched)})
    concerned = [roster.names[place] for place in places]
    verdict_of = dict(zip(concerned, verdicts.of_nodes(places), strict=True))
    selection = select(
        [nodes[name] for name in concerned if seen.states[name].may_mark],
        verdict_of,
        seen.marked,
        rule_set.guard,
        outgoing=[state.node for state in seen.marked_states if not state.may_mark],
        released=released,
        sizes=seen.columns.sizes,
    )
    patches = plan(
        [seen.states[name] for name in concerned], selection.marked, verdict_of, rule_set
    )
    return Decision(
        inventory=seen,
        evaluation=Evaluation(alerts, verdicts),
        selection=selection,
        patches=tuple(patches),
        unmatched=tuple(entry for found in matched.values() for entry in found.unmatched),
        several={
            name: found.several for name, found in matched.items() if found.several is not None
        },
        expected=expected,
    )


def _early_readings(
    rule_set: RuleSet,
    good: Mapping[str, NodeReadings],
    expected: Mapping[str, ExpectedLoad],
    seen: Inventory,
) -> dict[str, NodeReadings]:
    """Of the rules that ``early`` of others stand for, by their names."""
    found, columns = {}, seen.columns
    for rule in rule_set.file_rules:
        made = rule.early_rule
        if made is None or rule.name not in good:
            continue
        readings = good[rule.name]
        loads = readings.loads(rule)
        if rule.name in expected:
            expected[rule.name].add_to(loads, columns.roster)
        distances = above_line(
            *(rule, loads, columns.weights(rule.resource), columns.kind, columns.eligible),
            rule_set.guard.max_marked,
        )
        found[made.name] = replace(readings, value=distances)
    return found


def _match_rules(
    rule_set: RuleSet, results: Mapping[str, QueryResult], seen: Inventory, now: float
) -> dict[str, Matched]:
    """By rule; those whose query failed are not in it. Readings of nodes that the rule does not
    apply to are left out.
    """
    found = {}
    for row, rule in enumerate(rule_set.rules):
        result = results.get(rule.name)
        if rule.early_of is not None or result is None or result.error is not None:
            continue
        fresh_since = now - rule_set.stale_after_of(rule)
        matched = match_samples(rule, result.samples, seen.index, fresh_since=fresh_since)
        readings = matched.readings.only(seen.columns.applies[row])
        found[rule.name] = replace(matched, readings=readings)
    return found
