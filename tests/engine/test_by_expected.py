"""Rules with `by: expected`: one kind of mark, by the load that the metric does not show yet."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from builders import FAILED, NOON, answer, rule, rule_set, unlimited
from hypothesis import given
from hypothesis import strategies as st
from properties import steady
from snapshots import patched

from dynsched.engine.alerting.alerts import no_alerts
from dynsched.engine.alerting.plan import is_done, plan_prune
from dynsched.engine.decide import decide
from dynsched.engine.load.expected import NO_PODS, KnownPods
from dynsched.engine.model import Action, Alert, Node, QueryResult
from dynsched.engine.pod_values import BoundPod, RecentPod
from dynsched.engine.snapshot import Decision
from dynsched.rules.keys import EVIDENCE_ANNOTATION
from dynsched.rules.rule_errors import RulesInvalidError
from dynsched.rules.rule_set import RuleSet

EXPECTED: Mapping[str, Any] = {"resource": "cpu", "by": "expected", "lag": "1m"}


class Cluster:
    """Nodes of 10 cores, so that a tenth of a core is a point; they change by the patches."""

    def __init__(self, rules: RuleSet, names: str = "abcd") -> None:
        self.rules = rules
        self.nodes = {name: Node(name, allocatable={"cpu": 10.0}) for name in names}
        self.alerts = no_alerts()
        self.now = NOON
        self.writes: list[tuple[str, Action]] = []

    def tick(self, result: QueryResult | Mapping[str, float], **options: Any) -> Decision:
        if not isinstance(result, QueryResult):
            result = answer(result, at=self.now)
        decision = decide(self.rules, {"cpu": result}, self.nodes, self.alerts, self.now, **options)
        self.alerts = decision.verdicts.alerts
        for patch in decision.patches:
            self.nodes[patch.node] = patched(self.nodes[patch.node], patch)
            self.writes.append((patch.node, patch.action))
        self.now += 10
        return decision

    @property
    def marked(self) -> str:
        return "".join(sorted(name for name, node in self.nodes.items() if "status" in node.labels))

    def alert(self, node: str) -> Alert:
        (alert,) = self.alerts.of_nodes([self.alerts.roster.indices[node]])[0]
        return alert


def cluster(**options: Any) -> Cluster:
    return Cluster(unlimited(rule(**{**EXPECTED, **options})))


def bound(node: str, cores: float, number: int = 1) -> KnownPods:
    """So many pods of a workload that uses so many cores, bound to the node just now."""
    pods = [
        RecentPod(BoundPod(f"u{n}", node, workload="shop/web"), 0.0, None) for n in range(number)
    ]
    return KnownPods(pods, running=100, use_of_workloads={"cpu": {"shop/web": cores}})


def test_the_expected_load_marks_and_the_reason_has_both_values() -> None:
    some = cluster(threshold=80, clear_threshold=70)
    decision = some.tick({"a": 74.0, "b": 74.0}, pods=bound("a", 0.24, 5))
    assert [patch.reason for patch in decision.patches] == [
        "cpu 74 measured, 86 expected with 5 new pods > 80"
    ]
    assert some.marked == "a"
    assert (some.alert("a").value, some.alert("a").compared) == (74.0, 86.0)
    fired = json.loads(some.nodes["a"].annotations[EVIDENCE_ANNOTATION])["rules"]
    assert [(each["value"], each["threshold"]) for each in fired] == [(86.0, 80.0)]
    some.tick({"a": 74.0, "b": 74.0}, pods=NO_PODS)  # the dead band holds the mark
    assert some.marked == "a"
    some.tick({"a": 69.0, "b": 74.0}, pods=NO_PODS)
    assert some.writes == [("a", Action.MARK), ("a", Action.RELEASE)]


def test_pods_that_end_count_too_and_without_pods_the_measured_load_is_compared() -> None:
    some = cluster(threshold=80)
    gone = RecentPod(BoundPod("u", "a", workload="shop/web", name="shop/web-1"), None, 0.0)
    use = {"cpu": {"shop/web-1": 0.5}}
    pods = KnownPods([gone], running=100, use_of_pods=use)
    some.tick({"a": 84.0, "b": 20.0}, pods=pods)
    # It is hot by what is measured: only what was measured of the pod itself is taken off.
    assert (some.marked, some.alert("a").compared) == ("", 79.0)
    some.tick({"a": 84.0, "b": 20.0})
    assert some.marked == "a"


@pytest.mark.parametrize(
    ("options", "measured", "expected"),
    [
        ({"threshold": 0.8}, 0.5, 0.6),
        ({"threshold": 300, "full_at": 400}, 200.0, 240.0),
        ({"threshold": 800, "full_at": 100}, 700.0, 700.0),  # five times full: a load has no more
    ],
)
def test_the_expected_value_is_in_the_unit_of_the_rule(options, measured, expected) -> None:
    some = cluster(**options)
    some.tick({"a": measured, "b": measured}, pods=bound("a", 1.0))
    assert some.alert("a").compared == pytest.approx(expected)
    assert some.alert("b").compared == measured


@steady(100)
@given(
    st.lists(st.floats(0, 100), min_size=1, max_size=12),
    st.sampled_from([{}, {"for": "20s"}, {"keep_firing_for": "20s"}, {"clear_threshold": 70}]),
)
def test_the_state_machine_is_that_of_the_measured_value(loads, options) -> None:
    """A rule by the expected load of a steady use does what one by the sum would do."""
    measured, expected = Cluster(unlimited(rule(**options))), cluster(**options)
    for load in loads:
        measured.tick({"a": load + 5.0})
        expected.tick({"a": load}, pods=bound("a", 0.5))
        assert measured.marked == expected.marked


@pytest.mark.parametrize("gone", ["failed", "old"])
def test_it_stays_while_nothing_is_known_until_that_is_stale(gone: str) -> None:
    some = cluster()
    some.tick({"a": 76.0}, pods=bound("a", 0.5))
    since = some.now
    for passed in (10, 200, 400):
        some.now = since + passed
        result = FAILED if gone == "failed" else answer({"a": 76.0}, at=NOON)
        some.tick(result, pods=bound("a", 0.5))
        assert some.marked == ("" if passed == 400 else "a")


def test_a_mark_that_an_older_version_put_early_is_adopted_and_released() -> None:
    some = Cluster(rule_set(rule(clear_threshold=70)))
    rules = [{"rule": "cpu-early", "value": 4.1, "threshold": 0.0}]
    record = {"label": "status=presure", "taint": None, "rules": rules, "early": True}
    some.nodes["a"] = Node(
        "a",
        labels={"status": "presure"},
        annotations={EVIDENCE_ANNOTATION: json.dumps(record)},
        owned=frozenset({"status"}),
    )
    (pruned,) = plan_prune(some.nodes.values(), some.rules.mark)
    assert is_done(pruned, Node("a"))
    some.tick(FAILED)
    assert (some.marked, some.alert("a").adopted) == ("a", True)
    some.tick({"a": 65.0})
    assert some.writes == [("a", Action.RELEASE)]
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
def test_where_there_is_no_expected_load_it_is_an_error(options: Any, says: str) -> None:
    with pytest.raises(RulesInvalidError) as caught:
        rule_set(rule(**{**EXPECTED, **options}))
    (error,) = caught.value.errors
    assert error.path == ("rules", 0, "by")
    assert says in str(error)
