"""Early marks: nodes are avoided before they are hot, by their expected load against the mean."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pytest
from builders import FAILED, NOON, answer, rule, rule_set, unlimited
from evaluating import alerts_of
from hypothesis import given
from hypothesis import strategies as st
from properties import steady
from snapshots import patched

from dynsched.engine.alerting.alerts import no_alerts
from dynsched.engine.alerting.disputes import Disputes
from dynsched.engine.alerting.restore import with_early_as_marked
from dynsched.engine.decide import decide
from dynsched.engine.load.expected import KnownPods
from dynsched.engine.model import Action, Node, QueryResult
from dynsched.engine.nodes.mark_state import read_evidence
from dynsched.engine.pod_values import BoundPod, RecentPod
from dynsched.engine.snapshot import Decision
from dynsched.rules.keys import CONTROL_PLANE_LABELS
from dynsched.rules.rule_errors import RulesInvalidError
from dynsched.rules.rule_set import RuleSet

EARLY: Mapping[str, Any] = {"early": {}}


class Cluster:
    """Nodes that change by the patches."""

    def __init__(self, rules: RuleSet, nodes: Iterable[Node]) -> None:
        self.rules = rules
        self.nodes = {node.name: node for node in nodes}
        self.alerts = no_alerts()
        self.now = NOON
        self.writes: list[tuple[str, Action, bool]] = []

    def tick(self, result: QueryResult | Mapping[str, float], **options: Any) -> Decision:
        if not isinstance(result, QueryResult):
            result = answer(result, at=self.now)
        decision = decide(self.rules, {"cpu": result}, self.nodes, self.alerts, self.now, **options)
        self.alerts = decision.verdicts.alerts
        for patch in decision.patches:
            self.nodes[patch.node] = patched(self.nodes[patch.node], patch)
            self.writes.append((patch.node, patch.action, patch.early))
        self.now += 10
        return decision

    def marked(self) -> str:
        return "".join(sorted(name for name, node in self.nodes.items() if "status" in node.labels))


def cluster(*, names: str = "abcd", cores: Mapping[str, float] | None = None, **early: Any) -> Any:
    rules = unlimited(rule(early=early, resource="cpu"))
    nodes = [Node(name, allocatable={"cpu": (cores or {}).get(name, 8.0)}) for name in names]
    return Cluster(rules, nodes)


def loads(**values: float) -> Mapping[str, float]:
    return values


def excess(decision: Decision) -> dict[str, float]:
    """How far each node is above the mean, as the rule `cpu-early` has it."""
    found = alerts_of(decision.verdicts.alerts)["cpu-early"]
    return {name: alert.value for name, alert in found.items() if alert.value is not None}


DRAIN = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("values", "nodes", "early", "expected"),
    [
        ({"a": 60, "b": 50, "c": 40, "d": 30}, {}, {}, {"a": 15, "b": 5, "c": -5, "d": -15}),
        # a large node counts more: 20 % of 24 cores and 80 % of 8 are 35 % of 32
        ({"a": 20, "b": 80}, {"a": {"allocatable": {"cpu": 24.0}}}, {}, {"a": -15, "b": 45}),
        # where there is little load the mean counts as more
        ({"a": 12, "b": 0, "c": 0, "d": 0}, {}, {}, {"a": -8, "b": -20, "c": -20, "d": -20}),
        (
            {"a": 60, "b": 0, "c": 0, "d": 0},
            {},
            {"mean_at_least": 0},
            {"a": 45, "b": -15, "c": -15, "d": -15},
        ),
        # what is 5 points above the coolest node is released
        ({"a": 70, "b": 65}, {}, {}, {"a": -8, "b": -13}),
        ({"a": 70, "b": 65}, {}, {"clear_above_mean": -2}, {"a": -2, "b": -7}),
        # while nodes are drained one after the other, all that are left would be above the mean
        (
            {"a": 80, "b": 40, "c": 0},
            {"c": {"taints": (DRAIN,)}},
            {},
            {"a": 20, "b": -20, "c": -20},
        ),
        # those that may not be marked do not count
        (
            {"a": 70, "b": 30, "c": 99},
            {"c": {"labels": {CONTROL_PLANE_LABELS[0]: ""}}},
            {},
            {"a": 20, "b": -20, "c": 49},
        ),
        # each pool has its own
        (
            {"a": 70, "b": 30, "c": 90, "d": 50},
            {name: {"labels": {"pool": "x"}} for name in "ab"},
            {},
            {"a": 20, "b": -20, "c": 20, "d": -20},
        ),
    ],
)
def test_a_node_is_compared_with_the_highest_of_the_lines(values, nodes, early, expected) -> None:
    guard = {"pool_label": "pool", "max_marked": "100%"}
    plain = {"allocatable": {"cpu": 8.0}}
    some = Cluster(
        rule_set(rule(early=early, resource="cpu"), guard=guard),
        [Node(name, **{**plain, **nodes.get(name, {})}) for name in values],
    )
    assert excess(some.tick(values)) == expected


def test_pods_that_the_metric_does_not_show_yet_count() -> None:
    """One wrong load does not lift the mean beyond all others."""
    for cpu, expected in ((4.0, {"a": 25, "b": -25}), (1e6, {"b": 30 - 65})):
        some = cluster(names="ab")
        pods = KnownPods((RecentPod(BoundPod("u", "a", cpu=cpu), 0.0, None),))
        found = excess(some.tick(loads(a=30, b=30), pods=pods))
        assert expected.items() <= found.items()
        assert some.marked() == "a"


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("load", [0.0, 50.0])
@pytest.mark.parametrize("cores", [1e308, math.inf])
def test_a_node_that_claims_more_cores_than_can_be_counted_hides_no_other(load, cores) -> None:
    it = cluster(cores={"a": cores}, mean_at_least=20)
    found = excess(it.tick(loads(a=load, b=70, c=30), pods=KnownPods(running=10)))
    assert found.keys() == {"a", "b", "c"}
    assert found["b"] - found["c"] == 40


def test_what_was_released_in_this_tick_before_counts_under_max_releases() -> None:
    rules = rule_set(rule(**EARLY), guard={"max_marked": "100%", "max_releases": "50%"})
    some = Cluster(rules, [Node(name) for name in "abcdef"])
    some.tick(loads(a=60, b=60, c=60, d=60, e=0, f=0))
    assert some.marked() == "abcd"
    some.tick(loads(a=30, b=30, c=30, d=30, e=99, f=99))
    assert len(some.marked()) == 4  # two of four were released, and two are new
    some.tick(loads(a=30, b=30, c=30, d=30, e=99, f=99), released=2)
    assert len(some.marked()) == 3  # half of six may go, and two went
    some.tick(loads(a=30, b=30, c=30, d=30, e=99, f=99), released=3)
    assert len(some.marked()) == 3


def test_a_replica_that_does_not_write_takes_early_alerts_from_the_marks() -> None:
    """Between the two lines they depend on what was before: after a change of the leader, all marks
    there would change.
    """
    some = cluster()
    decision = some.tick(loads(a=60, b=50, c=40, d=30))
    assert some.marked() == "ab"
    marked = decide(some.rules, {}, some.nodes, no_alerts(), NOON).inventory.marked
    never_saw = decide(
        some.rules,
        {"cpu": answer(loads(a=48, b=48, c=50, d=52))},
        some.nodes,
        decision.verdicts.alerts.without(np.array([[False], [True]])),
        NOON,
    )
    taken_over = with_early_as_marked(some.rules, never_saw.verdicts.alerts, marked)
    firing = [name for name, alert in alerts_of(taken_over)["cpu-early"].items() if alert.firing]
    assert firing == ["a", "b"]


SHIPPED = {"mean_at_least": 60, "clear_above_mean": -12}
GUARD = {"max_marked": "80%", "max_releases": "25%"}


def guarded(nodes: Iterable[Node], **early: Any) -> Cluster:
    """With the shipped lines and limits."""
    rules = rule_set(
        rule(threshold=80, early={**SHIPPED, **early}, resource="cpu"), guard={**GUARD}
    )
    return Cluster(rules, nodes)


@steady(60)
@given(
    st.lists(st.lists(st.floats(0, 100), min_size=10, max_size=10), max_size=3),
    st.floats(0, 75),
    st.lists(st.floats(0, 5), min_size=1, max_size=10),
    st.booleans(),
)
def test_whatever_was_before_nodes_that_are_equal_or_below_the_line_carry_no_early_mark(
    past: list[list[float]], base: float, more: list[float], are_equal: bool
) -> None:
    """Equal within 5 points, with or without an idle one beside them, of which there are few; or of
    any load below the line and its band. New marks need more. Then nothing is written any more.
    """
    names = [f"n{number}" for number in range(len(more))]
    some = guarded(map(Node, names))
    for loads in past:
        some.tick(dict(zip(names, loads, strict=False)))
    loads = [base + each for each in more] if are_equal else [9.5 * each for each in more]
    if len(more) >= 6:
        loads[0] = 5.0
    for _ in range(len(more) + 1):
        some.tick(dict(zip(names, loads, strict=True)))
    assert some.marked() == ""
    assert some.tick(dict(zip(names, loads, strict=True))).patches == ()
    if not past:
        assert some.writes == []


@pytest.mark.parametrize("equal", [9, 11, 40])
def test_the_cap_leaves_no_few_of_many_equal_nodes_to_receive_everything(equal: int) -> None:
    """One idle node makes all others stand out: only some of them could be marked."""
    values = {"idle": 5.0} | {f"n{number}": 61 + number % 5 for number in range(equal)}
    some = guarded(map(Node, values))
    for _ in range(3):
        assert some.tick(values).patches == ()
    some.tick({**values, "n0": 79.5})
    assert [name for name, node in some.nodes.items() if "status" in node.labels] == ["n0"]


GPU = {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}


def test_nodes_behind_a_hard_taint_decide_nothing_about_the_others() -> None:
    idle = {f"gpu{number}": 0.0 for number in range(6)}
    values = {"hot": 95.0, **{f"n{number}": 30.0 + 12 * number for number in range(5)}}
    nodes = [Node(name, taints=(GPU,)) for name in idle]
    some = guarded([*map(Node, values), *nodes], mean_at_least=20)
    decision = some.tick({**values, **idle})
    assert excess(decision)["n0"] == pytest.approx(30 - (95 + 5 * 54) / 6)
    marked = [name for name, node in some.nodes.items() if "status" in node.labels]
    assert marked == ["hot", "n3", "n4"]


def test_early_marks_of_nodes_behind_the_same_taints_are_counted_together() -> None:
    """Six idle nodes that pods cannot use do not let all others be marked."""
    nodes = [*map(Node, "abcdef"), *(Node(f"gpu{number}", taints=(GPU,)) for number in range(6))]
    rules = rule_set(rule(threshold=99, early={}), guard=GUARD)
    some = Cluster(rules, nodes)
    some.tick({**dict.fromkeys("abcd", 90), "e": 50, "f": 50})
    assert some.marked() == "abcd"
    for _ in range(4):  # one mark may go in a tick
        some.tick({**dict.fromkeys("abcd", 85), "e": 98.5, "f": 98.5})
        assert len(some.marked()) <= 4
    assert {"e", "f"} <= set(some.marked())


@pytest.mark.parametrize("at", [45.0, 70.0])
def test_one_huge_node_does_not_make_all_others_stand_out(at: float) -> None:
    values = {"virtual": 1.0, **{f"n{number}": at + number / 2 for number in range(10)}}
    nodes = [Node(name, allocatable={"cpu": 1e4 if name == "virtual" else 8.0}) for name in values]
    some = guarded(nodes)
    some.tick(values)
    assert some.writes == []


def test_more_load_than_a_node_can_have_does_not_lift_the_mean() -> None:
    """Forty idle pods on one node were expected to make it 240 % full."""
    some = cluster(mean_at_least=60)
    some.tick(loads(a=78, b=72, c=30, d=30))
    pods = KnownPods(
        tuple(RecentPod(BoundPod(f"u{n}", "c", cpu=0.48), 0.0, None) for n in range(40))
    )
    some.tick(loads(a=78, b=72, c=30, d=30), pods=pods)
    assert some.marked() == "abc"


def test_it_is_marked_above_its_line_and_released_below_the_other() -> None:
    # The mean counts as 50, whatever the others do.
    some = cluster(above_mean=-4, clear_above_mean=-12, mean_at_least=50)
    steps = [(45.9, ""), (46.1, "a"), (38.1, "a"), (37.9, ""), (45.9, "")]
    for load, expected in steps:
        some.tick(loads(a=load, b=0, c=0, d=0))
        assert some.marked() == expected, load


@steady(100)
@given(
    st.tuples(*[st.floats(0, 79)] * 4),
    st.lists(st.permutations((-3.0, -1.0, 1.0, 3.0)), min_size=1, max_size=20),
)
def test_a_load_that_stands_still_makes_no_mark_come_and_go(base, noise) -> None:
    """With noise of 3 points a node is written once at most, wherever it stands; never are all
    nodes marked.
    """
    some = cluster(mean_at_least=0)
    shipped = {**SHIPPED, "mean_at_least": 0}
    some.rules = unlimited(rule(threshold=99, early=shipped, resource="cpu"))
    some.tick(dict(zip("abcd", base, strict=True)))
    before = len(some.writes)
    for each in noise:
        some.tick({n: b + e for n, b, e in zip("abcd", base, each, strict=True)})
        assert len(some.marked()) < 4
    written = [name for name, *_ in some.writes[before:]]
    assert len(written) == len(set(written))


def test_from_early_to_hot_and_back_the_mark_stays_and_the_evidence_is_written_anew() -> None:
    """A node with an early mark is not hot; one that is hot now and then is in no dispute."""
    some, disputes = cluster(), Disputes()
    seen = []
    for load in (60, 90, 90, 60, 60, 5, 5):
        decision = some.tick(loads(a=load, b=10, c=10, d=10))
        assert disputes.leading(decision.patches, some.nodes, some.now) == {}
        view = decision.views(some.nodes)["a"]
        evidence = read_evidence(some.nodes["a"])
        seen.append((view.verdict.early, view.verdict.hot, evidence and evidence.rules))
        assert evidence is None or evidence.early is view.verdict.early
    early, hot = (True, False, ("cpu-early",)), (False, True, ("cpu", "cpu-early"))
    cool = (False, False, None)
    assert seen == [early, hot, hot, early, early, cool, cool]
    assert some.writes == [
        ("a", Action.MARK, True),
        ("a", Action.MARK, False),
        ("a", Action.REPAIR, False),
        ("a", Action.RELEASE, True),
    ]


def test_after_a_restart_the_mark_is_adopted_by_its_evidence() -> None:
    some = cluster(above_mean=-4, mean_at_least=50)
    some.tick(loads(a=47, b=0, c=0, d=0))
    some.alerts = no_alerts()
    some.tick(loads(a=40, b=0, c=0, d=0))  # between the two lines: it stays
    assert some.marked() == "a"
    assert some.writes == [("a", Action.MARK, True)]
    some.tick(loads(a=30, b=0, c=0, d=0))
    assert some.marked() == ""


@pytest.mark.parametrize("gone", ["failed", "old"])
def test_it_stays_while_nothing_is_known_until_that_is_stale(gone: str) -> None:
    some = cluster()
    values = loads(a=60, b=10, c=10, d=10)
    some.tick(values)
    since = some.now
    for passed in (10, 200, 400):
        some.now = since + passed
        some.tick(FAILED if gone == "failed" else answer(values, at=NOON))
        assert some.marked() == ("" if passed == 400 else "a")


@pytest.mark.parametrize(
    ("rules", "place", "says"),
    [
        ([rule(op="<", early={})], ("rules", 0, "early"), "rises with load"),
        ([rule(early={"above_mean": 1, "clear_above_mean": 2})], None, "released before"),
        ([rule(early={"mean_at_least": 101})], ("rules", 0, "early", "mean_at_least"), ""),
        ([rule(early={"above": 1})], ("rules", 0, "early", "above"), ""),
        ([rule(early={}), rule("cpu-early")], None, "'cpu-early' is the name of the rule"),
    ],
)
def test_a_bad_early(rules: list[Any], place: tuple[Any, ...] | None, says: str) -> None:
    with pytest.raises(RulesInvalidError) as caught:
        rule_set(*rules)
    (error,) = caught.value.errors
    assert says in str(error)
    assert place is None or error.path == place
