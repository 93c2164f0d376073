"""Rules with `by: expected`, which mark nodes according to load that no metric shows yet."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from builders import FAILED, NOON, rule, rule_set, unlimited
from evaluating import Cluster
from hypothesis import given
from hypothesis import strategies as st
from properties import steady

from dynsched.core.load.expected import KnownPods
from dynsched.core.load.pods import BoundPod, RecentPod
from dynsched.core.marks import is_done, plan_prune
from dynsched.core.nodes import Node
from dynsched.core.samples import QueryResult, Sample
from dynsched.rules.keys import EVIDENCE_ANNOTATION
from dynsched.rules.rule_errors import RulesInvalidError

EXPECTED: Mapping[str, Any] = {"resource": "cpu", "by": "expected", "lag": "1m"}


def cluster(**options: Any) -> Cluster:
    """Nodes of 10 cores, so that 0.1 cores are 1 %."""
    nodes = [Node(name, allocatable={"cpu": 10.0}) for name in "abcd"]
    return Cluster(unlimited(rule(**options)), nodes)


def bound(node: str, cores: float, number: int = 1) -> KnownPods:
    """``number`` pods that were just bound to the node, and use ``cores`` each."""
    pods = [
        RecentPod(BoundPod(f"u{n}", node, workload="shop/web"), 0.0, None) for n in range(number)
    ]
    return KnownPods(pods, running=100, use_of_workloads={"cpu": {"shop/web": cores}})


def test_the_expected_load_marks_and_the_reason_has_both_values() -> None:
    some = cluster(**EXPECTED, threshold=80, clear_threshold=70)
    found = some.tick(cpu={"a": 74.0, "b": 74.0}, pods=bound("a", 0.24, 5))
    assert [patch.reason for patch in found.patches] == [
        "cpu 74 measured, 86 expected with 5 new pods > 80"
    ]
    assert (some.alert("a").value, some.alert("a").compared) == (74.0, 86.0)
    fired = json.loads(some.nodes["a"].annotations[EVIDENCE_ANNOTATION])["rules"]
    assert [(each["value"], each["threshold"]) for each in fired] == [(86.0, 80.0)]
    some.tick(10, cpu={"a": 74.0, "b": 74.0})  # the dead band keeps the mark
    assert some.marked == "a"
    some.tick(20, cpu={"a": 69.0, "b": 74.0})
    assert some.writes == ["mark a", "release a"]


def test_ended_pods_count_too_and_without_known_pods_the_measured_load_is_compared() -> None:
    some = cluster(**EXPECTED)
    gone = RecentPod(BoundPod("u", "a", workload="shop/web", name="shop/web-1"), None, 0.0)
    pods = KnownPods([gone], running=100, use_of_pods={"cpu": {"shop/web-1": 0.5}})
    some.tick(cpu={"a": 84.0, "b": 20.0}, pods=pods)
    # Also on a hot node, ended pods may take the load down to 10 % below the mean.
    assert (some.marked, some.alert("a").compared) == ("", 79.0)
    some.tick(10, cpu={"a": 84.0, "b": 20.0})
    assert some.marked == "a"


def test_a_node_whose_expected_load_dropped_accepts_pods_before_its_alert_clears() -> None:
    some = cluster(resource="cpu", lag="1m", keep_firing_for="10m")
    some.rules = unlimited(rule(resource="cpu", lag="1m", keep_firing_for="10m"), extender={})
    gone = [RecentPod(BoundPod("u", "a", workload="w"), None, 0.0)]
    pods = KnownPods(gone, running=100, use_of_workloads={"cpu": {"w": 3.0}})
    hot = {"a": 85.0, "b": 85.0, "c": 20.0}
    some.tick(cpu=hot)
    found = some.tick(10, cpu=hot, pods=pods)
    (of,) = some.rules.rules
    assert found.hot == {"a", "b"}
    assert {name for name in some.nodes if found.fires_above_threshold(of, name)} == {"b"}
    unknown = some.tick(20, cpu=FAILED)
    assert {name for name in some.nodes if unknown.fires_above_threshold(of, name)} == {"a", "b"}


def test_readings_that_are_invalid_or_stale_have_no_expected_load() -> None:
    some = cluster(**EXPECTED)
    read = {"a": (9999.0, NOON), "b": (50.0, NOON - 301), "c": (50.0, NOON)}
    samples = tuple(Sample({"node": name}, *found) for name, found in read.items())
    pods = [RecentPod(BoundPod(f"on-{name}", name), 0.0, None) for name in read]
    found = some.tick(cpu=QueryResult(samples), pods=KnownPods(pods))
    assert found.expected["cpu"].added.keys() == {"c"}


@pytest.mark.parametrize(
    ("by", "others", "rules"),
    [
        ("measured", {}, set()),
        ("expected", {}, {"cpu"}),
        ("measured", {"extender": {}}, {"cpu", "memory"}),
        ("measured", {"order": {"score": {"cpu": 1}}}, {"cpu"}),
    ],
)
def test_the_expected_load_is_computed_only_for_rules_that_use_it(by, others, rules) -> None:
    some = cluster()
    some.rules = unlimited(rule("cpu", resource="cpu", by=by), rule("memory"), **others)
    values = {"a": 50.0}
    found = some.tick(cpu=values, memory=values, pods=bound("a", 0.1))
    assert found.expected.keys() == rules


@steady(100)
@given(
    st.lists(st.floats(0, 100), min_size=1, max_size=12),
    st.sampled_from([{}, {"for": "20s"}, {"keep_firing_for": "20s"}, {"clear_threshold": 70}]),
)
def test_a_rule_by_expected_load_has_the_states_of_one_by_measured_load(loads, options) -> None:
    """If pods' use is constant, a rule with `by: expected` acts like one that measures the sum."""
    measured, expected = cluster(**options), cluster(**EXPECTED, **options)
    for number, load in enumerate(loads):
        measured.tick(10 * number, cpu={"a": load + 5.0})
        expected.tick(10 * number, cpu={"a": load}, pods=bound("a", 0.5))
    assert measured.writes == expected.writes


def test_an_early_mark_of_an_older_version_is_adopted_and_released() -> None:
    rules = [{"rule": "cpu-early", "value": 4.1, "threshold": 0.0}]
    record = {"label": "status=presure", "taint": None, "rules": rules, "early": True}
    marked = Node(
        "a",
        labels={"status": "presure"},
        annotations={EVIDENCE_ANNOTATION: json.dumps(record)},
    )
    some = Cluster(unlimited(rule(clear_threshold=70)), [marked])
    (pruned,) = plan_prune([marked], some.rules.mark)
    assert is_done(pruned, Node("a"))
    some.tick(cpu=FAILED)
    assert (some.marked, some.alert("a").adopted) == ("a", True)
    some.tick(10, cpu={"a": 65.0})
    assert some.writes == ["release a"]
    assert EVIDENCE_ANNOTATION not in some.nodes["a"].annotations


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"op": "<"}, "rises with load"),
        ({"op": "<="}, "rises with load"),
        ({"threshold": 500}, "full_at"),
        ({"threshold": 0}, "full_at"),
        ({"by": "guess"}, "measured"),
    ],
)
def test_by_expected_is_an_error_if_there_is_no_expected_load(options: Any, says: str) -> None:
    with pytest.raises(RulesInvalidError) as caught:
        rule_set(rule(**{**EXPECTED, **options}))
    (error,) = caught.value.errors
    assert error.path == ("rules", 0, "by")
    assert says in str(error)
