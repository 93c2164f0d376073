"""Scores: whole numbers 0..10, unknown in the middle, hot last, and no herd."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from builders import FAILED, NOON, Body, answer, node, rule, rule_set
from hypothesis import given
from hypothesis import strategies as st
from properties import steady

from dynsched.engine.alerting.alerts import no_alerts
from dynsched.engine.decide import decide
from dynsched.engine.load.expected import ExpectedLoad, KnownPods
from dynsched.engine.loads import rule_load
from dynsched.engine.model import Node, QueryResult
from dynsched.engine.placing.score import (
    BEST,
    FIRING,
    MIN_COOL,
    NEUTRAL,
    TENTHS,
    UNKNOWN,
    FreshPods,
    Loads,
    Method,
    Scores,
    break_ties,
    node_loads,
    scores_by_load,
    weighted_profile,
)
from dynsched.engine.pod_values import Added, BoundPod, PodChange, PodUse, RecentPod
from dynsched.rules.rule_set import RuleSet

METHODS: tuple[Method, ...] = ("linear", "relative")
ROOM = {"cpu": 8.0, "memory": 32 * 2.0**30}


def loads_of(rules: RuleSet, scheduler: str = "", **answers: QueryResult) -> dict[str, int]:
    """After one tick; the nodes are those of the answers and `other`."""
    samples = [sample for found in answers.values() for sample in found.samples]
    nodes = {name: node(name) for name in ("other", *(one.labels["node"] for one in samples))}
    views = decide(rules, answers, nodes, no_alerts(), NOON).views(nodes)
    return node_loads(views, weighted_profile(rules, scheduler))


def points_of(values: Sequence[float | None]) -> list[int | None]:
    """Loads as the core has them, of points; of a node on which a rule fires, plus 1000."""
    return [None if value is None else round(value * TENTHS) for value in values]


def scores(loads: Sequence[int | None], method: Method) -> list[int]:
    """One score for each candidate, in their order."""
    found = array_of(loads)
    return scores_by_load(found, method)[found].tolist()


def array_of(loads: Sequence[int | None]) -> Loads:
    return np.array([UNKNOWN if load is None else load for load in loads], np.int16)


def by_load(scores: Scores, loads: Sequence[int | None]) -> dict[int | None, int]:
    """The scores of the loads that occur."""
    return {load: int(scores[UNKNOWN if load is None else load]) for load in loads}


@pytest.mark.parametrize(
    ("method", "values", "expected"),
    [
        ("linear", [0, 4, 5, 23, 50, 88, 94, 100, 140], [10, 10, 10, 8, 5, 1, 1, 0, 0]),
        ("relative", [20, 60, 100], [10, 5, 0]),
        ("least", [0, 10, 90], [10, 9, 0]),  # of an older file: as `relative`
        ("linear", [], []),
        ("linear", [None, 10, 20, 90, None], [8, 9, 8, 1, 8]),  # the candidates' median
        ("linear", [None, 10, 90], [1, 9, 1]),
        ("linear", [20, 30, 45, 1095], [10, 9, 8, 0]),  # beside a firing one, as far apart
        ("linear", [95, 93, 97, 400, 1000], [10, 10, 10, MIN_COOL, 0]),
        ("relative", [1090, 1082, 1099], [5, 10, 0]),  # all fire
    ],
)
def test_a_method(method: Method, values: list[float | None], expected: list[int]) -> None:
    assert scores(points_of(values), method) == expected


@pytest.mark.parametrize(
    ("values", "first", "expected"),
    [
        ([None, 20.0, None, 21.0], 1, [7, 8, 7, 7]),
        ([110.0, 100.0], 1, [0, 1]),
        ([100.0, 100.0], 0, [0, 0]),
        ([20.0 + n / 10 for n in range(16)], 0, [8] + [7] * 15),
        ([20.0 + n / 10 for n in range(17)], None, [8] * 17),  # many are as good
        ([20.0] + [30.0] * 999, 0, [8] + [7] * 999),
        ([20.0] + [30.0] * 1000, None, [8] + [7] * 1000),
        ([], None, []),
    ],
)
def test_among_few_the_least_loaded_is_put_first(values, first, expected) -> None:
    loads = array_of(points_of(values))
    found = scores_by_load(loads, "linear")
    assert break_ties(found, loads) == first
    assert found[loads].tolist() == expected


COOL = st.integers(0, 7500) | st.integers(200, 215)
LOADS = st.lists(st.none() | COOL | COOL.map(lambda load: load + FIRING), min_size=1, max_size=30)


@steady(200)
@given(st.sampled_from(METHODS), LOADS | st.lists(st.none() | st.integers(0, 2 * FIRING)))
def test_what_holds_for_the_scores_of_any_candidates(method, loads) -> None:
    """None outweighs the scheduler's plugins (below 0, or times 10); more load never scores more;
    beside firing nodes, which score 0, the best other one scores 10, and none 0; of unknown ones,
    all have a score that a known one has; settling changes the best score alone, by one.
    """
    found = scores_by_load(array_of(loads), method)
    graded = by_load(found, loads)
    first = break_ties(found, array_of(loads))
    settled = by_load(found, loads)
    known = sorted(load for load in set(loads) if load is not None)
    cool = [load for load in known if load < FIRING]
    hot = known[len(cool) :]
    for given_scores in (graded, settled):
        assert all(0 <= score <= BEST for score in given_scores.values())
        for kind in (cool, hot):
            in_order = [given_scores[load] for load in kind]
            assert in_order == sorted(in_order, reverse=True)
        if cool and hot:
            assert {given_scores[load] for load in hot} == {0}
            assert (given_scores[cool[0]], given_scores[cool[-1]] >= MIN_COOL) == (BEST, True)
    if None in loads:
        assert graded[None] in ([graded[load] for load in known] or [NEUTRAL])
    if first is not None:
        assert loads[first] is not None
        assert settled[loads[first]] == max(settled.values())
    for load in settled:
        assert abs(settled[load] - graded[load]) <= (graded[load] == max(graded.values()))


@pytest.mark.parametrize(
    ("options", "value", "expected"),
    [
        ({"threshold": 80}, 23.0, 23.0),
        ({"threshold": 80}, -5.0, 0.0),
        ({"threshold": 0.8}, 0.23, 23.0),
        ({"threshold": 16}, 8.0, 8.0),
        ({"threshold": 16, "full_at": 20}, 8.0, 40.0),
        ({"threshold": 400}, 250.0, 50.0),
        ({"threshold": 80}, 1e308, 500.0),
        ({"threshold": 1024, "op": "<"}, 1024.0, 80.0),
        ({"threshold": 1024, "op": "<"}, 4096.0, 50.0),
        ({"threshold": 1024, "op": "<"}, 0.0, 100.0),
        ({"threshold": 1024, "op": "<"}, -7.0, 100.0),
        ({"threshold": 0, "op": "<"}, 0.0, 100.0),
        ({"source": "metrics-server", "resource": "cpu", "expr": None, "threshold": 0.5}, 8.0, 8.0),
    ],
)
def test_a_value_in_points(options: dict[str, Any], value: float, expected: float) -> None:
    (found,) = rule_set(rule(**options)).rules
    assert rule_load(found, value) == pytest.approx(expected)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_cr_and_s0_nan_is_not_zero(value: float) -> None:
    """S0 stored NaN as 0 %, the best score; CR still does."""
    (found,) = rule_set(rule()).rules
    assert rule_load(found, value) is None
    known = loads_of(rule_set(rule()), cpu=answer({"a": value, "b": 20.0}))
    assert known == {"b": 200}


def profile(**score: float) -> Body:
    return {"profiles": {"default": {"score": score}}}


TWO = {
    "default": {"score": {"cpu": 1}},
    "mem-real-usage-scheduler": {"score": {"mem": 1}, "method": "relative"},
}
A20, A60 = answer({"a": 20}), answer({"a": 60})


@pytest.mark.parametrize(
    ("extender", "answers", "loads", "scheduler"),
    [
        (profile(cpu=3, mem=1), {"cpu": A20, "mem": A60}, {"a": 300}, ""),
        (profile(cpu=1, mem=0), {"cpu": A20, "mem": answer({"a": 99})}, {"a": 200}, ""),
        (profile(cpu=0), {"cpu": A20, "mem": FAILED}, {}, ""),
        # without profiles all rules count the same
        ({}, {"cpu": A20, "mem": A60}, {"a": 400}, ""),
        ({}, {"cpu": FAILED, "mem": A60}, {"a": 600}, ""),
        ({}, {"cpu": FAILED, "mem": FAILED}, {}, ""),
        # where one rule of two is missing, its median stands in
        (
            {},
            {"cpu": answer({"a": 0, "b": 50, "c": 50}), "mem": answer({"b": 40, "c": 60})},
            {"a": 250, "b": 450, "c": 550},
            "",
        ),
        # an old reading does not count
        (profile(cpu=1), {"cpu": answer({"a": 20}, at=NOON - 299), "mem": FAILED}, {"a": 200}, ""),
        (profile(cpu=1), {"cpu": answer({"a": 20}, at=NOON - 301), "mem": FAILED}, {}, ""),
        # profiles go by the pod's scheduler
        ({"profiles": TWO}, {"cpu": A20, "mem": A60}, {"a": 600}, "mem-real-usage-scheduler"),
        ({"profiles": TWO}, {"cpu": A20, "mem": A60}, {"a": 200}, "default-scheduler"),
    ],
)
def test_the_load_of_a_node(extender, answers, loads, scheduler) -> None:
    rules = rule_set(rule(), rule("mem"), extender=extender)
    assert loads_of(rules, scheduler, **answers) == loads
    is_relative = scheduler == "mem-real-usage-scheduler"
    assert weighted_profile(rules, scheduler).method == ("relative" if is_relative else "linear")


@given(
    st.sampled_from([">", ">=", "<", "<="]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(0, 10**9),
)
def test_no_load_is_taken_for_that_of_a_node_on_which_a_rule_fires(
    op: str, threshold: float, value: float, pods: int
) -> None:
    """Neither by what it measures, nor by the pods before the last tick, nor by those since."""
    rules = rule_set(rule(op=op, threshold=threshold))
    room = {"cpu": 1.0, "memory": 1.0}
    many = BoundPod("u", "a", 1e9 * pods, 1e18 * pods)
    nodes = {"a": Node("a", allocatable=room)}
    known = KnownPods(recent=(RecentPod(many, 0.0, None),))
    decision = decide(rules, {"cpu": answer({"a": value})}, nodes, no_alerts(), NOON, pods=known)
    views = decision.views(nodes)
    sign = FIRING * views["a"].verdict.hot
    loads = node_loads(views, weighted_profile(rules, ""))
    assert sign <= loads["a"] < sign + FIRING
    assert sign <= with_fresh(rules, loads["a"], [many] * 3, room) < sign + FIRING


def test_s0_a_95_percent_node_that_fell_silent_stays_behind() -> None:
    """An unknown node outranked it: an alert that is held still counts."""
    rules = rule_set(rule())
    nodes = {name: node(name) for name in ("hot", "cool")}
    first = decide(rules, {"cpu": answer({"hot": 95, "cool": 20})}, nodes, no_alerts(), NOON)
    gone = answer({"cool": 20}, at=NOON + 10)
    second = decide(rules, {"cpu": gone}, nodes, first.verdicts.alerts, NOON + 10)
    loads = node_loads(second.views(nodes), weighted_profile(rules, ""))
    assert scores([loads.get("hot"), loads.get("cool")], "linear") == [0, 10]


@pytest.mark.parametrize(
    ("value", "ended", "load"), [(95, 10, FIRING + 850), (95, 20, 750), (30, 0, 300)]
)
def test_a_node_that_has_cooled_counts_by_its_load_while_its_alert_fires(
    value: float, ended: float, load: int
) -> None:
    """Late metrics and `keep_firing_for` hold it for minutes; the others would get all pods."""
    rules = rule_set(rule(threshold=80, keep_firing_for="2m"))
    nodes, by_cpu = {"a": node("a"), "b": node("b")}, weighted_profile(rules, "")
    hot = decide(rules, {"cpu": answer({"a": 95, "b": 20})}, nodes, no_alerts(), NOON)
    assert node_loads(hot.views(nodes), by_cpu) == {"a": FIRING + 950, "b": 200}
    later = {"cpu": answer({"a": value, "b": 40}, at=NOON + 10)}
    decision = decide(rules, later, nodes, hot.verdicts.alerts, NOON + 10)
    expected = {"cpu": ExpectedLoad(PodUse(), {"a": Added(0.0, ended), "b": Added(0, 0, 12)})}
    views = replace(decision, expected=expected).views(nodes)
    assert views["a"].verdict.hot
    assert node_loads(views, by_cpu) == {"a": load, "b": 400 + 120}
    assert views.expected_loads(0).tolist()[1] == 40  # by which marks go
    assert views.not_cooled == ({"a"} if load > FIRING else set())


@pytest.mark.parametrize(
    ("sizes", "use", "more"),
    [
        ((8.0, 8.0, 8.0), {"mean": 0.5}, (0, 0, 0)),
        ((32.0, 8.0, None), {"mean": 0.5}, (0, 1.5 * (6.25 - 1.5625), 0)),  # with the margin
        ((8.0, 8.0, 1e4), {"mean": 0.5}, (1.5 * (6.25 - 1.5625),) * 2 + (0,)),  # as of 32 cores
        ((8.0, 0.0, 0.25), {"mean": 0.5}, (0, 100 - 75, 100 - 75)),
        ((None, None, None), {"mean": 0.5}, (0, 0, 0)),
        ((32.0, 8.0, 8.0), {"of_workload": {"d/web": 0.5}}, (0, 0, 0)),
        ((32.0, 8.0, 8.0), {"mean": 6.25, "resource": None}, (0, 0, 0)),  # in points
    ],
)
def test_the_next_pod_leaves_a_larger_node_cooler(
    sizes: Sequence[float | None], use: Mapping[str, Any], more: Sequence[float]
) -> None:
    rules = rule_set(rule())
    nodes = {
        name: replace(node(name), allocatable={} if cpu is None else {"cpu": cpu})
        for name, cpu in zip("abc", sizes, strict=True)
    }
    decision = decide(rules, {"cpu": answer(dict.fromkeys("abc", 40))}, nodes, no_alerts(), NOON)
    known = {"cpu": ExpectedLoad(PodUse(**{"resource": "cpu", **use}), {})}
    views = replace(decision, expected=known).views(nodes)
    loads = node_loads(views, weighted_profile(rules, ""))
    assert list(loads.values()) == [round(TENTHS * (40 + each)) for each in more]
    assert views.expected_loads(0).tolist() == [40, 40, 40]  # by which marks go


def with_fresh(
    rules: RuleSet,
    load: int,
    pods: Sequence[BoundPod],
    room: Mapping[str, float] = ROOM,
    *,
    uses: Mapping[str, PodUse] | None = None,
    sign: int = 1,
    is_recent: bool = True,
) -> int:
    """A node's load after these pods were bound, or ended (``sign`` -1), since the last tick."""
    fresh = FreshPods(weighted_profile(rules, ""))
    for pod in pods:
        fresh.count(PodChange(pod, sign, is_recent=is_recent), uses or {}, room)
    return fresh.add_to(load, room)


