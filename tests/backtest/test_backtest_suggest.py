"""Settings that are compared by what they do."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from backtest_support import Call
from builders import NOON, named, rule, rule_set
from fake_prometheus import FakePrometheus

from dynsched.backtest.columns import Block, save
from dynsched.backtest.fetching import Past, Query
from dynsched.backtest.incidents import Incident
from dynsched.backtest.replaying import Scene
from dynsched.backtest.steps import Part, Window
from dynsched.backtest.suggest import FORS, LEVELS, candidates, load_of, suggest, value_at
from dynsched.backtest.tallies import runs_of
from dynsched.backtest.weighing import Candidate, Outcome, frontier, leads, recommend
from dynsched.backtest.world import make_world
from dynsched.core.loads import rule_load
from dynsched.core.match import index_nodes
from dynsched.core.parsing import parse_rules
from dynsched.core.rules import RuleSet

STEP = 60.0


def outcome(**told: Any) -> Outcome:
    usual = Outcome(
        setting=Candidate(80, 75, 60),
        marks=10,
        flaps=0,
        node_time=0.1,
        writes_per_day=10.0,
        time_at_cap=0.0,
        leads=np.array([600.0] * 5),
        event_leads=np.empty(0),
    )
    return replace(usual, **told)


OWN = Candidate(80, 75, 60)


@pytest.mark.parametrize("op", [">", "<"])
@pytest.mark.parametrize("median", [5.0, 50.0, 99.0])
def test_there_are_36_settings_the_rules_own_among_them(op: str, median: float) -> None:
    band = 5 if op == ">" else -5
    (one,) = rule_set(
        rule("cpu", op=op, threshold=80, clear_threshold=80 - band, for_="90s")
    ).file_rules
    found = candidates(one, median)
    assert LEVELS * FORS - FORS <= len(found) <= LEVELS * FORS
    assert Candidate(80, 80 - band, 90) in found
    assert {each.hold_duration for each in found} == {0, 90, 300}
    for each in found:
        # Each could stand in a file.
        rule_set(rule("x", op=op, threshold=each.threshold, clear_threshold=each.clear_threshold))


@pytest.mark.parametrize("op", [">", "<"])
def test_loads_and_values_are_those_of_the_core(op: str) -> None:
    (one,) = rule_set(rule("cpu", op=op, threshold=80)).file_rules
    for value in (10.0, 55.0, 80.0, 95.0):
        assert load_of(one, value) == pytest.approx(rule_load(one, value))
        assert value_at(one, load_of(one, value)) == pytest.approx(value)


def test_a_lead_is_the_time_since_the_mark_that_still_stands() -> None:
    marked = np.zeros((10, 2), bool)
    marked[2:5, 0] = marked[7:10, 0] = marked[0:1, 1] = True
    lane = np.array([0, 0, 0, 0, 1, 1])
    row = np.array([4, 5, 6, 7, 1, 5])
    assert leads(runs_of(marked), lane, row, 10).tolist() == [2, 3, 0, 0, 1, 0]


def test_the_frontier_leaves_out_what_is_worse_in_everything() -> None:
    good, other = outcome(), outcome(leads=np.array([900.0] * 5), flaps=4)
    worse = outcome(flaps=5, writes_per_day=20.0)
    assert frontier([good, worse, other]) == [good, other]


def test_of_calm_settings_with_about_the_same_warning_the_one_that_writes_least_is_best() -> None:
    loud = outcome(leads=np.array([900.0] * 5), flaps=9)
    at_the_cap = outcome(leads=np.array([900.0] * 5), time_at_cap=0.2)
    least = outcome(leads=np.array([560.0] * 5), writes_per_day=3.0)
    late = outcome(leads=np.array([60.0] * 5), writes_per_day=1.0)
    best, reason = recommend([outcome(), loud, at_the_cap, least, late], OWN)
    assert best is least
    assert "writes least" in reason


@pytest.mark.parametrize("times", [0, 2])
def test_without_anything_to_warn_of_nothing_is_changed(times: int) -> None:
    mine = outcome(leads=np.zeros(times), flaps=9)
    other = outcome(setting=Candidate(90, 85, 60), leads=np.zeros(times))
    best, reason = recommend([other, mine], OWN)
    assert best is mine
    assert "nothing to change" in reason


def test_where_every_setting_flaps_the_one_with_the_fewest_is_best() -> None:
    one, two = outcome(flaps=8), outcome(flaps=5)
    best, reason = recommend([one, two], OWN)
    assert best is two
    assert "nearest" in reason


def history(made: RuleSet, values: np.ndarray, folder: Path) -> Scene:
    window = Window(NOON // STEP * STEP, STEP, len(values))
    query = Query.of(made.file_rules[0])
    assert query is not None
    names = tuple(f"n{number}" for number in range(values.shape[1]))
    past = Past()
    path = folder / "all.npz"
    block = Block(names, values)
    save(path, block)
    past.take(Part(0, len(values)), path, block)
    nodes = named(*names)
    return Scene({query: past}, index_nodes(nodes.values()), window)


def rising_to_full(steps: int = 600) -> np.ndarray:
    """Two nodes: one climbs to 100 every 100 steps, the other is calm, and flickers about 50."""
    ramp = np.minimum(100.0, 30 + 75 * (np.arange(steps) % 100) / 60)
    flicker = 48 + 4.0 * (np.arange(steps) % 2)
    return np.column_stack([ramp, flicker])


def test_a_whole_sweep_recommends_what_can_be_pasted(tmp_path: Path) -> None:
    made = rule_set(
        rule("cpu", threshold=97, keep_firing_for="2m", early={}), guard={"max_marked": "50%"}
    )
    scene = history(made, rising_to_full(), tmp_path)
    world = make_world(named("n0", "n1"), made)
    full = scene.window.at(100 + 55)
    incidents = [Incident("OOMKilled", 0, full), Incident("OOMKilled", None, full)]
    found = suggest(made, scene, world, incidents, lambda *_: None)
    (one,) = found["rules"]
    assert one["times_full"] == 6
    best = one["recommended"]
    assert best["threshold"] < 95
    assert best["flaps"] == 0
    assert best["warned"] == 1.0
    assert best["early_warning_seconds"] > 120
    assert sum(point["recommended"] for point in one["points"]) == 1
    assert any(point["on_frontier"] for point in one["points"])
    (event,) = one["events"]
    assert (event["event"], event["count"], event["marked_before"]) == ("OOMKilled", 1, 1)
    assert event["median_lead_seconds"] > 0
    pasted = parse_rules(yaml.safe_load(found["yaml"]))
    assert pasted.file_rules[0].threshold == best["threshold"]
    assert pasted.file_rules[0].keep_firing_for == 120
    assert pasted.file_rules[0].early == made.file_rules[0].early


async def test_the_command_prints_what_to_paste(call: Call, prometheus: FakePrometheus) -> None:
    for number in range(6):
        begun = 3500 - 550 * number
        prometheus.set(begun, cpu={"a": 70, "b": 20})
        prometheus.set(begun - 240, cpu={"a": 99, "b": 20})
        prometheus.set(begun - 300, cpu={"a": 20, "b": 20})
    rules = {"guard": {"max_marked": "100%"}, "rules": [rule("cpu", expr="cpu", for_="30s")]}
    more = ("--nodes-from-series", "--since", "1h", "--step", "30s", "--suggest")
    code, out, err = await call(prometheus.url, rules, *more)
    assert code == 0, err
    assert "Suggested for cpu" in out
    assert "\n  - name: cpu\n" in out
    _, text, _ = await call(prometheus.url, rules, *more, "-o", "json")
    (one,) = json.loads(text)["suggested"]["rules"]
    assert len(one["points"]) >= 36
    _, page, _ = await call(prometheus.url, rules, *more, "-o", "html")
    assert page.count("<circle") == len(one["points"])


async def test_a_rule_without_data_has_no_suggestion(
    call: Call, prometheus: FakePrometheus
) -> None:
    prometheus.set(7200, cpu={"a": 20})
    rules = {"rules": [rule("cpu", expr="cpu"), rule("mem", expr="mem")]}
    more = ("--nodes-from-series", "--since", "1h", "--step", "60s", "--suggest", "-o", "json")
    code, text, _ = await call(prometheus.url, rules, *more)
    assert code == 0
    found = {one["rule"]: one for one in json.loads(text)["suggested"]["rules"]}
    assert found["mem"]["recommended"] is None
    assert found["mem"]["reason"] == "Not enough data."
    assert found["cpu"]["recommended"]["threshold"] == 80
