"""What the page shows of pods and of which nodes it asks."""

import math

from hypothesis import given
from hypothesis import strategies as st
from properties import steady
from snapshots import NOON, Scene

from dynsched.engine.load.recent import MOST_BOUND, just_bound
from dynsched.engine.model import Node, Quality
from dynsched.engine.placing.placements import hottest
from dynsched.engine.pod_values import BoundPod, RecentPod


def recent(name, node="a", *, bound=1.0, ended=None, assumed=False):
    pod = BoundPod(name, node, 0.5, 2.0**20, "shop/web", name=f"shop/{name}", assumed=assumed)
    return RecentPod(pod, bound, ended)


def test_only_pods_that_were_seen_to_be_bound_and_still_run_are_listed() -> None:
    pods = [
        recent("old", bound=30.0),
        recent("new", bound=2.0),
        recent("elsewhere", "b"),
        recent("ended", ended=1.0),
        recent("before", bound=None, ended=1.0),
        recent("asked-about", assumed=True),
    ]
    found = just_bound(pods, "a")
    assert found.total == 2
    assert [(pod.pod, pod.age) for pod in found.pods] == [("shop/new", 2.0), ("shop/old", 30.0)]
    assert (found.pods[0].cpu, found.pods[0].memory) == (0.5, 2.0**20)


def test_of_a_burst_the_latest_are_listed_and_all_are_counted() -> None:
    found = just_bound([recent(f"p{age}", bound=float(age)) for age in range(500)], "a")
    assert found.total == 500
    assert [pod.age for pod in found.pods] == [float(age) for age in range(MOST_BOUND)]


def test_a_pod_of_unknown_name_is_listed_by_its_workload() -> None:
    pod = RecentPod(BoundPod("1", "a", workload="shop/web"), 1.0, None)
    assert just_bound([pod], "a").pods[0].pod == "shop/web"


def test_a_value_that_falls_with_load_counts_the_other_way_round() -> None:
    rules = {"rules": [{"name": "free", "expr": "x", "op": "<", "threshold": 10}]}
    scene = Scene(rules, [Node("roomy"), Node("tight")])
    snapshot = scene.tick(NOON, free={"roomy": 90.0, "tight": 20.0})
    assert hottest(snapshot, 1) == ["tight"]


@steady(60)
@given(
    values=st.lists(st.sampled_from([None, 10.0, 50.0, 79.0, 80.0, 90.0, 95.0]), max_size=14),
    later=st.lists(st.sampled_from([None, 10.0, 75.0, 95.0]), max_size=14),
    most=st.integers(0, 9),
)
def test_of_many_the_hottest_are_those_of_the_whole_order(values, later, most) -> None:
    rules = {"rules": [{"name": "cpu", "expr": "x", "threshold": 80, "clear_threshold": 70}]}
    names = [f"n{number}" for number in range(len(values))]
    scene = Scene(rules, [Node(name) for name in names])
    snapshot = None
    for at, found in enumerate((values, later)):
        pairs = zip(names, found, strict=False)
        readings = {name: value for name, value in pairs if value is not None}
        snapshot = scene.tick(NOON + 60 * at, cpu=readings)
    views = enumerate(snapshot.nodes.values())
    order = [(view.verdict.hot, beyond(view), number, view.verdict.node) for number, view in views]
    expected = [name for *_, name in sorted(order, reverse=True)[:most]]
    assert hottest(snapshot, most) == expected


def beyond(view) -> float:
    """How far the only rule's value is beyond its threshold; the least where it is not known."""
    (alert,) = view.verdict.alerts
    return -math.inf if alert.quality is not Quality.OK else alert.value
