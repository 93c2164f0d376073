"""Where pods were placed: what counts, as what, and for how long it is kept."""

import pytest
from scenes import NOON, Scene, example

from dynsched.core.load.pods import BoundPod, RecentPod
from dynsched.core.load.recent import MOST_BOUND, RecentPods, just_bound
from dynsched.core.nodes import Node
from dynsched.web.placements import STEP, STEPS, Placements, newly_bound

BEFORE = example().evaluation


def test_counts_are_of_five_minutes_each_and_of_an_hour() -> None:
    placements = Placements()
    for minute in range(0, 180, 5):
        placements.count(["worker-1"] * (minute // 5 % 3), BEFORE, NOON + 60 * minute + 7)
    found = placements.columns()
    assert len(found["times"]) == STEPS
    assert found["times"] == [NOON + STEP * number for number in range(24, 36)]
    assert found["clean"] == [0, 1, 2] * 4


@pytest.mark.parametrize(
    ("pause", "clean"), [(3, [1, 0, 0, 1]), (1000, [0] * (STEPS - 1) + [1]), (0, [2])]
)
def test_steps_without_a_pod_are_zero_and_older_ones_go(pause: int, clean: list[int]) -> None:
    placements = Placements()
    placements.count(["worker-1"], BEFORE, NOON)
    placements.count(["worker-1"], BEFORE, NOON + pause * STEP)
    found = placements.columns()
    assert (found["clean"], found["times"][-1]) == (clean, NOON + pause * STEP)


def test_how_many_would_be_on_hot_nodes_by_chance() -> None:
    placements = Placements()
    for hot, pods in (("a", "bcde"), ("", "a"), ("ab", "ac")):
        scene = Scene({"rules": [{"name": "cpu", "expr": "x", "threshold": 80}]}, map(Node, "abcd"))
        values = {name: 90.0 if name in hot else 10.0 for name in "abcd"}
        placements.count(pods, scene.tick(NOON, cpu=values).evaluation, NOON)
    found = placements.columns()
    assert (found["hot"], found["clean"], found["by_chance"]) == ([1], [6], 4 / 4 + 2 * 2 / 4)


def test_each_binding_counts_once_however_it_is_told() -> None:
    pods = RecentPods()
    pods.follow({name: Node(name) for name in "abc"})
    pods.add(BoundPod("1", "a", assumed=True), 0.0)
    assert newly_bound(pods.changes_after(0)) == []
    pods.add(BoundPod("1", "a"), 1.0)  # the binding that was assumed is observed
    pods.add(BoundPod("1", "a", cpu=2.0), 2.0)  # its requests are corrected
    pods.add(BoundPod("2", "b"), 3.0)
    pods.end(BoundPod("2", "b"), 4.0)
    assert newly_bound(pods.changes_after(0)) == ["a", "b"]


def test_pods_that_were_seen_to_be_bound_and_still_run_are_listed_the_latest_first() -> None:
    def pod(name: str, bound: float | None, node: str = "a", *, ended: float | None = None):
        return RecentPod(BoundPod(name, node, name=name), bound, ended)

    gone = [pod("x", 1.0, "b"), pod("x", 1.0, ended=1.0), pod("x", None, ended=1.0)]
    assumed = RecentPod(BoundPod("x", "a", assumed=True), 1.0, None)
    running = [pod(f"p{age}", float(age)) for age in range(500)]
    found = just_bound([assumed, *gone, *reversed(running)], "a")
    assert found.total == 500
    assert [(each.pod, each.age) for each in found.pods] == [
        (f"p{age}", float(age)) for age in range(MOST_BOUND)
    ]
