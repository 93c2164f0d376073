"""Which nodes the filter refuses, and in which words."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
from builders import node, rule, rule_set
from snapshots import NOON, Answer, Scene

from dynsched.engine.model import Node
from dynsched.engine.pod_values import BoundPod
from dynsched.engine.recent import RecentPods
from dynsched.engine.refusals import Refusal, load_refusals, without_label
from dynsched.engine.score import weighted_profile
from dynsched.rules.rule_errors import RulesInvalidError
from dynsched.rules.rule_set import BIND_BURST, RuleSet


def refusals(*steps: tuple[float, Answer], **options: Any) -> dict[str, Refusal]:
    """After ticks at these seconds."""
    rules = {"rules": [rule("mem", **options)], "extender": {"reject": ["mem"]}}
    scene = Scene(rules, map(Node, "abc"))
    return load_refusals([scene.tick(NOON + seconds, mem=found) for seconds, found in steps][-1])


HOT, FAILED = {"a": 99.0}, "connection refused"


@pytest.mark.parametrize(
    ("options", "steps", "says"),
    [
        ({}, [(0, {"a": 91.24, "b": 80, "c": 12})], "node load high: mem 91.24 > 80"),
        ({"for_": "30s"}, [(0, HOT)], None),
        ({"for_": "30s"}, [(0, HOT), (30, HOT)], "node load high: mem 99 > 80"),
        # a held alert does not claim a value that is not
        (
            {"keep_firing_for": "5m"},
            [(0, HOT), (10, {"a": 50})],
            "node load high: mem was > 80 and is held",
        ),
        # nodes without data pass; a gap is bridged, and then the node passes
        ({}, [(0, FAILED)], None),
        ({}, [(0, {"a": math.nan})], None),
        ({}, [(0, HOT), (60, FAILED)], "node load high: mem was > 80 and is held"),
        ({}, [(0, HOT), (301, FAILED)], None),
        ({"on_stale": "hold"}, [(0, HOT), (301, FAILED)], None),
    ],
)
def test_a_firing_rule_refuses_and_says_by_how_much(options, steps, says) -> None:
    expected = {} if says is None else {"a": Refusal(says, "node load high: mem > 80")}
    assert refusals(*steps, **options) == expected
    scene = Scene({"rules": [rule("mem")]}, [Node("a")])
    assert load_refusals(scene.tick(NOON, mem=HOT)) == {}  # `reject` does not name it


def test_labels() -> None:
    nodes = {name: node(name, labels=labels) for name, labels in {"a": {"k": ""}, "b": {}}.items()}
    assert without_label("k", nodes) == {"b"}


def burst_rules(**options: Any) -> RuleSet:
    return rule_set(rule(), guard={"bind_burst": {"pods": 2, **options}})


def test_a_burst_is_a_rule_of_its_own() -> None:
    made = burst_rules(window="90s").rules[-1]
    assert (made.name, made.source, made.threshold) == (BIND_BURST, "bound-pods", 2)
    assert burst_rules().guard.bind_burst is not None
    assert [found.name for found in rule_set(rule()).rules] == ["cpu"]


def test_many_pods_at_once_put_a_node_under_pressure_until_the_window_has_passed() -> None:
    bound, pressured = RecentPods(120), []
    scene = Scene({"rules": [rule()], "guard": {"bind_burst": {"pods": 2}}}, map(Node, "abc"))
    cool = dict.fromkeys("abc", 0.0)
    for seconds in (0, 10, 70):
        if seconds == 10:
            for number in range(3):
                bound.add(BoundPod(str(number), "a"), seconds)
        counts = cool | bound.counts(60, seconds)
        found = scene.tick(NOON + seconds, cpu=cool, **{BIND_BURST.replace("-", "_"): counts})
        pressured.append([name for name, view in found.nodes.items() if view.pressured])
    assert pressured == [[], ["a"], []]


@pytest.mark.parametrize(
    "burst", [{"pods": 0}, {"pods": 1.5}, {"pods": True}, {}, {"pods": 1, "window": 30}, 5]
)
def test_a_bad_burst(burst: object) -> None:
    with pytest.raises(RulesInvalidError):
        rule_set(rule(), guard={"bind_burst": burst})
    with pytest.raises(RulesInvalidError, match=r"guard\.bind_burst"):
        rule_set(rule(BIND_BURST), guard={"bind_burst": {"pods": 2}})  # its name is taken
    wrong = "'bound-pods' is not 'prometheus' or 'metrics-server'"
    with pytest.raises(RulesInvalidError, match=re.escape(wrong)):
        rule_set({"name": "a", "source": "bound-pods", "threshold": 1})


def test_a_rule_of_a_file_that_has_its_name_is_a_rule_like_others() -> None:
    """It was left out of the scores, and of what a pass tells."""
    (found,) = rule_set(rule(BIND_BURST)).rules
    assert (found.traits.asked, found.traits.scored) == (True, True)
    rules, _ = zip(*weighted_profile(rule_set(rule(BIND_BURST)), "").rules, strict=True)
    assert rules == (found,)
