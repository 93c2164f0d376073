"""The alerts after a start: the past of each rule goes through the same transition as every tick,
so that a restart loses nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from dynsched.core.alerts import GRAIN, Alert, Alerts
from dynsched.core.evaluate import adopted_alerts, next_alerts
from dynsched.core.node_table import NodeTable
from dynsched.core.samples import Sample, Series, match_samples
from dynsched.rules.rule_set import RuleSet

MAX_STEPS: Final = 360
"""The most evaluations of one replay; a longer window is replayed in longer steps."""
ALERTS: Final = 500_000
"""The evaluations of alerts in one replay, of all steps, rules and nodes: 5 s of CPU time."""
_SKEW: Final = 3600.0
"""Seconds by which the API server's clock may be ahead of ours. The creation time of a node that is
further ahead is ignored."""


Histories = Mapping[str, Sequence[Series] | None]
"""Rule name -> the history of its expression; None when no history is available: all of it is
then unknown."""


def replay_times(
    rule_set: RuleSet, now: float, interval: float, nodes: int = 1
) -> tuple[float, ...]:
    """The moments before ``now`` at which ticks would have been, back to where the longest ``for``
    or ``keep_firing_for`` begins; none when no rule looks back. Fewer where there are many
    ``nodes``, but at least two within the shortest duration.
    """
    both = [each for rule in rule_set.rules for each in (rule.hold_duration, rule.keep_firing_for)]
    window = max(both)
    steps = max(1, ALERTS // (len(rule_set.rules) * max(1, nodes)))
    if window:
        steps = max(steps, math.ceil(2 * window / min(each for each in both if each)))
    step = max(interval, window / min(steps, MAX_STEPS))
    # One step more than fits: what was over just as long as ``for`` fires at the first tick.
    count = int(window / step) + 1 if window else 0
    return tuple(now - number * step for number in range(count, 0, -1))


def replay(
    table: NodeTable,
    histories: Histories,
    alerts: Alerts,
    *,
    times: Sequence[float],
    step: float,
    until: float,
) -> Alerts:
    """``alerts`` after an evaluation at each of ``times`` (Unix seconds, rising, ``step`` apart).

    The past of a node begins when it was created: what came before is another node's of its name.
    ``until`` is when the whole replay ends, of which ``times`` may be a part.
    """
    rules, lookup = table.rule_set.rules, table.lookup
    for now in times:
        there = _created_by(table, now, until)
        readings = {}
        for rule in rules:
            history = histories.get(rule.name)
            if history is not None:
                samples = [*_samples_at(history, now - step + GRAIN, now + GRAIN)]
                found = match_samples(rule, samples, lookup, fresh_since=now - rule.stale_after)
                readings[rule.name] = found.readings
        before = {name: _renewed(there, alerts.get(name, {}), name, now) for name in there.entries}
        after = next_alerts(there, readings, before, now)
        # For a rule without history, the mark on a node is adopted as of now.
        unknown = [rule.name for rule in rules if rule.name not in readings]
        alerts = {
            name: _without_history(found, unknown, before[name]) for name, found in after.items()
        }
    return alerts


def finish_replay(table: NodeTable, alerts: Alerts, now: float) -> Alerts:
    """What a whole replay came to, for the first tick to go on from.

    An alert is dropped that fires on an unmarked node whose value is not over the threshold any
    more: ``keep_firing_for`` and a dead band keep a mark, and there is none to keep. Those of
    shadow rules never have one, and with ``mark: none`` none has: all stay.
    """
    if table.rule_set.mark.is_none:
        return alerts
    found: dict[str, Mapping[str, Alert]] = {}
    for name, entry in table.entries.items():
        of_node = alerts.get(name, {})
        if entry.mark.marked:
            found[name] = of_node or adopted_alerts(entry, table.rule_set, now)
            continue
        rules = table.rule_set.by_name
        found[name] = {
            rule: alert
            for rule, alert in of_node.items()
            if not alert.firing or rules[rule].shadow or rules[rule].breached(alert.compared)
        }
    return found


def _created_by(table: NodeTable, now: float, until: float) -> NodeTable:
    entries = {
        name: entry
        for name, entry in table.entries.items()
        if not now < entry.node.created <= until + _SKEW
    }
    return NodeTable(table.rule_set, entries, table.lookup)


def _samples_at(history: Sequence[Series], since: float, until: float) -> Iterator[Sample]:
    for series in history:
        if (sample := series.last(since, until)) is not None:
            yield sample


def _renewed(
    table: NodeTable, alerts: Mapping[str, Alert], name: str, now: float
) -> Mapping[str, Alert]:
    """Alerts that were adopted and have had no good reading since are adopted once more: they do
    not grow stale in a time of which nothing is known.
    """
    adopted = adopted_alerts(table.entries[name], table.rule_set, now)
    known = {rule: alert for rule, alert in alerts.items() if not alert.adopted}
    return {**adopted, **known}


def _without_history(
    alerts: Mapping[str, Alert], unknown: Sequence[str], before: Mapping[str, Alert]
) -> Mapping[str, Alert]:
    kept = {rule: alert for rule, alert in alerts.items() if rule not in unknown}
    adopted = {rule: before[rule] for rule in unknown if rule in before and before[rule].adopted}
    return {**kept, **adopted}
