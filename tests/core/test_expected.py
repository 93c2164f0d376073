"""The expected load: what is measured, and what pods add and take off that it does not show yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from builders import NOON, rule, rule_set
from evaluating import columns_of, node_columns
from hypothesis import given
from hypothesis import strategies as st

from dynsched.core.expected import (
    BELOW_MEAN,
    METRICS_SERVER,
    ExpectedLoad,
    KnownPods,
    Lag,
    expected_load,
    lag_of,
    lag_of_range,
)
from dynsched.core.model import Node, Reading
from dynsched.core.pods import Added, BoundPod, RecentPod
from dynsched.core.rules import Rule

GIB = 2.0**30
LAG = "100s"


def made(**options: Any) -> Rule:
    (found,) = rule_set(rule(**options)).rules
    return found


def added(
    recent: list[RecentPod],
    *,
    measured: Mapping[str, float] | None = None,
    cores: Mapping[str, float] | None = None,
    read_ago: float = 0.0,
    running: int | None = None,
    workloads: Mapping[str, float] | None = None,
    **options: Any,
) -> Mapping[str, Added]:
    """By node; nodes a and b of 8 cores by default, a rule of CPU in percent that lags 100 s."""
    nodes = {
        name: Node(name, allocatable={"cpu": size, "memory": 32 * GIB})
        for name, size in (cores or {"a": 8.0, "b": 8.0}).items()
    }
    loads = {"a": 50.0, "b": 50.0} if measured is None else measured
    readings = {name: Reading(name, value, NOON - read_ago) for name, value in loads.items()}
    pods = KnownPods(tuple(recent), running, {"cpu": workloads or {}})
    found = made(**{"resource": "cpu", "lag": LAG, **options})
    return load_of(found, readings, nodes, pods).added


def load_of(
    found: Rule, readings: Mapping[str, Reading], nodes: Mapping[str, Node], pods: KnownPods
) -> ExpectedLoad:
    columns = node_columns(nodes, rule_set())
    good = columns_of(readings, columns.roster)
    return expected_load(found, good, nodes, pods, NOON, columns=columns)


def bound(node: str = "a", ago: float = 0.0, uid: str = "u", **options: Any) -> RecentPod:
    return RecentPod(BoundPod(uid, node, **options), ago, None)


def ended(node: str = "a", ago: float = 0.0, uid: str = "u", **options: Any) -> RecentPod:
    return RecentPod(BoundPod(uid, node, **options), None, ago)


# --- the lag ---


def test_nothing_is_seen_for_the_delay_then_more_and_more_and_at_the_end_all() -> None:
    lag = Lag(15, 90)
    assert lag.total == 105
    seen = {-5: 1, 0: 1, 15: 1, 60: 0.5, 105: 0, 1000: 0}
    assert {age: lag.unseen(age) for age in seen} == seen


def test_a_lag_without_a_span_shows_all_at_once() -> None:
    assert [Lag(10, 0).unseen(age) for age in (9, 10, 11)] == [1, 0, 0]


@given(st.floats(0, 1e4), st.floats(0, 1e4), st.floats(-1e4, 1e5), st.floats(0, 1e4))
def test_less_and_less_is_unseen(delay: float, span: float, age: float, more: float) -> None:
    lag = Lag(delay, span)
    assert 0 <= lag.unseen(age + more) <= lag.unseen(age) <= 1


@pytest.mark.parametrize(
    ("options", "scrape", "expected"),
    [
        ({"expr": "rate(x[2m])"}, 30.0, Lag(15, 90)),
        ({"expr": "rate(x[2m])"}, None, Lag(15, 90)),  # a quarter of the range
        ({"expr": "rate(x[1m]) + rate(y[5m])"}, 30.0, Lag(15, 270)),
        ({"expr": "max_over_time(rate(x[1m])[10m:30s])"}, 30.0, Lag(15, 570)),
        ({"expr": "rate(x[10s])"}, 30.0, Lag(15, 15)),
        ({"expr": "memory_used"}, 15.0, Lag(0, 15)),
        ({"expr": "memory_used"}, None, Lag(0, 30)),
        ({"expr": "not promql (("}, None, Lag(0, 30)),
        ({"expr": "rate(x[2m])", "lag": "45s"}, 30.0, Lag(0, 45)),
    ],
)
def test_the_lag_of_a_rule(options: dict[str, Any], scrape: float | None, expected: Lag) -> None:
    assert lag_of(made(**options), scrape) == expected


def test_the_lag_of_metrics_server() -> None:
    (found,) = rule_set(
        {"name": "m", "source": "metrics-server", "resource": "cpu", "threshold": 80}
    ).rules
    assert lag_of(found, None) == METRICS_SERVER


# --- what a pod uses ---


def test_a_bound_pod_adds_and_one_that_ended_takes_off_what_its_workload_uses() -> None:
    uses = {"d/web": 2.0}
    web = {"workload": "d/web"}
    assert added([bound(**web)], workloads=uses) == {"a": Added(25, 0)}
    hot = {"a": 90.0, "b": 50.0}
    assert added([ended(**web)], measured=hot, workloads=uses) == {"a": Added(0, 25)}
    both = [bound(uid="1", **web), bound(uid="2", **web), ended(uid="3", **web)]
    assert added(both, measured=hot, workloads=uses) == {"a": Added(50, 25)}


def test_without_its_workload_the_mean_of_the_running_pods_counts() -> None:
    """Two nodes of 8 cores, half used: 8 cores, of the 16 pods that the value shows. It shows those
    that ended too, and none that was just bound.
    """
    assert added([bound()], running=17) == {"a": Added(6.25, 0)}
    assert added([bound(workload="d/web")], running=17, workloads={"d/api": 8.0}) == {
        "a": Added(6.25, 0)
    }
    assert added([ended()], running=15) == {"a": Added(0, 6.25)}


def test_load_that_is_not_of_pods_makes_no_mean_use() -> None:
    """Two nodes are half used by something else: the first pod that is bound, and the second, used
    all that by the mean, so that their nodes looked full.
    """
    for running in (1, 2):
        pods = [bound(uid=str(number)) for number in range(running)]
        assert added(pods, running=running) == {"a": Added(4.0 * running, 0)}
    assert added([bound()], running=2) == {"a": Added(4, 0)}  # one pod on two nodes


def test_where_half_of_the_nodes_have_a_value_it_is_the_use_of_half_of_the_pods() -> None:
    found = added([bound()], measured={"a": 50.0}, running=2 * 8 + 2)
    assert found == {"a": Added(6.25, 0)}


def test_no_pod_uses_more_than_its_node_has() -> None:
    assert added([bound(workload="d/web")], workloads={"d/web": 1e9}) == {"a": Added(100, 0)}


def test_the_mean_of_a_rule_that_measures_no_resource_is_in_points() -> None:
    assert added([bound()], running=21, resource=None) == {"a": Added(5, 0)}


def test_without_a_mean_the_requests_count_and_four_points_each_at_least() -> None:
    assert added([bound(cpu=4.0)]) == {"a": Added(50, 0)}
    assert added([bound(cpu=0.01)]) == {"a": Added(4, 0)}
    dozen = [bound(uid=str(number), cpu=0.01) for number in range(12)]
    assert added(dozen) == {"a": Added(44, 0)}
    assert added(dozen, running=0) == {"a": Added(44, 0)}


def test_a_pod_of_unknown_use_that_ended_takes_nothing_off() -> None:
    assert added([ended(cpu=4.0)]) == {}
    assert added([RecentPod(BoundPod("u", "a", 4.0), 20.0, 10.0)]) == {}


def test_of_a_rule_that_falls_with_load_no_mean_is_known() -> None:
    found = added([bound(memory=8 * GIB)], running=16, op="<", resource="memory")
    assert found == {"a": Added(25, 0)}


# --- how much of it is unseen ---


def test_it_fades_as_the_metric_takes_it_in() -> None:
    uses = {"": 2.0}
    faded = [added([bound(ago=ago)], workloads=uses) for ago in (0, 50, 100)]
    assert faded == [{"a": Added(25, 0)}, {"a": Added(12.5, 0)}, {}]
    hot = {"a": 90.0, "b": 50.0}
    faded = [added([ended(ago=ago)], measured=hot, workloads=uses) for ago in (0, 50, 100)]
    assert faded == [{"a": Added(0, 25)}, {"a": Added(0, 12.5)}, {}]


def test_how_old_a_change_is_counts_from_the_time_of_the_reading() -> None:
    """A sample that was taken before the pod was bound shows nothing of it."""
    uses = {"": 2.0}
    assert added([bound(ago=50)], read_ago=50, workloads=uses) == {"a": Added(25, 0)}
    assert added([bound(ago=100)], read_ago=50, workloads=uses) == {"a": Added(12.5, 0)}
    assert added([bound(ago=50)], read_ago=-50, workloads=uses) == {"a": Added(12.5, 0)}


def test_a_pod_that_came_and_went_is_taken_off_as_far_as_it_was_seen() -> None:
    one = RecentPod(BoundPod("u", "a"), 75.0, 50.0)
    assert added([one], workloads={"": 2.0}) == {"a": Added(0, 25 * 0.25)}


# --- nodes ---


def test_no_load_is_below_nothing() -> None:
    assert Added(0, 25).to(10.0) == 0
    assert Added(5, 25).to(30.0) == 10


def test_what_ended_is_bounded_by_what_was_measured() -> None:
    """Pods that idled and were deleted took the load of others off: 30 points of new pods too."""
    assert Added(30, 85).to(78.0) == 30


@given(
    st.lists(st.floats(0, 100), min_size=2, max_size=6),
    st.lists(st.tuples(st.integers(0, 5), st.floats(0, 120), st.none() | st.floats(0, 120))),
    st.integers(0, 60),
    st.sampled_from([{}, {"": 8.0}]),
)
def test_idle_pods_that_are_deleted_together_do_not_make_a_busy_node_the_coolest(
    loads: list[float],
    pods: list[tuple[int, float, float | None]],
    running: int,
    uses: dict[str, float],
) -> None:
    """Whether the use of their workload is known or not. Of each pod: its node, when it ended, and
    how long before that it was bound.
    """
    names = "abcdef"[: len(loads)]
    recent = [
        RecentPod(BoundPod(str(number), names[at]), None if ran is None else end + ran, end)
        for number, (at, end, ran) in enumerate(pods)
        if at < len(names)
    ]
    measured = dict(zip(names, loads, strict=True))
    cores = dict.fromkeys(names, 8.0)
    found = added(recent, measured=measured, cores=cores, running=running, workloads=uses)
    for name, more in found.items():
        least = min(measured[name], sum(loads) / len(loads) - BELOW_MEAN)
        assert more.to(measured[name]) >= least - 1e-9


def test_the_mean_is_that_of_nodes_that_take_the_same_pods() -> None:
    """Idle nodes that no ordinary pod can use leave the others where they are."""
    nodes = {name: Node(name, allocatable={"cpu": 8.0}) for name in "abcd"}
    closed = ({"key": "gpu", "value": "", "effect": "NoSchedule"},)
    nodes |= {name: replace(nodes[name], taints=closed) for name in "cd"}
    values = {"a": 80.0, "b": 70.0, "c": 1.0, "d": 1.0}
    readings = {name: Reading(name, value, NOON) for name, value in values.items()}
    pods = KnownPods(tuple(ended(uid=str(number)) for number in range(30)), 20)
    found = load_of(made(resource="cpu", lag=LAG), readings, nodes, pods)
    assert found.added == {"a": Added(0, 15)}


def test_of_a_node_without_a_reading_nothing_is_said() -> None:
    assert added([bound("b"), bound("gone", uid="2")], measured={"a": 50.0}) == {}


def test_on_a_smaller_node_the_same_pod_is_more() -> None:
    pods = [bound("a", uid="1"), bound("b", uid="2")]
    cores = {"a": 16.0, "b": 4.0}
    assert added(pods, cores=cores, workloads={"": 2.0}) == {
        "a": Added(12.5, 0),
        "b": Added(50, 0),
    }
    # 10 cores of 20 are used.
    assert added(pods, cores=cores, running=12) == {"a": Added(6.25, 0), "b": Added(25, 0)}


def test_a_node_of_unknown_size_gets_points_by_number() -> None:
    assert added([bound()], cores={"a": 0.0, "b": 8.0}, workloads={"": 2.0}) == {"a": Added(4, 0)}


@given(
    pods=st.lists(
        st.tuples(
            st.sampled_from("ab"),
            st.floats(0.0, 4.0),
            st.floats(0.0, 400.0),
            st.floats(0.0, 400.0) | st.none(),
        ),
        max_size=20,
    ),
    read_ago=st.floats(0.0, 60.0),
    window=st.sampled_from([60, 120, 300]),
    scrape=st.sampled_from([15.0, 30.0, 60.0]),
)
def test_with_exact_uses_it_is_the_true_load_but_for_the_limit_of_what_ended(
    pods: list[tuple[str, float, float, float | None]],
    read_ago: float,
    window: int,
    scrape: float,
) -> None:
    """Of a metric that follows its lag. ``pods``: node, cores, bound, and seconds until the end."""
    lag = lag_of_range(window, scrape)
    recent, uses = [], {}
    true, shown = {"a": 20.0, "b": 30.0}, {"a": 20.0, "b": 30.0}
    for number, (node, cores, ago, lives) in enumerate(pods):
        end = None if lives is None or lives > ago else ago - lives
        use = 100 * cores / 8
        uses[str(number)] = cores
        shown[node] += use * (1 - lag.unseen(ago - read_ago))
        if end is None:
            true[node] += use
        else:
            shown[node] -= use * (1 - lag.unseen(end - read_ago))
        recent.append(RecentPod(BoundPod(str(number), node, workload=str(number)), ago, end))
    found = made(expr=f"rate(x[{window}s])", resource="cpu", full_at=100)
    nodes = {name: Node(name, allocatable={"cpu": 8.0}) for name in "ab"}
    readings = {name: Reading(name, value, NOON - read_ago) for name, value in shown.items()}
    known = KnownPods(tuple(recent), None, {"cpu": uses}, {"cpu": scrape})
    load = load_of(found, readings, nodes, known)
    lowest = sum(shown.values()) / 2 - BELOW_MEAN
    for name in "ab":
        more, less = load.added.get(name, Added(0, 0))
        if shown[name] - less > lowest + 1e-6 and shown[name] <= 400:
            assert Added(more, less).to(shown[name]) == pytest.approx(true[name], abs=1e-6)
        assert less <= max(0.0, shown[name] - lowest) + 1e-6
