"""Evaluations, and what they take, from objects instead of columns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from msgspec import Struct

from dynsched.engine.alerting.alerts import AlertTable, Verdicts, next_alerts
from dynsched.engine.columns import CODES, MISSING, QUALITIES, Roster
from dynsched.engine.model import Alert, Node, Quality, Verdict
from dynsched.engine.nodes.inventory import NodeColumns, take_inventory
from dynsched.engine.nodes.match import NodeReadings
from dynsched.rules.rule_set import RuleSet

Alerts = Mapping[str, Mapping[str, Alert]]
"""Rule name -> node name -> alert."""


class Reading(Struct, frozen=True):
    """A sample that was matched to a node."""

    node: str
    value: float
    timestamp: float
    quality: Quality = Quality.OK


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
    previous: AlertTable,
    now: float,
) -> Verdicts:
    """One evaluation of every rule on every node that its ``selector`` selects, as a tick does it;
    ``nodes`` by name. A rule without an entry in ``readings`` counts as failed.
    """
    seen = take_inventory(nodes, rule_set)
    roster = seen.index.roster
    before = previous.on([rule.name for rule in rule_set.rules], roster)
    columns = {
        name: columns_of(answer.readings, roster)
        for name, answer in readings.items()
        if not answer.failed
    }
    table = next_alerts(seen.limits, columns, before, seen.columns.applies, now)
    return Verdicts.of(table, seen.limits)


def columns_of(readings: Mapping[str, Reading], roster: Roster) -> NodeReadings:
    """Readings as columns of these nodes."""
    found = NodeReadings.none(roster)
    for name, reading in readings.items():
        place = roster.indices.get(name)
        if place is not None:
            found.value[place], found.taken[place] = reading.value, reading.timestamp
            found.quality[place] = CODES[reading.quality]
    return found


def node_columns(nodes: Mapping[str, Node], rule_set: RuleSet) -> NodeColumns:
    """What a tick finds of these nodes."""
    return take_inventory(nodes, rule_set).columns


def table_of(alerts: Alerts, rules: Sequence[str], roster: Roster) -> AlertTable:
    """Alerts as a table of these rules and nodes."""
    known = [
        alert
        for rule in rules
        for alert in alerts.get(rule, {}).values()
        if (alert.node, alert.uid) in zip(roster.names, roster.uids, strict=True)
    ]
    return AlertTable.new(rules, roster).having(known)


def alerts_of(table: AlertTable) -> dict[str, dict[str, Alert]]:
    """All alerts of a table, as objects."""
    each = table.of_nodes(range(len(table.roster.names)))
    return {
        rule: {alert.node: alert for alerts in each for alert in alerts if alert.rule == rule}
        for rule in table.rules
    }


def verdicts_of(verdicts: Verdicts) -> dict[str, Verdict]:
    """All verdicts, as objects."""
    names = verdicts.alerts.roster.names
    return dict(zip(names, verdicts.of_nodes(range(len(names))), strict=True))


def readings_of(found: NodeReadings) -> dict[str, Reading]:
    """All readings, as objects; without those that are MISSING."""
    columns = (found.value.tolist(), found.taken.tolist(), found.quality.tolist())
    return {
        name: Reading(name, value, taken, QUALITIES[quality])
        for name, value, taken, quality in zip(found.roster.names, *columns, strict=True)
        if quality != MISSING
    }
