"""Computes the alerts as if the process had been running all the time, so that a restart loses
nothing.

The history of each rule's expression goes through the same ``evaluate`` as every tick. Marks
that are on nodes are adopted at the beginning of the history, so that the readings that kept them
are evaluated again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Final

from dynsched.core.adoption import adopted_alerts, with_adopted, without_aging
from dynsched.core.evaluate import GRAIN, Alerts, RuleReadings, evaluate
from dynsched.core.mark_state import mark_states
from dynsched.core.match import index_nodes, match_samples
from dynsched.core.model import Node, Sample, Series
from dynsched.core.rules import RuleSet

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
    rule_set: RuleSet,
    histories: Histories,
    nodes: Mapping[str, Node],
    previous: Alerts,
    *,
    times: Sequence[float],
    step: float,
    until: float,
) -> Alerts:
    """``previous`` after evaluating at each of ``times`` (Unix seconds, rising, ``step`` apart).

    The past of a node begins when it was made: what came before is another node's of its name.
    ``until`` is when the whole replay ends, of which ``times`` may be a part.
    """
    index = index_nodes(nodes.values())
    alerts = previous
    for now in times:
        present = _present(nodes, now, until=until)
        readings = {}
        for rule in rule_set.rules:
            history = histories.get(rule.name)
            if history is not None:
                samples = _last_between(history, now - step, now)
                fresh_since = now - rule_set.stale_after_of(rule)
                matched = match_samples(rule, samples, index, fresh_since=fresh_since)
                readings[rule.name] = RuleReadings(matched.readings)
        adopted = adopted_alerts(rule_set, present, now)
        evaluated = evaluate(
            rule_set, readings, present, without_aging(alerts, adopted), now
        ).alerts
        # For a rule without history, the marks on the nodes are adopted as of now.
        alerts = {
            name: evaluated[name] if name in readings else adopted.get(name, {})
            for name in evaluated
        }
    return alerts


def finish_replay(
    rule_set: RuleSet, nodes: Mapping[str, Node], alerts: Alerts, now: float
) -> Alerts:
    """What a whole replay came to, for the first tick to go on from.

    Marks on nodes that are younger than the last moment are adopted now. Alerts are dropped that
    fire on an unmarked node whose value is not over the threshold any more: ``keep_firing_for``
    and a dead band keep a mark, and there is none to keep. Those of shadow rules never have one.
    """
    states = mark_states(nodes.values(), rule_set.mark)
    alerts = with_adopted(rule_set, nodes, states, alerts, now)
    marked = {name for name, state in states.items() if state.marked}
    return {
        rule.name: {
            node: alert
            for node, alert in alerts[rule.name].items()
            if not alert.firing or node in marked or rule.shadow or rule.breached(alert.value)
        }
        for rule in rule_set.rules
        if rule.name in alerts
    }


def _present(nodes: Mapping[str, Node], now: float, *, until: float) -> Mapping[str, Node]:
    """The nodes that were there at ``now``."""
    latest = until + _SKEW
    later = {name for name, node in nodes.items() if now < node.created <= latest}
    if not later:
        return nodes
    return {name: node for name, node in nodes.items() if name not in later}


def _last_between(history: Sequence[Series], since: float, until: float) -> list[Sample]:
    """The last point of each series in ``(since, until]``, to the millisecond."""
    samples = []
    for series in history:
        place = bisect_right(series.points, until + GRAIN, key=itemgetter(0))
        if place and series.points[place - 1][0] > since + GRAIN:
            time, value = series.points[place - 1]
            samples.append(Sample(series.labels, value, time))
    return samples
