"""The replay at startup: each node's past, without that of an earlier node of the same name."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from builders import NOON, named, rule, rule_set

from dynsched.core.alerts import Alert, Alerts, AlertState
from dynsched.core.node_table import NodeTable
from dynsched.core.nodes import Node
from dynsched.core.restore import finish_replay, replay, replay_times
from dynsched.core.samples import Series
from dynsched.rules.rule_set import RuleSet

STEP = 10.0
STATUS = {"status": "presure"}


def past(**values: float) -> Mapping[str, Sequence[Series]]:
    """A history in which each node has one constant value."""
    times = [NOON - STEP * number for number in range(200, -1, -1)]
    return {
        "cpu": [
            Series({"node": name}, tuple((time, value) for time in times))
            for name, value in values.items()
        ]
    }


def replayed(
    rules: RuleSet, nodes: Mapping[str, Node], history: Mapping[str, Sequence[Series]], part: int
) -> dict[str, Alert]:
    """The alerts of rule ``cpu`` by node, after a replay in parts of ``part`` evaluations each."""
    times = replay_times(rules, NOON, STEP)
    table = NodeTable.of(nodes, rules)
    alerts: Alerts = {}
    for first in range(0, len(times), part):
        moments = times[first : first + part]
        alerts = replay(table, history, alerts, times=moments, step=STEP, until=NOON)
    found = finish_replay(table, alerts, NOON)
    return {name: of_node["cpu"] for name, of_node in found.items() if "cpu" in of_node}


@pytest.mark.parametrize("part", [1, 3, 1000])
def test_the_past_of_a_node_begins_at_its_creation(part: int) -> None:
    rules = rule_set(rule(for_="5m"))
    nodes = named("old", "young", "skewed", "unknown")
    ages = {"old": NOON - 9999, "young": NOON - 60, "skewed": NOON + 9999, "unknown": 0.0}
    nodes = {name: replace(node, created=ages[name]) for name, node in nodes.items()}
    alerts = replayed(rules, nodes, past(old=90, young=90, skewed=90, unknown=90), part)
    assert {name: alert.state for name, alert in alerts.items()} == {
        "old": AlertState.FIRING,
        "young": AlertState.PENDING,
        "skewed": AlertState.FIRING,  # a creation time hours ahead of our clock is ignored
        "unknown": AlertState.FIRING,
    }
    assert alerts["young"].active_since == NOON - 60
    ahead = {"ahead": replace(nodes["old"], name="ahead", created=NOON + 30)}
    assert not replayed(rules, ahead, past(ahead=90), part)


@pytest.mark.parametrize("mark", ["none", {}])
def test_keep_firing_for_of_an_unmarked_node_survives_a_restart_only_with_mark_none(mark) -> None:
    rules = rule_set(rule(keep_firing_for="10m"), mark=mark)
    times = [NOON - STEP * number for number in range(100, -1, -1)]
    points = tuple((time, 90.0 if time < NOON - 300 else 10.0) for time in times)
    alerts = replayed(rules, named("a"), {"cpu": [Series({"node": "a"}, points)]}, 7)
    assert (AlertState.FIRING in {each.state for each in alerts.values()}) is (mark == "none")


def test_a_mark_on_a_node_that_is_newer_than_the_replay_is_adopted_as_of_now() -> None:
    rules = rule_set(rule(for_="5m"))
    marked = Node("n1", uid="2", labels=STATUS, created=NOON - 1)
    found = replayed(rules, {"n1": marked}, past(n1=90), 1000)["n1"]
    assert (found.adopted, found.known_at) == (True, NOON)


@pytest.mark.parametrize("part", [1, 3, 1000])
def test_a_mark_on_a_node_created_during_the_replay_is_adopted_as_of_its_creation(
    part: int,
) -> None:
    rules = rule_set(rule(keep_firing_for="5m"))
    marked = Node("n1", uid="2", labels=STATUS, created=NOON - 60)
    kept = replayed(rules, {"n1": marked}, past(n1=5), part)["n1"]
    assert (kept.state, kept.since, kept.keep_firing_since) == (
        AlertState.FIRING,
        NOON - 60,
        NOON - 60,
    )
    silent = replayed(rules, {"n1": marked}, {"cpu": []}, part)["n1"]
    assert (silent.state, silent.adopted) == (AlertState.FIRING, True)


def test_a_rule_without_a_history_adopts_the_mark_as_of_now() -> None:
    rules = rule_set(rule(for_="5m"), rule("mem", for_="5m"))
    marked = Node("n1", uid="2", labels=STATUS, created=NOON - 9999)
    table = NodeTable.of({"n1": marked}, rules)
    times = replay_times(rules, NOON, STEP)
    found = replay(table, {**past(n1=5), "mem": None}, {}, times=times, step=STEP, until=NOON)["n1"]
    assert (found["cpu"].state, found["cpu"].adopted) == (AlertState.INACTIVE, False)
    assert (found["mem"].state, found["mem"].adopted) == (AlertState.FIRING, True)
    assert found["mem"].known_at == times[-1]


@pytest.mark.parametrize(
    ("durations", "nodes", "steps"),
    [
        ({"for_": "10m"}, 100, 61),  # as often as ticks
        ({"for_": "10m"}, 20_000, 26),  # 25 steps are within the CPU time allowed for a start
        ({"for_": "2h"}, 100, 361),
        ({"for_": "1m", "keep_firing_for": "2h"}, 20_000, 241),  # 2 within the shortest duration
    ],
)
def test_the_number_of_steps_in_a_replay(durations, nodes: int, steps: int) -> None:
    assert len(replay_times(rule_set(rule(**durations)), NOON, 10.0, nodes)) == steps
