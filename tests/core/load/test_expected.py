"""The expected load: the measured load, plus and minus the use of pods that it lags behind."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from builders import NOON, rule, rule_set
from hypothesis import given
from hypothesis import strategies as st

from dynsched.core.load.expected import (
    BELOW_MEAN,
    ExpectedLoad,
    KnownPods,
    expected_load,
    group_means,
)
from dynsched.core.load.lag import METRICS_SERVER, Lag, lag_of, needs_reach
from dynsched.core.load.pods import UNKNOWN_LOAD, Added, BoundPod, PodRequestTotals, RecentPod
from dynsched.core.nodes import Node, group_of
from dynsched.core.samples import Quality, Reading
from dynsched.rules.promql import Reach
from dynsched.rules.rule_set import Rule

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
    uses: Mapping[str, float] | None = None,
    lately: Mapping[str, float] | None = None,
    requested: Mapping[str, PodRequestTotals] | None = None,
    **options: Any,
) -> Mapping[str, Added]:
    """What pods add to each node. By default nodes a and b have 8 cores, and the rule measures CPU
    in percent with a lag of 100 s.
    """
    nodes = {
        name: Node(name, allocatable={"cpu": size, "memory": 32 * GIB})
        for name, size in (cores or {"a": 8.0, "b": 8.0}).items()
    }
    loads = {"a": 50.0, "b": 50.0} if measured is None else measured
    pods = KnownPods(
        tuple(recent),
        running,
        use_of_workloads={"cpu": workloads or {}},
        use_of_pods={"cpu": uses or {}},
        use_of_ended={"cpu": lately or {}},
        requested=requested or {},
    )
    found = made(**{"resource": "cpu", "lag": LAG, **options})
    added = load_of(found, loads, nodes, pods, read_ago).added
    return {name: each._replace(pods=0) for name, each in added.items()}


def test_if_pods_are_measured_a_new_one_has_a_margin_of_half_its_use() -> None:
    nodes = {name: Node(name, allocatable={"cpu": 8.0}) for name in "abc"}
    web = {"name": "d/web-2", "workload": "d/web"}
    recent = (bound(ago=50, **web), bound("b", uid="2", name="d/web-1"), ended("c", uid="3", **web))
    uses = {"use_of_workloads": {"cpu": {"d/web": 2.0}}}
    for of_pods, margin in (({"d/web-1": 1.0}, 0.5 * 12.5), ({}, 0)):
        pods = KnownPods(recent, 20, **uses, use_of_pods={"cpu": of_pods})
        found = load_of(made(resource="cpu", lag=LAG), dict.fromkeys(nodes, 50.0), nodes, pods)
        assert found.added["a"] == Added(12.5, 0, margin, 1)
        assert not any(each.margin for name, each in found.added.items() if name != "a")


@pytest.mark.parametrize("resource", ["cpu", None])
def test_a_load_counts_at_most_as_full_in_means(resource) -> None:
    nodes = {name: Node(name, allocatable={"cpu": 8.0}) for name in "ab"}
    pods, rule_of = KnownPods(running=40), made(resource=resource)
    full, far_more = (
        load_of(rule_of, {"a": load, "b": 20.0}, nodes, pods).use.mean for load in (100.0, 490.0)
    )
    assert full == far_more == pytest.approx(0.24 if resource else 3.0)
    groups = {name: group_of(node, rule_set().guard) for name, node in nodes.items()}
    assert set(group_means({"a": 490.0, "b": 20.0}, groups).values()) == {60.0}


def load_of(
    found: Rule,
    loads: Mapping[str, float],
    nodes: Mapping[str, Node],
    pods: KnownPods,
    read_ago: float = 0.0,
) -> ExpectedLoad:
    readings = {name: Reading(load, NOON - read_ago, Quality.OK) for name, load in loads.items()}
    groups = {name: group_of(node, rule_set().guard) for name, node in nodes.items()}
    return expected_load(found, readings, nodes, groups, pods=pods, now=NOON)


def bound(node: str = "a", ago: float = 0.0, uid: str = "u", **options: Any) -> RecentPod:
    return RecentPod(BoundPod(uid, node, **options), ago, None)


def ended(node: str = "a", ago: float = 0.0, uid: str = "u", **options: Any) -> RecentPod:
    return RecentPod(BoundPod(uid, node, **options), None, ago)


def test_a_change_is_unseen_during_the_delay_and_then_appears_over_the_span() -> None:
    lag = Lag(15, 90)
    assert lag.total == 105
    seen = {-5: 1, 0: 1, 15: 1, 60: 0.5, 105: 0, 1000: 0}
    assert {age: lag.unseen(age) for age in seen} == seen
    assert [Lag(10, 0).unseen(age) for age in (9, 10, 11)] == [1, 0, 0]  # without a span


@pytest.mark.parametrize(
    ("options", "scrape", "expected"),
    [
        ({"expr": "rate(x[2m])"}, 30.0, Lag(15, 90)),
        ({"expr": "rate(x[2m])"}, None, Lag(15, 90)),  # a quarter of the range
        ({"expr": "rate(x[1m]) + rate(y[5m])"}, 30.0, Lag(15, 270)),
        ({"expr": "max_over_time(rate(x[1m])[10m:30s])"}, 30.0, Lag(15, 630)),
        ({"expr": "max_over_time(rate(x[5m])[10m:])"}, 30.0, Lag(15, 870)),
        ({"expr": "rate(x[2m] offset 1m)"}, 30.0, Lag(75, 90)),
        ({"expr": "max_over_time(rate(x[1m] offset 1m)[5m:] offset 2m)"}, 30.0, Lag(195, 330)),
        ({"expr": "rate(x[2m] offset -1m)"}, 30.0, Lag(0, 90)),
        ({"expr": "x offset 1m"}, 15.0, Lag(60, 15)),
        ({"expr": "rate(x[300])"}, 30.0, Lag(15, 270)),
        ({"expr": "rate(x[2m]) / on (instance) cores # [1h] of 'a"}, 30.0, Lag(15, 90)),
        ({"expr": "rate(x{a='[9d]'}[2m])"}, 30.0, Lag(15, 90)),
        ({"expr": "rate(x[10s])"}, 30.0, Lag(15, 15)),
        ({"expr": "memory_used"}, 15.0, Lag(0, 15)),
        ({"expr": "memory_used"}, None, Lag(0, 30)),
        ({"expr": "not promql (("}, None, Lag(0, 30)),
        ({"expr": "rate(x[2m])", "lag": "45s"}, 30.0, Lag(0, 45)),
        ({"source": "metrics-server", "resource": "cpu", "expr": None}, None, METRICS_SERVER),
    ],
)
def test_the_lag_of_a_rule(options: dict[str, Any], scrape: float | None, expected: Lag) -> None:
    assert lag_of(made(**options), scrape) == expected


def test_the_lag_of_an_expression_that_only_the_server_parses_uses_the_server_reach() -> None:
    (found,) = rule_set(rule(expr="rate(x[1.5h])", resource="cpu")).rules
    assert needs_reach(found)
    assert lag_of(found, 30.0) == Lag(0, 30)
    assert lag_of(found, 30.0, Reach(60, 5400)) == Lag(75, 5370)
    nodes = {"a": Node("a", allocatable={"cpu": 8.0})}
    pods = KnownPods((bound(ago=4000.0, cpu=4.0),), reaches={"cpu": Reach(60, 5400)})
    assert load_of(found, {"a": 50.0}, nodes, pods).added["a"].bound > 0
    for options in ({"expr": "rate(x[2m])"}, {"expr": "rate(x[1.5h])", "lag": LAG}):
        assert not needs_reach(made(**options))


def on_a(bound: float, ended: float = 0.0, margin: float = 0.0) -> Mapping[str, Added]:
    return {"a": Added(bound, ended, margin)}


WEB, USED = {"workload": "d/web"}, {"workloads": {"d/web": 2.0}}
ANY = {"workloads": {"": 2.0}}
HOT = {"measured": {"a": 79.0, "b": 45.0}}
IT_ENDED = [ended(name="d/web-1", **WEB)]
MEASURED = {"uses": {"d/web-1": 3.2}, "lately": {"d/web-1": 3.2}}
REQUESTED = {"a": PodRequestTotals(40, 0.04), "b": PodRequestTotals(10, 0.49)}
"""The median request is 0.025 cores. Four times the share of 0.001 cores in it is 0.16."""
DOZEN = [bound(uid=str(number), cpu=0.01) for number in range(12)]
BIG_SMALL = {"cores": {"a": 16.0, "b": 4.0}}
CASES: dict[str, tuple[list[RecentPod], dict[str, Any], Mapping[str, Added]]] = {
    "a bound pod adds the use of its workload": ([bound(**WEB)], USED, on_a(25)),
    "an ended pod subtracts the use of its workload": ([ended(**WEB)], USED | HOT, on_a(0, 25)),
    "an ended pod subtracts to 10 % below the mean at most": ([ended(**WEB)], USED, on_a(0, 10)),
    "an ended pod that was measured has no such limit": (IT_ENDED, USED | MEASURED, on_a(0, 40)),
    "an ended pod subtracts no more than its last use": (
        IT_ENDED,
        USED | MEASURED | {"lately": {"d/web-1": 0.4}},
        on_a(0, 5),
    ),
    "the next pod with its name, as in a StatefulSet, counts in full": (
        [bound(name="d/web-1", **WEB)],
        USED | {"lately": {"d/web-1": 0.4}},
        on_a(25),
    ),
    "an ended pod subtracts its use over minutes until its last use is known": (
        IT_ENDED,
        USED | MEASURED | {"lately": {}},
        on_a(0, 40),
    ),
    "on a hot node the limit below the mean also applies to measured pods": (
        IT_ENDED,
        USED | MEASURED | {"measured": {"a": 80.0, "b": 75.0}},
        on_a(0, 12.5),
    ),
    "bound and ended pods": (
        [bound(uid="1", **WEB), bound(**WEB), ended(uid="3", **WEB)],
        USED | HOT,
        on_a(50, 25),
    ),
    "a pod's own use takes precedence over that of its workload": (
        [bound(name="d/web-1", **WEB), bound(uid="2", name="d/web-2", **WEB)],
        USED | {"uses": {"d/web-1": 1.0}},
        on_a(37.5, margin=12.5),
    ),
    "no more than the node's capacity": ([bound(**WEB)], {"workloads": {"d/web": 1e9}}, on_a(100)),
    # The use of other pods and of the system is not in it. With it, a node that was measured at 7 %
    # was expected at 103 %.
    "the median of few measured pods": (
        [bound(name="d/new-1")],
        {"running": 7, "uses": {f"d/{each}": 0.08 for each in "abcde"} | {"d/busy": 4.0}},
        on_a(1, margin=0.5),
    ),
    # Two nodes of 8 cores are half used. These 8 cores are the use of the 16 pods that the value
    # shows: it still includes the pods that ended, and not yet those that were just bound.
    "the mean of the running pods": ([bound()], {"running": 17}, on_a(6.25)),
    "the mean, at most four times the share of the median request": (
        [bound(cpu=0.001), bound("b", uid="2", cpu=0.05)],
        {"running": 18, "requested": REQUESTED},
        {"a": Added(pytest.approx(6.25 * 0.16), 0), "b": Added(6.25, 0)},
    ),
    "requests on nodes that do not exist do not count": (
        [bound(cpu=0.001)],
        {
            "running": 17,
            "requested": REQUESTED | dict.fromkeys("uvwxyz", PodRequestTotals(1, 1e-9)),
        },
        on_a(pytest.approx(6.25 * 0.16)),
    ),
    "the mean for an ended pod": ([ended()], {"running": 15}, on_a(0, 6.25)),
    "the mean in percent without a resource": (
        [bound()],
        {"running": 21, "resource": None},
        on_a(5),
    ),
    "the mean if half of the nodes have a value": (
        [bound()],
        {"measured": {"a": 50.0}, "running": 2 * 8 + 2},
        on_a(6.25),
    ),
    # Otherwise all load that is not due to pods would count as the use of the first pods.
    "no mean if there are fewer pods than nodes": ([bound()], {"running": 1}, on_a(4)),
    "the requests without a mean": ([bound(cpu=4.0)], {}, on_a(50)),
    "at least 4 % for each without a mean": (DOZEN, {}, on_a(48)),
    "the larger request without a resource": (
        [bound(cpu=1.0, memory=16 * GIB)],
        {"resource": None},
        on_a(50),
    ),
    "unknown use, ended": ([ended(cpu=4.0)], {}, on_a(0)),
    "unknown use, bound and ended": (
        [RecentPod(BoundPod("u", "a", 4.0), 20.0, 10.0)],
        {},
        on_a(0),
    ),
    "no mean if lower values are worse": (
        [bound(memory=8 * GIB)],
        {"running": 16, "op": "<", "resource": "memory"},
        on_a(25),
    ),
    # what a pod adds fades as the metric catches up
    "half seen": ([bound(ago=50)], ANY, on_a(12.5)),
    "all seen": ([bound(ago=100)], ANY, {}),
    "half seen, ended": ([ended(ago=50)], ANY | HOT, on_a(0, 12.5)),
    "bound and ended": ([RecentPod(BoundPod("u", "a"), 75.0, 50.0)], ANY, on_a(0, 25 * 0.25)),
    # a sample from before the pod was bound does not include it
    "older sample": ([bound(ago=50)], {"read_ago": 50, **ANY}, on_a(25)),
    "without a reading": ([bound("b"), bound("gone", uid="2")], {"measured": {"a": 50.0}}, {}),
    "a smaller node": (
        [bound("a"), bound("b", uid="2")],
        {**BIG_SMALL, **ANY},
        {"a": Added(12.5, 0), "b": Added(50, 0)},
    ),
    "the mean on a smaller node": (  # 10 cores of 20 are used
        [bound("a"), bound("b", uid="2")],
        {**BIG_SMALL, "running": 12},
        {"a": Added(6.25, 0), "b": Added(25, 0)},
    ),
    # 8 cores are used on the first two nodes, and 5 % of 32 on the third
    "the capacity of a node counts as four times the median at most": (
        [bound()],
        {
            "cores": {"a": 8.0, "b": 8.0, "virtual": 1e4},
            "measured": {"a": 50.0, "b": 50.0, "virtual": 5.0},
            "running": 17,
        },
        on_a(7.5),
    ),
    "unknown size": ([bound()], {"cores": {"a": 0.0, "b": 8.0}, **ANY}, on_a(4)),
}


@pytest.mark.parametrize(("recent", "options", "expected"), CASES.values(), ids=CASES)
def test_pods_add_and_subtract_load(recent, options, expected) -> None:
    assert added(recent, **options) == expected


@pytest.mark.parametrize(
    ("change", "measured", "load"),
    [
        (Added(0, 25), 10.0, 0),
        (Added(5, 25), 30.0, 10),
        # deleted idle pods subtracted the load of other pods, also the 30 % of new pods
        (Added(30, 85), 78.0, 30),
    ],
)
def test_an_expected_load_is_never_below_zero_or_the_load_of_new_pods(
    change: Added, measured: float, load: float
) -> None:
    assert change.to(measured) == load


@given(
    st.lists(st.floats(0, 100), min_size=2, max_size=6),
    st.lists(st.tuples(st.integers(0, 5), st.floats(0, 120), st.none() | st.floats(0, 120))),
    st.integers(0, 60),
    st.sampled_from([{}, {"": 8.0}]),
)
def test_idle_pods_that_are_deleted_together_do_not_make_a_busy_node_the_coolest(
    loads, pods, running, uses
) -> None:
    """Each pod is drawn as its node, how long ago it ended, and how long it ran (None if its
    binding is not stored). The use of its workload may be known or not.
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


