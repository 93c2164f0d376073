"""Computes the alerts as if the process had been running all the time, so that a restart loses
nothing.

The history of each rule's expression goes through the same evaluation as every tick. Marks
that are on nodes are adopted at the beginning of the history, so that the readings that kept them
are evaluated again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from dynsched.engine.adoption import adopted, with_adopted
from dynsched.engine.alerts import AlertTable, evaluated
from dynsched.engine.columns import Spans
from dynsched.engine.inventory import Inventory
from dynsched.engine.match import match_samples
from dynsched.engine.model import Alert, Series
from dynsched.engine.transitions import GRAIN, Setting
from dynsched.rules.rule_set import RuleSet

MAX_STEPS: Final = 360
"""The most evaluations of one replay; a longer window is replayed in longer steps."""

_SKEW: Final = 3600.0
"""Seconds by which the API server's clock may be ahead of ours. The creation time of a
node that is further ahead is ignored."""

Histories = Mapping[str, Sequence[Series] | None]
"""Rule name -> the history of its expression; None when no history is available: all of it is
then unknown."""


def replay_times(rule_set: RuleSet, now: float, interval: float) -> tuple[float, ...]:
    """The moments before ``now`` at which ticks would have been, back to where the longest ``for``
    or ``keep_firing_for`` begins; none when no rule looks back.
    """
    window = max(max(rule.hold_duration, rule.keep_firing_for) for rule in rule_set.rules)
    step = max(interval, window / MAX_STEPS)
    # One step more than fits: what was over just as long as ``for`` fires at the first tick.
    count = int(window / step) + 1 if window else 0
    return tuple(now - number * step for number in range(count, 0, -1))


def replay(
    seen: Inventory,
    histories: Histories,
    alerts: AlertTable,
    *,
    times: Sequence[float],
    step: float,
    until: float,
) -> AlertTable:
    """``alerts`` (of the nodes as they are now) after evaluating at each of ``times`` (Unix
    seconds, rising, ``step`` apart).

    The past of a node begins when it was made: what came before is another node's of its name.
    ``until`` is when the whole replay ends, of which ``times`` may be a part.
    """
    rule_set, places = seen.rule_set, alerts.roster.places
    created = np.array([node.created for node in seen.nodes.values()], np.float64)
    spans = {name: Spans.of(found) for name, found in histories.items() if found is not None}
    for now in times:
        is_later = (now < created) & (created <= until + _SKEW)
        readings = {}
        for rule in rule_set.rules:
            if rule.name in spans:
                # To the millisecond.
                samples = spans[rule.name].last(now - step + GRAIN, now + GRAIN)
                fresh_since = now - rule_set.stale_after_of(rule)
                matched = match_samples(rule, samples, seen.index, fresh_since=fresh_since)
                readings[rule.name] = matched.readings
        there = [state for state in seen.marked_states if not is_later[places[state.node.name]]]
        found = adopted(rule_set, there, now)
        before = _without_aging(alerts, found).with_new(seen.columns.applies & ~is_later, now)
        alerts = evaluated(rule_set, readings, before, now)
        # For a rule without history, the marks on the nodes are adopted as of now.
        is_unknown = np.array([rule.name not in readings for rule in rule_set.rules], np.bool_)
        if is_unknown.any():
            kept = [alert for alert in found if alert.rule not in readings]
            alerts = alerts.without(is_unknown[:, None] & alerts.exists).having(kept)
    return alerts


def _without_aging(alerts: AlertTable, found: Sequence[Alert]) -> AlertTable:
    """``alerts``, and those that were ``found`` and are not among them. Alerts that were adopted
    and have had no good reading since are adopted once more: they do not grow stale in a time of
    which nothing is known.
    """
    stays = alerts.exists & ~alerts.adopted
    rows = {name: row for row, name in enumerate(alerts.rules)}
    places = alerts.roster.places
    renewed = [each for each in found if not stays[rows[each.rule], places[each.node]]]
    return alerts.having(renewed) if renewed else alerts


def finish_replay(seen: Inventory, table: AlertTable, now: float) -> AlertTable:
    """What a whole replay came to, for the first tick to go on from.

    Marks on nodes that are younger than the last moment are adopted now. Alerts are dropped that
    fire on an unmarked node whose value is not over the threshold any more: ``keep_firing_for``
    and a dead band keep a mark, and there is none to keep. Those of shadow rules never have one.
    """
    rule_set = seen.rule_set
    table = with_adopted(rule_set, seen.marked_states, table, now)
    unmarked = np.array([name not in seen.marked for name in table.roster.names], np.bool_)
    settled = [
        table.states.firing[row]
        & unmarked
        & (not rule.shadow)
        & ~Setting.of(rule, rule_set).breached(table.value[row])
        for row, rule in enumerate(rule_set.rules)
    ]
    return table.without(np.array(settled, np.bool_).reshape(table.exists.shape))


def adopted_alerts(seen: Inventory, now: float) -> AlertTable:
    """The alerts of a process that remembers nothing: firing for each node with our mark."""
    table = AlertTable.new([rule.name for rule in seen.rule_set.rules], seen.index.roster)
    return table.having(adopted(seen.rule_set, seen.marked_states, now))
