"""Computes the alerts as if the process had been running all the time, so that a restart loses
nothing.

The history of each rule's expression goes through the same evaluation as every tick. Marks
that are on nodes are adopted at the beginning of the history, so that the readings that kept them
are evaluated again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from dynsched.engine.adoption import adopted, with_adopted
from dynsched.engine.alerts import Alerts, AlertTable, table_of
from dynsched.engine.columns import Bools, Floats, Spans
from dynsched.engine.evaluate import evaluated, selected
from dynsched.engine.mark_state import MarkState, mark_states
from dynsched.engine.match import NodeIndex, index_nodes, match_samples
from dynsched.engine.model import Alert, Node, Series
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


@dataclass(frozen=True, slots=True)
class Present:
    """The nodes as they are now, whose past is replayed; worked out once for all its parts."""

    rule_set: RuleSet
    index: NodeIndex
    marked: Sequence[MarkState]
    """The states of the nodes that carry our mark."""
    applies: Bools
    """Which rule applies to which node: shape (rules, nodes)."""
    created: Floats
    """When each node was made, in Unix seconds."""

    @classmethod
    def of(cls, rule_set: RuleSet, nodes: Mapping[str, Node]) -> Present:
        """``nodes`` by name."""
        states = mark_states(nodes.values(), rule_set.mark).values()
        return cls(
            rule_set=rule_set,
            index=index_nodes(nodes.values()),
            marked=[state for state in states if state.marked],
            applies=selected(rule_set, nodes),
            created=np.array([node.created for node in nodes.values()], np.float64),
        )

    def table(self, alerts: Alerts) -> AlertTable:
        """Alerts as a table of these rules and nodes."""
        return table_of(alerts, [rule.name for rule in self.rule_set.rules], self.index.roster)


def replay(
    present: Present,
    histories: Histories,
    previous: Alerts,
    *,
    times: Sequence[float],
    step: float,
    until: float,
) -> AlertTable:
    """``previous`` after evaluating at each of ``times`` (Unix seconds, rising, ``step`` apart).

    The past of a node begins when it was made: what came before is another node's of its name.
    ``until`` is when the whole replay ends, of which ``times`` may be a part.
    """
    rule_set, index = present.rule_set, present.index
    alerts = present.table(previous)
    spans = {name: Spans.of(found) for name, found in histories.items() if found is not None}
    for now in times:
        is_later = (now < present.created) & (present.created <= until + _SKEW)
        readings = {}
        for rule in rule_set.rules:
            if rule.name in spans:
                # To the millisecond.
                samples = spans[rule.name].last(now - step + GRAIN, now + GRAIN)
                fresh_since = now - rule_set.stale_after_of(rule)
                matched = match_samples(rule, samples, index, fresh_since=fresh_since)
                readings[rule.name] = matched.readings
        there = [s for s in present.marked if not is_later[index.roster.places[s.node.name]]]
        found = adopted(rule_set, there, now)
        before = _without_aging(alerts, found).with_new(present.applies & ~is_later, now)
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


def finish_replay(present: Present, alerts: Alerts, now: float) -> AlertTable:
    """What a whole replay came to, for the first tick to go on from.

    Marks on nodes that are younger than the last moment are adopted now. Alerts are dropped that
    fire on an unmarked node whose value is not over the threshold any more: ``keep_firing_for``
    and a dead band keep a mark, and there is none to keep. Those of shadow rules never have one.
    """
    rule_set, table = present.rule_set, present.table(alerts)
    table = with_adopted(rule_set, present.marked, table, table.remembered, now)
    names = {state.node.name for state in present.marked}
    unmarked = np.array([name not in names for name in table.roster.names], np.bool_)
    settled = [
        table.states.firing[row]
        & unmarked
        & (not rule.shadow)
        & ~Setting.of(rule, rule_set).breached(table.value[row])
        for row, rule in enumerate(rule_set.rules)
    ]
    return table.without(np.array(settled, np.bool_).reshape(table.exists.shape))


def adopted_alerts(present: Present, now: float) -> AlertTable:
    """The alerts of a process that remembers nothing: firing for each node with our mark."""
    return present.table({}).having(adopted(present.rule_set, present.marked, now))
