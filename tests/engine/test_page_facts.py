"""What the page shows of pods and of which nodes it asks."""

from snapshots import NOON, Scene

from dynsched.engine.load.recent import MOST_BOUND, just_bound
from dynsched.engine.model import Node
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


def test_a_value_that_falls_with_load_counts_the_other_way_round() -> None:
    rules = {"rules": [{"name": "free", "expr": "x", "op": "<", "threshold": 10}]}
    scene = Scene(rules, [Node("roomy"), Node("tight")])
    snapshot = scene.tick(NOON, free={"roomy": 90.0, "tight": 20.0})
    assert hottest(snapshot, 1) == ["tight"]
