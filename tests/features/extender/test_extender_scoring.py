"""Scores are whole numbers from 0 to 10: unknown nodes in the middle, hot nodes last, no herding.
Also the nodes that are refused because of their load.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from builders import NOON, answer, rule, rule_set
from hypothesis import given
from hypothesis import strategies as st
from properties import steady
from scenes import Answer, Scene

from dynsched.core.evaluate import evaluate
from dynsched.core.load.expected import ExpectedLoad, KnownPods
from dynsched.core.load.pods import BoundPod, PodChange, PodUse, RecentPod
from dynsched.core.nodes import Node
from dynsched.features.extender.scoring import (
    BEST,
    MIN_COOL,
    NEUTRAL,
    UNKNOWN,
    ProfileLoads,
    break_ties,
    load_refusals,
    scores_by_load,
)
from dynsched.features.placing import FIRING, TENTHS, placing_loads, weighted_profile
from dynsched.rules.sections import Method

METHODS: tuple[Method, ...] = ("linear", "relative")
ROOM = {"cpu": 8.0, "memory": 32 * 2.0**30}


def tenths(values: Sequence[float | None]) -> list[int]:
    """Loads in tenths of a percent. ``values`` are in percent, plus 1000 on a node on which a rule
    fires; None is unknown.
    """
    return [UNKNOWN if value is None else round(value * TENTHS) for value in values]


@pytest.mark.parametrize(
    ("method", "values", "expected"),
    [
        ("linear", [0, 4, 5, 23, 50, 88, 94, 100, 140], [10, 10, 10, 8, 5, 1, 1, 0, 0]),
        ("relative", [20, 60, 100], [10, 5, 0]),
        ("linear", [], []),
        ("linear", [None, 10, 20, 90, None], [8, 9, 8, 1, 8]),  # unknown: the candidates' median
        ("linear", [None, 10, 90], [1, 9, 1]),
        ("linear", [20, 30, 45, 1095], [10, 9, 8, 0]),  # a rule fires on the last node
        ("linear", [95, 93, 97, 400, 1000], [10, 10, 10, MIN_COOL, 0]),
        ("relative", [1090, 1082, 1099], [5, 10, 0]),  # a rule fires on all nodes
    ],
)
def test_the_scores_of_each_method(
    method: Method, values: list[float | None], expected: list[int]
) -> None:
    loads = tenths(values)
    scores = scores_by_load(loads, method)
    assert [scores[load] for load in loads] == expected


@pytest.mark.parametrize(
    ("values", "first", "expected"),
    [
        ([None, 20.0, None, 21.0], 1, [7, 8, 7, 7]),
        ([110.0, 100.0], 1, [0, 1]),
        ([100.0, 100.0], None, [0, 0]),
        ([50.0, 50.0, 60.0], None, [5, 5, 4]),  # the scheduler decides between equal nodes
        ([20.0 + n / 10 for n in range(16)], 0, [8] + [7] * 15),
        ([20.0 + n / 10 for n in range(17)], None, [8] * 17),  # too many are equally good
        ([20.0] + [30.0] * 999, 0, [8] + [7] * 999),
        ([20.0] + [30.0] * 1000, None, [8] + [7] * 1000),
        ([], None, []),
    ],
)
def test_among_few_best_nodes_the_least_loaded_gets_the_best_score_alone(
    values, first, expected
) -> None:
    loads = tenths(values)
    scores = scores_by_load(loads, "linear")
    assert break_ties(scores, loads) == first
    assert [scores[load] for load in loads] == expected


COOL = st.integers(0, 7500) | st.integers(200, 215)
SOME = st.just(UNKNOWN) | COOL | COOL.map(lambda load: load + FIRING)
LOADS = st.lists(SOME, min_size=1, max_size=30) | st.lists(st.integers(0, 2 * FIRING))


@steady(200)
@given(st.sampled_from(METHODS), LOADS)
def test_invariants_of_scores(method, loads) -> None:
    """Scores are from 0 to 10, so that none outweighs the scheduler's plugins. More load never gets
    a higher score. If rules fire on some of the nodes, these score 0, the best other node scores
    10, and the others at least MIN_COOL. Unknown nodes get the score of a known one. Breaking ties
    changes only the best score, by one.
    """
    graded = scores_by_load(loads, method)
    settled = dict(graded)
    first = break_ties(settled, loads)
    known = sorted(set(loads) - {UNKNOWN})
    cool = [load for load in known if load < FIRING]
    hot = known[len(cool) :]
    for scores in (graded, settled):
        assert all(0 <= score <= BEST for score in scores.values())
        for kind in (cool, hot):
            in_order = [scores[load] for load in kind]
            assert in_order == sorted(in_order, reverse=True)
        if cool and hot:
            assert {scores[load] for load in hot} == {0}
            assert (scores[cool[0]], scores[cool[-1]] >= MIN_COOL) == (BEST, True)
    if UNKNOWN in loads:
        assert graded[UNKNOWN] in ([graded[load] for load in known] or [NEUTRAL])
    if first is not None:
        assert loads[first] != UNKNOWN
        assert settled[loads[first]] == max(settled.values())
    most = max(graded.values())
    assert all(abs(settled[load] - graded[load]) <= (graded[load] == most) for load in loads)


@given(
    st.sampled_from([">", ">=", "<", "<="]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(0, 10**9),
)
def test_no_load_reaches_that_of_a_node_on_which_a_rule_fires(
    op: str, threshold: float, value: float, pods: int
) -> None:
    """Neither through the measured value, nor through pods bound before or after the last tick."""
    rules = rule_set(rule(op=op, threshold=threshold), extender={})
    many = BoundPod("u", "a", 1e9 * pods, 1e18 * pods)
    nodes = {"a": Node("a", allocatable={"cpu": 1.0, "memory": 1.0})}
    known = KnownPods(recent=(RecentPod(many, 0.0, None),))
    found = evaluate(rules, {"cpu": answer({"a": value})}, nodes, None, NOON, pods=known)
    least, by_cpu = FIRING * found.pressures["a"].hot, weighted_profile(rules, "")
    assert least <= placing_loads(found, by_cpu).loads["a"] < least + FIRING
    loads = ProfileLoads(found, by_cpu)
    loads.add([PodChange(many, 1)] * 3, nodes)
    assert least <= loads.of(["a"])[0] < least + FIRING


USE = PodUse("cpu", 0.4, {"d/web": 2.0})
MEASURED = replace(USE, of_pod={"d/other-1": 1.0})
KNOWN = [BoundPod("1", "a", workload="d/web"), BoundPod("2", "a")]
UNKNOWN_USE = [BoundPod("u", "a", 4.0), *(BoundPod(uid, "a", 0.1) for uid in "123")]


@pytest.mark.parametrize(
    ("load", "pods", "options", "expected"),
    [
        (0, UNKNOWN_USE, {"sign": 1}, 500 + 3 * 40),
        (700, UNKNOWN_USE, {"is_recent": False}, 700),
        # pods of known use, bound or ended
        (100, KNOWN, {"use": USE, "sign": 1}, 100 + 250 + 50),
        (500, KNOWN, {"use": USE}, 500 - 250 - 50),
        (500, KNOWN, {"use": USE, "is_recent": False}, 500 - 250 - 50),
        (100, KNOWN, {"use": USE}, 0),
        # with a margin, if other pods are measured themselves
        (500, KNOWN, {"use": MEASURED, "sign": 1}, 500 + 375 + 75),
        (500, KNOWN, {"use": MEASURED}, 500 - 375 - 75),
        (500, KNOWN, {"use": MEASURED, "is_recent": False}, 500 - 250 - 50),
        # a node on which a rule fires does not look like one on which none does
        (300, KNOWN * 9, {"use": USE, "threshold": 20}, FIRING),
    ],
)
def test_pods_that_were_bound_or_ended_since_the_tick_change_a_load(
    load: int, pods: Sequence[BoundPod], options: Mapping[str, Any], expected: int
) -> None:
    changed = {"use": PodUse("cpu"), "sign": -1, "is_recent": True, "threshold": 80}
    use, sign, is_recent, threshold = {**changed, **options}.values()
    rules = rule_set(rule(resource="cpu", threshold=threshold))
    nodes = {name: Node(name, allocatable=ROOM) for name in "abcdefghij"}
    values = dict.fromkeys(nodes, 0.0) | {"a": load / TENTHS}
    found = evaluate(rules, {"cpu": answer(values)}, nodes, None, NOON)
    found = replace(found, expected={"cpu": ExpectedLoad(use)})
    loads = ProfileLoads(found, weighted_profile(rules, ""))
    loads.add([PodChange(pod, sign, is_recent=is_recent) for pod in pods], nodes)
    assert loads.of(["a"]) == [expected]


def test_nodes_below_the_line_of_a_profile_count_as_at_the_line() -> None:
    """This includes nodes with new pods, until these pods take them above the line."""
    rules = rule_set(
        rule(resource="cpu"),
        rule("mem", resource="memory"),
        extender={
            "profiles": {"default": {"score": {"cpu": 1, "mem": 1}, "equal_below": 50}},
        },
    )
    nodes = {name: Node(name, allocatable=ROOM) for name in "abcde"}
    cpu = {"a": 10, "b": 10, "c": 45, "d": 20, "e": 70}
    memory = {"a": 10, "b": 45, "c": 45, "d": 74, "e": 60}
    answers = {"cpu": answer(cpu), "mem": answer(memory)}
    loads = ProfileLoads(
        evaluate(rules, answers, nodes, None, NOON), weighted_profile(rules, "default")
    )
    assert loads.of("abcde") == [500, 500, 500, 620, 650]
    loads.add([PodChange(BoundPod(node, node, 0.8, 3.2 * 2.0**30), 1) for node in "abcd"], nodes)
    assert loads.of("abcd") == [500, 500, 550, 720]


HOT, FAILED = {"a": 99.0}, "connection refused"


@pytest.mark.parametrize(
    ("options", "steps", "is_refused"),
    [
        ({}, [(0, {"a": 91.24, "b": 80, "c": 12})], True),
        ({"for_": "30s"}, [(0, HOT)], False),
        ({"for_": "30s"}, [(0, HOT), (30, HOT)], True),
        ({"keep_firing_for": "5m"}, [(0, HOT), (10, {"a": 50})], True),
        # a node without data passes; a refused one passes only after stale_after without data
        ({}, [(0, FAILED)], False),
        ({}, [(0, {"a": math.nan})], False),
        ({}, [(0, HOT), (60, FAILED)], True),
        ({}, [(0, HOT), (301, FAILED)], False),
        ({"on_stale": "hold"}, [(0, HOT), (301, FAILED)], False),
    ],
)
@pytest.mark.parametrize("rejects", [True, False])
def test_a_node_is_refused_while_a_rule_in_reject_fires(
    options: Mapping[str, Any],
    steps: Sequence[tuple[float, Answer]],
    is_refused: bool,
    rejects: bool,
) -> None:
    rules = {"rules": [rule("mem", **options)], "extender": {"reject": ["mem"] if rejects else []}}
    scene = Scene(rules, map(Node, "abc"))
    ticks = [scene.tick(NOON + seconds, mem=found) for seconds, found in steps]
    expected = {"a": "node load high: mem > 80"} if rejects and is_refused else {}
    assert load_refusals(ticks[-1].evaluation, ticks[-1].taken_at) == expected
