"""Settings that are compared by what they do."""

from typing import Any

import numpy as np
import pytest
import yaml
from backtest_support import CPU, MEM, SERIES, rules
from builders import rule, rule_set

from dynsched.engine.loads import rule_load
from dynsched.rules.file import parse_rules
from dynsched.rules.rule_set import EarlyMark
from dynsched.tools.backtest.suggest import (
    FORS,
    LEVELS,
    Candidate,
    Outcome,
    candidates,
    frontier,
    leads,
    recommend,
    value_at,
)
from dynsched.tools.backtest.summary import runs_of

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
        (never(1, flaps=9), [never(1, setting=ELSEWHERE)], "too seldom (1 time): "),
        # Where every setting flaps the one with the fewest.
        (outcome(flaps=5), [outcome(flaps=8)], "nearest"),
    ],
)
def test_what_is_recommended(best: Outcome, others: list[Outcome], reason: str) -> None:
    found, told = recommend([*others, best], OWN)
    assert found is best
    assert reason in told


async def test_the_command_prints_what_to_paste(call, reported, prometheus) -> None:
    for number in range(3):
        begun = 3500 - 1150 * number
        for since, load in ((begun, 70), (begun - 240, 99), (begun - 300, 20)):
            prometheus.set(since, cpu={"a": load, "b": 20})
    cpu = {**CPU, "for": "30s", "keep_firing_for": "2m", "early": {"above_mean": 10}}
    told = rules(cpu, MEM)
    code, out, err = await call(prometheus.url, told, *SERIES, "--suggest")
    assert code == 0, err
    assert "Suggested for cpu" in out
    assert "\n  - name: cpu\n" in out
    report = await reported(prometheus.url, told, *SERIES, "--suggest")
    found = {one["rule"]: one for one in report["suggested"]["rules"]}
    points, best = found["cpu"]["points"], found["cpu"]["recommended"]
    assert len(points) >= 36
    assert [point for point in points if point["recommended"]] == [best]
    assert any(point["on_frontier"] for point in points)
    assert (best["flaps"], best["warned"], found["cpu"]["times_full"]) == (0, 1.0, 3)
    assert best["threshold"] < 95
    assert best["early_warning_seconds"] > 120
    (pasted,) = parse_rules(yaml.safe_load(report["suggested"]["yaml"])).file_rules
    assert (pasted.threshold, pasted.keep_firing_for) == (best["threshold"], 120)
    assert pasted.early == EarlyMark(above_mean=10)
    assert (found["mem"]["recommended"], found["mem"]["reason"]) == (None, "Not enough data.")


async def test_without_overload_there_is_no_table_of_settings(call, prometheus) -> None:
    prometheus.set(3500, cpu={"a": 30, "b": 20})
    code, out, err = await call(prometheus.url, rules(CPU), *SERIES, "--suggest")
    assert code == 0, err
    _, _, told = out.partition("Suggested for cpu\n")
    reason, _, *rows = told.splitlines()
    assert reason.startswith("No node became full in this time (0 times)")
    assert [row.split()[0] for row in rows] == ["80"]  # the rule as it is


async def test_a_setting_is_at_the_cap_while_it_would_mark_more_nodes(reported, prometheus) -> None:
    for since, load in ((3500, 20), (1800, 82)):
        prometheus.set(since, cpu={"a": load, "b": load, "c": 20})
    for limit, share in ((1, 0.5), (2, 0.0)):
        told = rules(CPU, guard={"max_marked": limit})
        (cpu,) = (await reported(prometheus.url, told, *SERIES, "--suggest"))["suggested"]["rules"]
        own = [one for one in cpu["points"] if (one["threshold"], one["for_seconds"]) == (80, 0)]
        assert [(one["marks"], one["time_at_cap"]) for one in own] == [
            (2, pytest.approx(share, abs=0.03))
        ]
