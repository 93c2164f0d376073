"""The alerts of a process that remembers nothing, after a restart or a reload.

A mark must not be removed because memory is empty. So the rules of a mark that is found count as
firing until something is known: the rules that its evidence names, else all of them. After a reload
the rules that are new count as firing on the nodes that a rule marked which is gone: it may have
been renamed. At a start the history of each rule's expression then goes through the same evaluation
as every tick, with the marks adopted at its beginning, so that a restart loses nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np

from dynsched.engine.alerting.alerts import AlertTable, next_alerts
from dynsched.engine.columns import RangeVector
from dynsched.engine.limits import GRAIN
from dynsched.engine.model import Alert, AlertState, Quality, Series
from dynsched.engine.nodes.inventory import Inventory
from dynsched.engine.nodes.mark_state import MarkState
from dynsched.engine.nodes.match import match_samples
from dynsched.rules.rule_set import RuleSet

MAX_STEPS: Final = 360
"""The most evaluations of one replay; a longer window is replayed in longer steps."""
_SKEW: Final = 3600.0
"""Seconds by which the API server's clock may be ahead of ours. The creation time of a
node that is further ahead is ignored."""

Histories = Mapping[str, Sequence[Series] | None]
"""Rule name -> the history of its expression; None when no history is available: all of it is
then unknown."""


def with_adopted(
    rule_set: RuleSet, marked: Iterable[MarkState], alerts: AlertTable, now: float
) -> AlertTable:
    """``alerts``, and a firing alert for each node that carries our mark (its state is in
    ``marked``) and of which nothing is remembered.
    """
    indices, is_remembered = alerts.roster.indices, np.logical_or.reduce(alerts.exists, axis=0)
    unknown = [state for state in marked if not is_remembered[indices[state.node.name]]]
    return alerts.having(adopted(rule_set, unknown, now)) if unknown else alerts


def adopted(rule_set: RuleSet, marked: Iterable[MarkState], now: float) -> list[Alert]:
    """Firing alerts for each node with our mark.

    Where none of the rules that the evidence names exists any more (or there is no evidence:
    dynamicScheduler left none), every rule is taken to have fired: the mark then
    stays until each rule has a good reading that clears it, or is stale.
    With ``mark: none`` marks are older than anything that is known, and say nothing.
    """
    found = []
    for state in () if rule_set.mark.is_none else marked:
        node, fired = state.node, state.evidence.rules if state.evidence else ()
        known = [r for r in rule_set.rules if not r.shadow and r.applies_to(node.labels)]
        names = {rule.name for rule in known}
        found += [_firing(name, state, now) for name in names.intersection(fired) or names]
    return found


def with_renamed(
    rule_set: RuleSet,
    marked: Iterable[MarkState],
    previous: AlertTable,
    alerts: AlertTable,
    now: float,
) -> AlertTable:
    """``alerts``, and one that fires by each new rule on each of the nodes (``marked``: they carry
    our mark) on which a rule fired in ``previous`` that is gone.
    """
    gone = [name for name in previous.rules if name not in rule_set.by_name]
    new = [rule for rule in rule_set.rules if rule.name not in previous.rules and not rule.shadow]
    if not (gone and new):
        return alerts
    before = previous.on(gone, alerts.roster)
    fired = np.logical_or.reduce(before.firing & before.exists, axis=0)
    return alerts.having(
        _firing(rule.name, state, now)
        for state in marked
        if fired[alerts.roster.indices[state.node.name]]
        for rule in new
        if rule.applies_to(state.node.labels)
    )


def _firing(rule: str, state: MarkState, now: float) -> Alert:
    told = state.evidence.since_of(rule) if state.evidence else None
    since = now if told is None else told
    return Alert(
        rule=rule,
        node=state.node.name,
        state=AlertState.FIRING,
        since=since,
        updated_at=now,
        known_at=now,
        quality=Quality.MISSING,
        active_since=since,
        adopted=True,
        uid=state.node.uid,
    )


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
    rule_set, indices = seen.rule_set, alerts.roster.indices
    rows = {name: row for row, name in enumerate(alerts.rules)}
    created = np.array([node.created for node in seen.nodes.values()], np.float64)
    spans = {name: RangeVector.of(found) for name, found in histories.items() if found is not None}
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
        there = [state for state in seen.marked_states if not is_later[indices[state.node.name]]]
        found = adopted(rule_set, there, now)
        # Alerts that were adopted and have had no good reading since are adopted once more: they do
        # not grow stale in a time of which nothing is known.
        stays = alerts.exists & ~alerts.adopted
        renewed = [each for each in found if not stays[rows[each.rule], indices[each.node]]]
        exists = seen.columns.applies & ~is_later
        alerts = next_alerts(seen.limits, readings, alerts.having(renewed), exists, now)
        # For a rule without history, the marks on the nodes are adopted as of now.
        is_unknown = np.array([rule.name not in readings for rule in rule_set.rules], np.bool_)
        if is_unknown.any():
            kept = [alert for alert in found if alert.rule not in readings]
            alerts = alerts.without(is_unknown[:, None] & alerts.exists).having(kept)
    return alerts


def finish_replay(seen: Inventory, table: AlertTable, now: float) -> AlertTable:
    """What a whole replay came to, for the first tick to go on from.

    Marks on nodes that are younger than the last moment are adopted now. Alerts are dropped that
    fire on an unmarked node whose value is not over the threshold any more: ``keep_firing_for``
    and a dead band keep a mark, and there is none to keep. Those of shadow rules never have one,
    and with ``mark: none`` none has: all stay.
    """
    if seen.rule_set.mark.is_none:
        return table
    table = with_adopted(seen.rule_set, seen.marked_states, table, now)
    unmarked = np.array([name not in seen.marked for name in table.roster.names], np.bool_)
    breached, _ = seen.limits.beyond(table.compared)
    return table.without(table.firing & unmarked & ~breached & ~seen.limits.is_shadow)


def adopted_alerts(seen: Inventory, now: float) -> AlertTable:
    """Those with which a replay begins: of the marks that the nodes carry, and of nothing else."""
    table = AlertTable.new([rule.name for rule in seen.rule_set.rules], seen.index.roster)
    return table.having(adopted(seen.rule_set, seen.marked_states, now))