def test_the_mean_is_taken_over_nodes_that_accept_the_same_pods() -> None:
    """Idle nodes that no ordinary pod can use do not lower the mean of the others."""
    nodes = {name: Node(name, allocatable={"cpu": 8.0}) for name in "abcd"}
    closed = ({"key": "gpu", "value": "", "effect": "NoSchedule"},)
    nodes |= {name: replace(nodes[name], taints=closed) for name in "cd"}
    values = {"a": 80.0, "b": 70.0, "c": 1.0, "d": 1.0}
    pods = KnownPods(tuple(ended(uid=str(number)) for number in range(30)), 20)
    found = load_of(made(resource="cpu", lag=LAG), values, nodes, pods)
    assert found.added == {"a": Added(0, 15)}


SIZES = {"small": 4.0, "large": 16.0, "huge": 1e9, "nothing": 0.0, "unknown": None}


def test_the_next_pod_adds_more_to_a_smaller_node() -> None:
    """The next pod has the mean use plus its margin. A node of unknown capacity counts as the
    largest.
    """
    nodes = {
        name: Node(name, allocatable={} if size is None else {"cpu": size})
        for name, size in SIZES.items()
    }
    loads = dict.fromkeys(nodes, 50.0)
    found = load_of(made(resource="cpu"), loads, nodes, KnownPods(running=42))
    # 2, 8 and 32 cores are used (capacity counts as four times the median at most): 1 core per pod
    assert found.use.mean == 1
    assert {name: found.next(name) for name in nodes} == pytest.approx(
        {"small": 37.5, "large": 9.375, "huge": 2.34375, "nothing": 100, "unknown": 2.34375}
    )
    assert found.to_place("small", 10) - found.to_place("large", 10) == pytest.approx(28.125)
    assert found.to_place("unknown", 10) == 10
    unknown = load_of(made(resource="cpu"), loads, nodes, KnownPods())
    assert {unknown.next(name) for name in nodes} == {UNKNOWN_LOAD}
    assert unknown.to_place("small", 10) == 10


@pytest.mark.parametrize(
    ("options", "load", "more", "value"),
    [
        ({"threshold": 0.8}, 0.5, Added(10, 0), 0.6),
        ({"threshold": 300, "full_at": 400}, 200.0, Added(10, 0), 240.0),
        ({"threshold": 800, "full_at": 100}, 700.0, Added(10, 0), 700.0),  # loads end at 500 %
        ({}, 50.0, Added(10, 25), 35.0),
        ({}, 10.0, Added(0, 25), 0.0),
    ],
)
def test_the_expected_value_is_in_the_unit_of_the_rule(options, load, more, value) -> None:
    found = ExpectedLoad(added={"a": more})
    assert found.value_of(made(**options), "a", load) == pytest.approx(value)
    assert found.value_of(made(**options), "b", load) == load
