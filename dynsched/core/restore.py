"""Restores the alerts after a start. The history of each rule goes through the same transition as
every tick, so a restart loses nothing.
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
"""Maximum number of evaluations in one replay; a longer window is replayed in longer steps."""
ALERTS: Final = 500_000
"""Target number of alert evaluations in one replay (steps x rules x nodes): 5 s of CPU time."""
_SKEW: Final = 3600.0
"""Seconds by which the API server's clock may be ahead of ours. A node's creation time that is
further ahead is ignored."""


Histories = Mapping[str, Sequence[Series] | None]
"""The history of each rule's expression, keyed by rule name. None if no history is available, so
that the past of the rule is unknown."""


def replay_times(
    rule_set: RuleSet, now: float, interval: float, nodes: int = 1
) -> tuple[float, ...]:
    """The times of the ticks to replay, over the longest ``for`` or ``keep_firing_for`` before
    ``now``; empty if no rule has one.

    With many ``nodes`` there are fewer, but (up to MAX_STEPS) two within the shortest duration.
    """
    both = [each for rule in rule_set.rules for each in (rule.hold_duration, rule.keep_firing_for)]
    window = max(both)
    steps = max(1, ALERTS // (len(rule_set.rules) * max(1, nodes)))
    if window:
        steps = max(steps, math.ceil(2 * window / min(each for each in both if each)))
    step = max(interval, window / min(steps, MAX_STEPS))
    # One extra step: a value that was over for exactly ``for`` then fires at the first tick.
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

    A node's past begins at its creation; earlier samples are of another node with the same name.
    ``times`` may be a part of a replay, and ``until`` is when the whole replay ends.
    """
    rules, lookup = table.rule_set.rules, table.lookup
    for now in times:
        past = _created_by(table, now, until)
        readings = {}
        for rule in rules:
            history = histories.get(rule.name)
            if history is not None:
                samples = [*_samples_at(history, now - step + GRAIN, now + GRAIN)]
                found = match_samples(rule, samples, lookup, fresh_since=now - rule.stale_after)
                readings[rule.name] = found.readings
        before = {name: _readopted(past, alerts.get(name, {}), name, now) for name in past.entries}
        after = next_alerts(past, readings, before, now)
        # For a rule without history, the mark on a node is adopted as of now.
        unknown = [rule.name for rule in rules if rule.name not in readings]
        alerts = {
            name: _without_history(found, unknown, before[name]) for name, found in after.items()
        }
    return alerts


def finish_replay(table: NodeTable, alerts: Alerts, now: float) -> Alerts:
    """The alerts of a whole replay, from which the first tick goes on.

    On an unmarked node, a firing alert whose value no longer breaches the threshold is dropped:
    ``keep_firing_for`` and a dead band keep a mark, and there is none to keep. Alerts of shadow
    rules never have a mark, nor has any alert with ``mark: none``, so these stay.
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


def _readopted(
    table: NodeTable, alerts: Mapping[str, Alert], name: str, now: float
) -> Mapping[str, Alert]:
    """The node's alerts before the evaluation at ``now``.

    Adopted alerts without a good reading are adopted again, so that they do not become stale during
    a time of which nothing is known.
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
