"""Where pods were placed: what counts, as what, and for how long it is kept."""

import pytest
from snapshots import NOON, example

from dynsched.engine.load.recent import RecentPods
from dynsched.engine.model import Node
from dynsched.engine.placing.placements import STEP, STEPS, Placements, newly_bound
from dynsched.engine.pod_values import BoundPod

VIEWS = example().nodes


def test_counts_are_of_five_minutes_each_and_of_an_hour() -> None:
    placements = Placements()
    for minute in range(0, 180, 5):
        placements.count(
            ["worker-1"] * (minute // 5 % 3), VIEWS.hot, VIEWS.marked, NOON + 60 * minute + 7, 8
        )
    found = placements.columns()
    assert len(found["times"]) == STEPS
    assert found["times"] == [NOON + STEP * number for number in range(24, 36)]
    assert found["clean"] == [0, 1, 2] * 4


@pytest.mark.parametrize(
    ("pause", "clean"), [(3, [1, 0, 0, 1]), (1000, [0] * (STEPS - 1) + [1]), (0, [2])]
)
def test_steps_without_a_pod_are_zero_and_older_ones_go(pause: int, clean: list[int]) -> None:
    placements = Placements()
    placements.count(["worker-1"], VIEWS.hot, VIEWS.marked, NOON, 8)
    placements.count(["worker-1"], VIEWS.hot, VIEWS.marked, NOON + pause * STEP, 8)
    found = placements.columns()
    assert (found["clean"], found["times"][-1]) == (clean, NOON + pause * STEP)


def test_how_many_would_be_on_hot_nodes_by_chance() -> None:
    placements = Placements()
    for hot, pods in ((["a"], ["b", "c", "d", "e"]), ([], ["a"]), (["a", "b"], ["a", "c"])):
        placements.count(pods, hot, (), NOON, 4)
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