def small(count: int) -> list[BoundPod]:
    return [BoundPod(str(number), "a", 0.1, 0.0) for number in range(count)]


USE = {"uses": {"cpu": PodUse("cpu", 0.4, {"d/web": 2.0})}}
MEASURED = {"uses": {"cpu": PodUse("cpu", 0.4, {"d/web": 2.0}, {"d/other-1": 1.0})}}
KNOWN = [BoundPod("1", "a", workload="d/web"), BoundPod("2", "a")]
BIG = [BoundPod("u", "a", 4.0, 8 * 2.0**30)]


@pytest.mark.parametrize(
    ("resource", "load", "pods", "options", "expected"),
    [
        # what they request, by the resource of the rule
        ("cpu", 0, BIG, {}, 500),
        ("memory", 0, BIG, {}, 250),
        (None, 0, BIG, {}, 500),
        # without requests, by their number
        (None, 0, small(0), {}, 0),
        (None, 0, small(1), {}, 40),
        (None, 0, small(5), {"room": {}}, 200),
        (None, 0, small(30), {"room": {}}, 800),
        # of known use, bound or ended
        ("cpu", 100, KNOWN, USE, 100 + 250 + 50),
        *(
            ("cpu", load, KNOWN, {**USE, "sign": -1, "is_recent": is_recent}, expected)
            for load, expected in ((500, 500 - 250 - 50), (100, 0))
            for is_recent in (True, False)
        ),
        *(
            ("cpu", 500, KNOWN, {**MEASURED, **options}, expected)
            for options, expected in (
                ({}, 500 + 375 + 75),
                ({"sign": -1}, 500 - 375 - 75),
                ({"sign": -1, "is_recent": False}, 500 - 250 - 50),
            )
        ),
        # a firing node does not look like one that does not fire
        ("cpu", FIRING + 300, small(5), {"uses": {"cpu": PodUse("cpu", 8.0)}, "sign": -1}, FIRING),
    ],
)
def test_what_pods_add_to_a_load(resource, load, pods, options, expected) -> None:
    assert with_fresh(rule_set(rule(resource=resource)), load, pods, **options) == expected
