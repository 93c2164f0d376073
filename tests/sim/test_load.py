"""The synthetic load: pure, inside its limits, and lively enough for the demo's first minute."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from builders import named
from evaluating import Reading, RuleReadings, evaluate, verdicts_of
from hypothesis import given
from hypothesis import strategies as st

import dynsched.sim
from dynsched.engine.alerts import no_alerts
from dynsched.rules.file import load_rules
from dynsched.rules.rule_set import RuleSet
from dynsched.sim.load import Kind, NodeLoad, node_load

indexes = st.integers(0, 5_000)
seeds = st.integers(-1_000, 1_000)
times = st.floats(0, 10_000)


@pytest.fixture(scope="module")
def rules() -> RuleSet:
    return load_rules(Path(dynsched.sim.__file__).with_name("demo-rules.yaml"))


def test_the_same_index_and_seed_give_the_same_load() -> None:
    assert node_load(3, seed=7) == node_load(3, seed=7)
    assert len({node_load(index, seed) for index in range(20) for seed in range(20)}) == 400


@given(indexes, seeds, times)
def test_it_stays_between_0_and_100_percent(index, seed, time) -> None:
    load = node_load(index, seed)
    assert 5 < load.cpu(time) < 100
    assert 5 < load.memory(time) < 100


@given(indexes, seeds, times)
def test_busy_seconds_are_the_integral_of_the_load(index, seed, begin) -> None:
    load, steps, width = node_load(index, seed), 2_000, 40.0
    middles = (begin + width * (step + 0.5) / steps for step in range(steps))
    by_hand = sum(load.cpu(time) for time in middles) / steps
    assert load.mean_cpu(begin, begin + width) == pytest.approx(by_hand, abs=0.05)
    assert load.busy_seconds(0) == pytest.approx(0, abs=1e-9)


def test_of_twelve_nodes_about_half_heat_and_of_very_many_few() -> None:
    for seed in range(100):
        kinds = Counter(node_load(index, seed).kind for index in range(12))
        assert 5 <= kinds[Kind.CPU] + kinds[Kind.MEMORY] <= 7
        assert min(kinds[Kind.CPU], kinds[Kind.MEMORY]) >= 1
    kinds = Counter(node_load(index).kind for index in range(5_000))
    assert 480 < kinds[Kind.CPU] + kinds[Kind.MEMORY] < 560


@pytest.mark.parametrize("nodes", [3, 12, pytest.param(40, marks=pytest.mark.thorough)])
def test_in_the_first_minute_nodes_come_under_pressure_and_are_relieved(rules, nodes) -> None:
    for seed in range(20):
        pressed, relieved = changes(rules, [node_load(index, seed) for index in range(nodes)])
        assert pressed[0] < 30, f"seed {seed}"
        assert relieved[0] < 55, f"seed {seed}"
        if nodes >= 12:
            assert len(pressed) >= nodes / 3, f"seed {seed}"
            assert len(relieved) >= nodes / 6, f"seed {seed}"
            assert len(set(pressed)) > 1, "all at once"


def changes(rules: RuleSet, loads: list[NodeLoad]) -> tuple[list[int], list[int]]:
    """At which seconds of the first minute a node came under pressure, or was relieved.

    The first 7 seconds are without data, as with a real Prometheus.
    """
    names = [f"worker-{index}" for index in range(len(loads))]
    alerts = no_alerts()
    before: set[str] = set()
    pressed, relieved = [], []
    for second in range(7, 60):
        evaluation = evaluate(rules, observe(names, loads, second), named(*names), alerts, second)
        alerts = evaluation.alerts
        now = {
            name for name, verdict in verdicts_of(evaluation.verdicts).items() if verdict.pressured
        }
        pressed += [second] * len(now - before)
        relieved += [second] * len(before - now)
        before = now
    return pressed, relieved


def observe(names: list[str], loads: list[NodeLoad], second: int) -> dict[str, RuleReadings]:
    cpu, memory = {}, {}
    for name, load in zip(names, loads, strict=True):
        cpu[name] = Reading(name, load.mean_cpu(second - 5, second), second)
        memory[name] = Reading(name, load.memory(second), second)
    return {"node-cpu": RuleReadings(cpu), "node-mem-usage": RuleReadings(memory)}
