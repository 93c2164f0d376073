"""One tick without the world: answers and nodes in, alerts and patches out.

This is match -> evaluate -> guard -> plan in their one order; the loop, ``dynsched plan`` and
the tests all decide by it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from dynsched.engine.adoption import with_adopted, with_renamed
from dynsched.engine.alerts import Alerts, table_of
from dynsched.engine.columns import NodeReadings
from dynsched.engine.decision import Decision
from dynsched.engine.early import above_line
from dynsched.engine.evaluate import Evaluation, Verdicts, evaluated
from dynsched.engine.expected import NO_PODS, ExpectedLoad, KnownPods, expected_load
from dynsched.engine.guard import select
from dynsched.engine.inventory import NodeColumns, Survey, survey
from dynsched.engine.match import Matched, match_samples
from dynsched.engine.model import Node, QueryResult
from dynsched.engine.plan import plan
from dynsched.rules.rule_set import Rule, RuleSet


def decide(
    rule_set: RuleSet,
    results: Mapping[str, QueryResult],
    nodes: Mapping[str, Node],
    previous: Alerts,
    now: float,
    *,
    pods: KnownPods = NO_PODS,
    released: int = 0,
    before: Survey | None = None,
) -> Decision:
    """Decide over all nodes. ``results`` by rule name; ``previous`` the last evaluation's alerts;
    ``pods``: what is known of them, for the expected load. ``released``: how many marks went in
    this tick before, of those that ``guard.max_releases`` allows in one. ``before``: the last
    decision's survey of the nodes, so that only those that changed are looked at again.

    A node that carries our mark and has no alert in ``previous`` is adopted as firing; so is one
    that has replaced another of its name.
    """
    seen = survey(nodes, rule_set, before)
    matched = _match_rules(rule_set, results, seen, now)
    readings = {name: found.readings for name, found in matched.items()}
    good = {
        rule.name: _good(rule_set, rule, readings[rule.name], now)
        for rule in rule_set.file_rules
        if rule.name in readings and (rule.early is not None or rule_set.has_extender)
    }
    expected = {
        rule.name: expected_load(*(rule, good[rule.name], nodes, pods, now), columns=seen.columns)
        for rule in rule_set.file_rules
        if rule.name in good and pods is not NO_PODS
    }
    readings |= _early_readings(rule_set, good, expected, seen.columns)
    table = table_of(previous, [rule.name for rule in rule_set.rules], seen.index.roster)
    if seen.marked:  # only a node that carries the mark can be adopted
        marked = [seen.states[name] for name in seen.marked]
        table = with_adopted(rule_set, marked, table, table.remembered, now)
        table = with_renamed(rule_set, marked, previous, table, now)
    alerts = evaluated(rule_set, readings, table.with_new(seen.columns.applies, now), now)
    verdicts = Verdicts.of(alerts, rule_set)
    wanting = set(verdicts.wanting)
    concerned = _in_order(wanting | seen.touched, seen)
    places = seen.index.roster.places_of(concerned)
    verdict_of = dict(zip(concerned, verdicts.of_nodes(places), strict=True))
    selection = select(
        [seen.eligible[name] for name in concerned if name in seen.eligible],
        verdict_of,
        seen.marked,
        rule_set.guard,
        outgoing=[nodes[name] for name in seen.marked - seen.eligible.keys()],
        released=released,
        sizes=seen.columns.sizes,
    )
    # On all other nodes nothing can be due.
    patches = plan(
        [seen.states[name] for name in concerned], selection.marked, verdict_of, rule_set
    )
    return Decision(
        survey=seen,
        evaluation=Evaluation(alerts, verdicts),
        selection=selection,
        patches=tuple(patches),
        unmatched=tuple(entry for found in matched.values() for entry in found.unmatched),
        several={
            name: found.several for name, found in matched.items() if found.several is not None
        },
        expected=expected,
    )


def _in_order(names: Collection[str], seen: Survey) -> list[str]:
    """In the order of the nodes, so that the order of patches does not depend on a hash."""
    return sorted(names, key=seen.index.roster.places.__getitem__)


def _early_readings(
    rule_set: RuleSet,
    good: Mapping[str, NodeReadings],
    expected: Mapping[str, ExpectedLoad],
    columns: NodeColumns,
) -> dict[str, NodeReadings]:
    """Of the rules that ``early`` of others stand for, by their names."""
    found = {}
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


def _good(rule_set: RuleSet, rule: Rule, readings: NodeReadings, now: float) -> NodeReadings:
    """The readings that are finite numbers and not too old."""
    return readings.only(readings.good(now - rule_set.stale_after_of(rule)))


def _match_rules(
    rule_set: RuleSet, results: Mapping[str, QueryResult], seen: Survey, now: float
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
