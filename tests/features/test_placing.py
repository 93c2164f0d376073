"""The load that is used to place pods: all rules of a profile together, in tenths of a percent."""

import math
from dataclasses import replace
from typing import Any

import pytest
from builders import FAILED, NOON, Body, answer, named, node, rule, rule_set

from dynsched.core.evaluate import evaluate
from dynsched.core.load.expected import ExpectedLoad
from dynsched.core.load.pods import Added
from dynsched.core.samples import QueryResult
from dynsched.features.placing import FIRING, next_pod_loads, placing_loads, weighted_profile
from dynsched.rules.rule_set import RuleSet


def loads_of(rules: RuleSet, scheduler: str = "", **answers: QueryResult) -> dict[str, int]:
    """The loads after one tick. The nodes are those of the answers, and `other`."""
    samples = [sample for found in answers.values() for sample in found.samples]
    nodes = {name: node(name) for name in ("other", *(one.labels["node"] for one in samples))}
    found = evaluate(rules, answers, nodes, None, NOON)
    return dict(placing_loads(found, weighted_profile(rules, scheduler)).loads)


def profile(**score: float) -> Body:
    return {"profiles": {"default": {"score": score}}}


BY_MEMORY = "mem-real-usage-scheduler"
TWO = {
    "default": {"score": {"cpu": 1}},
    BY_MEMORY: {"score": {"mem": 1}, "method": "relative"},
}
A20, A60 = answer({"a": 20}), answer({"a": 60})


@pytest.mark.parametrize(
    ("extender", "answers", "loads", "scheduler"),
    [
        (profile(cpu=3, mem=1), {"cpu": A20, "mem": A60}, {"a": 300}, ""),
        (profile(cpu=1, mem=0), {"cpu": A20, "mem": answer({"a": 99})}, {"a": 200}, ""),
        (profile(cpu=0), {"cpu": A20, "mem": FAILED}, {}, ""),
        # without profiles all rules have the same weight
        ({}, {"cpu": A20, "mem": A60}, {"a": 400}, ""),
        ({}, {"cpu": FAILED, "mem": A60}, {"a": 600}, ""),
        ({}, {"cpu": FAILED, "mem": FAILED}, {}, ""),
        # a missing value of one rule counts as the median of that rule
        (
            {},
            {"cpu": answer({"a": 0, "b": 50, "c": 50}), "mem": answer({"b": 40, "c": 60})},
            {"a": 250, "b": 450, "c": 550},
            "",
        ),
        # NaN does not count as 0 %, which would be the best score; an old reading does not count
        (profile(cpu=1), {"cpu": answer({"a": math.nan, "b": 20}), "mem": FAILED}, {"b": 200}, ""),
        (profile(cpu=1), {"cpu": answer({"a": 20}, at=NOON - 299), "mem": FAILED}, {"a": 200}, ""),
        (profile(cpu=1), {"cpu": answer({"a": 20}, at=NOON - 301), "mem": FAILED}, {}, ""),
        # the profile is that of the pod's scheduler
        ({"profiles": TWO}, {"cpu": A20, "mem": A60}, {"a": 600}, BY_MEMORY),
        ({"profiles": TWO}, {"cpu": A20, "mem": A60}, {"a": 200}, "default-scheduler"),
    ],
)
def test_the_load_of_a_node_combines_the_rules_of_the_profile(
    extender: Any, answers: dict[str, QueryResult], loads: dict[str, int], scheduler: str
) -> None:
    rules = rule_set(rule(), rule("mem"), extender=extender)
    assert loads_of(rules, scheduler, **answers) == loads
    method = "relative" if scheduler == BY_MEMORY else "linear"
    assert weighted_profile(rules, scheduler).method == method


@pytest.mark.parametrize(
    ("value", "ended", "load"), [(95, 10, FIRING + 850), (95, 20, 750), (30, 0, 300)]
)
def test_a_cooled_node_counts_with_its_load_while_its_alert_still_fires(
    value: float, ended: float, load: int
) -> None:
    """Delayed metrics and `keep_firing_for` keep the alert firing for minutes. Otherwise the
    remaining nodes would receive all pods meanwhile.
    """
    rules = rule_set(rule(threshold=80, keep_firing_for="2m"))
    nodes, by_cpu = named("a", "b"), weighted_profile(rules, "")
    hot = evaluate(rules, {"cpu": answer({"a": 95, "b": 20})}, nodes, None, NOON)
    assert placing_loads(hot, by_cpu).loads == {"a": FIRING + 950, "b": 200}
    later = {"cpu": answer({"a": value, "b": 40}, at=NOON + 10)}
    found = evaluate(rules, later, nodes, hot, NOON + 10)
    expected = ExpectedLoad(added={"a": Added(0.0, ended), "b": Added(0.0, 0.0, margin=12.0)})
    found = replace(found, expected={"cpu": expected})
    assert found.pressures["a"].hot
    assert placing_loads(found, by_cpu).loads == {"a": load, "b": 400 + 120}


def test_the_larger_of_two_equally_loaded_nodes_counts_as_cooler() -> None:
    rules, nodes = rule_set(rule()), named("large", "small")
    found = evaluate(rules, {"cpu": answer(dict.fromkeys(nodes, 40))}, nodes, None, NOON)
    expected = ExpectedLoad(next_pod={"large": 2.5, "small": 10.0}, least_next=2.5)
    found, by_cpu = replace(found, expected={"cpu": expected}), weighted_profile(rules, "")
    assert placing_loads(found, by_cpu).loads == {"large": 400, "small": 475}
    assert next_pod_loads(found, by_cpu) == {"large": 25, "small": 100}
