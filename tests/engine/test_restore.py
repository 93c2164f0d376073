"""The past, replayed: of the nodes that were there, and of no other."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from builders import NOON, named, rule, rule_set
from evaluating import Alerts, alerts_of

from dynsched.engine.alerting.restore import adopted_alerts, finish_replay, replay, replay_times
from dynsched.engine.model import AlertState, Node, Series
from dynsched.engine.nodes.inventory import take_inventory
from dynsched.rules.rule_set import RuleSet

STEP = 10.0
STATUS = {"status": "presure"}


def past(**values: float) -> Mapping[str, Sequence[Series]]:
    """The same value all along, by node."""
    times = [NOON - STEP * number for number in range(200, -1, -1)]
    return {
        "cpu": [
            Series({"node": name}, tuple((time, value) for time in times))
            for name, value in values.items()
        ]
    }


def replayed(
    rules: RuleSet, nodes: Mapping[str, Node], history: Mapping[str, Sequence[Series]], part: int
) -> Alerts:
    """The whole window, ``part`` moments at a time."""
    times = replay_times(rules, NOON, STEP)
    seen = take_inventory(nodes, rules)
    alerts = adopted_alerts(seen, times[0])
    for first in range(0, len(times), part):
        moments = times[first : first + part]
        alerts = replay(seen, history, alerts, times=moments, step=STEP, until=NOON)
    return alerts_of(finish_replay(seen, alerts, NOON))


@pytest.mark.parametrize("part", [1, 3, 1000])
def test_the_past_of_a_node_begins_when_it_was_made(part: int) -> None:
    rules = rule_set(rule(for_="5m"))
    nodes = named("old", "young", "skewed", "unknown")
    ages = {"old": NOON - 9999, "young": NOON - 60, "skewed": NOON + 9999, "unknown": 0.0}
    nodes = {name: replace(node, created=ages[name]) for name, node in nodes.items()}
    alerts = replayed(rules, nodes, past(old=90, young=90, skewed=90, unknown=90), part)["cpu"]
    assert {name: alert.state for name, alert in alerts.items()} == {
        "old": AlertState.FIRING,
        "young": AlertState.PENDING,
        "skewed": AlertState.FIRING,  # a clock that is hours ahead says nothing
        "unknown": AlertState.FIRING,
    }
    assert alerts["young"].active_since == NOON - 60
    ahead = {"ahead": replace(nodes["old"], name="ahead", created=NOON + 30)}
    assert not replayed(rules, ahead, past(ahead=90), part)["cpu"]


@pytest.mark.parametrize("mark", ["none", {}])
def test_without_marks_a_node_that_is_still_held_hot_is_hot_after_a_restart(mark) -> None:
    rules = rule_set(rule(keep_firing_for="10m"), mark=mark)
    times = [NOON - STEP * number for number in range(100, -1, -1)]
    points = tuple((time, 90.0 if time < NOON - 300 else 10.0) for time in times)
    alerts = replayed(rules, named("a"), {"cpu": [Series({"node": "a"}, points)]}, 7)["cpu"]
    assert (AlertState.FIRING in {each.state for each in alerts.values()}) is (mark == "none")


def test_a_mark_on_a_node_that_is_younger_than_the_last_moment_is_adopted_now() -> None:
    rules = rule_set(rule(for_="5m"))
    marked = Node("n1", uid="2", labels=STATUS, created=NOON - 1)
    found = replayed(rules, {"n1": marked}, past(n1=90), 1000)["cpu"]["n1"]
    assert (found.adopted, found.known_at) == (True, NOON)


@pytest.mark.parametrize("part", [1, 3, 1000])
def test_a_mark_on_a_node_that_was_made_within_the_past_is_adopted_then(part: int) -> None:
    rules = rule_set(rule(keep_firing_for="5m"))
    marked = Node("n1", uid="2", labels=STATUS, created=NOON - 60)
    kept = replayed(rules, {"n1": marked}, past(n1=5), part)["cpu"]["n1"]
    assert (kept.state, kept.since, kept.keep_firing_since) == (
        AlertState.FIRING,
        NOON - 60,
        NOON - 60,
    )
    silent = replayed(rules, {"n1": marked}, {"cpu": []}, part)["cpu"]["n1"]
    assert (silent.state, silent.adopted) == (AlertState.FIRING, True)
