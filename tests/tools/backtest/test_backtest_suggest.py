"""Settings that are compared by what they do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from backtest_support import CPU, MEM, SERIES, Call, Reported, rules
from builders import NOON, named, rule, rule_set
from fake_prometheus import FakePrometheus

from dynsched.engine.loads import rule_load
from dynsched.engine.match import index_nodes
from dynsched.rules.parse import parse_rules
from dynsched.rules.rule_set import RuleSet
from dynsched.tools.backtest.fetching import Past, Query
from dynsched.tools.backtest.history_columns import Block, save
from dynsched.tools.backtest.incidents import Incident
from dynsched.tools.backtest.replaying import Scene
from dynsched.tools.backtest.steps import Part, Window
from dynsched.tools.backtest.suggest import FORS, LEVELS, candidates, suggest, value_at
from dynsched.tools.backtest.tallies import runs_of
from dynsched.tools.backtest.weighing import Candidate, Outcome, frontier, leads, recommend
from dynsched.tools.backtest.world import make_world

STEP = 60.0


OWN = Candidate(80, 75, 60)


def outcome(**told: Any) -> Outcome:
    usual: dict[str, Any] = {"setting": OWN, "marks": 10, "flaps": 0, "node_time": 0.1}
    usual |= {"writes_per_day": 10.0, "time_at_cap": 0.0, "event_leads": np.empty(0)}
    return Outcome(**usual | {"leads": np.array([600.0] * 5)} | told)


@pytest.mark.parametrize("op", [">", "<"])
@pytest.mark.parametrize("median", [5.0, 50.0, 99.0])
def test_there_are_36_settings_the_rules_own_among_them(op: str, median: float) -> None:
    band = 5 if op == ">" else -5
    own = rule("cpu", op=op, threshold=80, clear_threshold=80 - band, for_="90s")
    (one,) = rule_set(own).file_rules
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
    for load in (10.0, 55.0, 80.0, 95.0):
        assert rule_load(one, value_at(one, load)) == pytest.approx(load)


def test_a_lead_is_the_time_since_the_mark_that_still_stands() -> None:
    marked = np.zeros((10, 2), bool)
    marked[2:5, 0] = marked[7:10, 0] = marked[0:1, 1] = True
    lane = np.array([0, 0, 0, 0, 1, 1])
    row = np.array([4, 5, 6, 7, 1, 5])
    assert leads(runs_of(marked), lane, row, 10).tolist() == [2, 3, 0, 0, 1, 0]


def test_the_frontier_leaves_out_what_is_worse_in_everything() -> None:
    good, other = outcome(), outcome(leads=EARLIER, flaps=4)
    worse = outcome(flaps=5, writes_per_day=20.0)
    assert frontier([good, worse, other]) == [good, other]


EARLIER, LATE = np.array([900.0] * 5), np.array([60.0] * 5)
LEAST = outcome(leads=np.array([560.0] * 5), writes_per_day=3.0)
WORSE = [
    outcome(),
    outcome(leads=EARLIER, flaps=9),
    outcome(leads=EARLIER, time_at_cap=0.2),
    outcome(leads=LATE, writes_per_day=1.0),
]


def never(times: int, **told: Any) -> Outcome:
    return outcome(leads=np.zeros(times), **told)


ELSEWHERE = Candidate(90, 85, 60)


@pytest.mark.parametrize(
    ("best", "others", "reason"),
    [
        # Of calm settings with about the same warning the one that writes least.
        (LEAST, WORSE, "writes least"),
        # Without anything to warn of nothing is changed.
        (never(0, flaps=9), [never(0, setting=ELSEWHERE)], "nothing to change"),
        (never(2, flaps=9), [never(2, setting=ELSEWHERE)], "nothing to change"),
        # Where every setting flaps the one with the fewest.
        (outcome(flaps=5), [outcome(flaps=8)], "nearest"),
    ],
)
def test_what_is_recommended(best: Outcome, others: list[Outcome], reason: str) -> None:
    found, told = recommend([*others, best], OWN)
    assert found is best
    assert reason in told


def history(made: RuleSet, values: np.ndarray, folder: Path) -> Scene:
    window = Window(NOON // STEP * STEP, STEP, len(values))
    query = Query.of(made.file_rules[0])
    assert query is not None
    names = tuple(f"n{number}" for number in range(values.shape[1]))
    past, path, block = Past(), folder / "all.npz", Block(names, values)
    save(path, block)
    past.take(Part(0, len(values)), path, block)
    return Scene({query: past}, index_nodes(named(*names).values()), window)


def rising_to_full(steps: int = 600) -> np.ndarray:
    """Two nodes: one climbs to 100 every 100 steps, the other is calm, and flickers about 50."""
    ramp = np.minimum(100.0, 30 + 75 * (np.arange(steps) % 100) / 60)
    flicker = 48 + 4.0 * (np.arange(steps) % 2)
    return np.column_stack([ramp, flicker])


def test_a_whole_sweep_recommends_what_can_be_pasted(tmp_path: Path) -> None:
    own = rule("cpu", threshold=97, keep_firing_for="2m", early={})
    made = rule_set(own, guard={"max_marked": "50%"})
    scene = history(made, rising_to_full(), tmp_path)
    world = make_world(named("n0", "n1"), made)
    full = scene.window.at(100 + 55)
    found = suggest(made, scene, world, [Incident("OOMKilled", 0, full)], lambda *_: None)
    (one,) = found["rules"]
    assert one["times_full"] == 6
    best = one["recommended"]
    assert (best["flaps"], best["warned"]) == (0, 1.0)
    assert best["threshold"] < 95
    assert best["early_warning_seconds"] > 120
    assert sum(point["recommended"] for point in one["points"]) == 1
    assert any(point["on_frontier"] for point in one["points"])
    (event,) = one["events"]
    assert (event["event"], event["count"], event["marked_before"]) == ("OOMKilled", 1, 1)
    assert event["median_lead_seconds"] > 0
    (pasted,) = parse_rules(yaml.safe_load(found["yaml"])).file_rules
    assert (pasted.threshold, pasted.keep_firing_for) == (best["threshold"], 120)
    assert pasted.early == made.file_rules[0].early


async def test_the_command_prints_what_to_paste(
    call: Call, reported: Reported, prometheus: FakePrometheus
) -> None:
    for number in range(6):
        begun = 3500 - 550 * number
        for since, load in ((begun, 70), (begun - 240, 99), (begun - 300, 20)):
            prometheus.set(since, cpu={"a": load, "b": 20})
    told = rules({**CPU, "for": "30s"}, MEM)
    code, out, err = await call(prometheus.url, told, *SERIES, "--suggest")
    assert code == 0, err
    assert "Suggested for cpu" in out
    assert "\n  - name: cpu\n" in out
    report = await reported(prometheus.url, told, *SERIES, "--suggest")
    found = {one["rule"]: one for one in report["suggested"]["rules"]}
    assert len(found["cpu"]["points"]) >= 36
    assert (found["mem"]["recommended"], found["mem"]["reason"]) == (None, "Not enough data.")
