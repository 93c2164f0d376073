"""Evaluations, and what they take, from objects instead of columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dynsched.engine.alerts import Alerts, table_of
from dynsched.engine.columns import CODES, NodeReadings, Roster
from dynsched.engine.evaluate import Evaluation, Verdicts, evaluated, selected
from dynsched.engine.inventory import NodeColumns, survey
from dynsched.engine.model import Node, Reading
from dynsched.rules.rule_set import RuleSet


@dataclass(frozen=True, slots=True)
class RuleReadings:
    """One rule's readings in one tick."""

    readings: Mapping[str, Reading] = field(default_factory=dict)
    """By node name; empty when the query failed."""
    failed: bool = False
    """Whether the query failed."""


def evaluate(
    rule_set: RuleSet,
    readings: Mapping[str, RuleReadings],
    nodes: Mapping[str, Node],
    previous: Alerts,
    now: float,
) -> Evaluation:
    """One evaluation of every rule on every node that its ``selector`` selects, as a tick does it;
    ``nodes`` by name. A rule without an entry in ``readings`` counts as failed.
    """
    roster = Roster(nodes.values())
    before = table_of(previous, [rule.name for rule in rule_set.rules], roster)
    columns = {
        name: columns_of(answer.readings, roster)
        for name, answer in readings.items()
        if not answer.failed
    }
    table = evaluated(rule_set, columns, before.with_new(selected(rule_set, nodes), now), now)
    return Evaluation(table, Verdicts.of(table, rule_set))


def columns_of(readings: Mapping[str, Reading], roster: Roster) -> NodeReadings:
    """Readings as columns of these nodes."""
    found = NodeReadings.none(roster)
    for name, reading in readings.items():
        place = roster.places.get(name)
        if place is not None:
            found.value[place], found.taken[place] = reading.value, reading.timestamp
            found.quality[place] = CODES[reading.quality]
    return found


def node_columns(nodes: Mapping[str, Node], rule_set: RuleSet) -> NodeColumns:
    """What a tick finds of these nodes."""
    return survey(nodes, rule_set).columns
