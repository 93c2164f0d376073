"""The page's lists of changes and placements: what is counted, under which kind, for how long."""

import pytest
from scenes import NOON, Scene, example

from dynsched.core.nodes import Node
from dynsched.web.page.past import STEP, STEPS, Changes, Placements

RULES = {"rules": [{"name": "cpu", "expr": "x", "threshold": 80}]}
COOL, HOT = {"a": 10.0, "b": 5.0}, {"a": 90.0, "b": 5.0}


def test_changes_are_alert_transitions_and_writes_latest_first() -> None:
    """A re-evaluation between two ticks lists no change twice, and a new node is no change."""
    changes = Changes()
    scene = Scene(RULES, [Node("a"), Node("b")])
    for at, answer in ((0, COOL), (10, COOL), *[(20, HOT)] * 3, (30, HOT), (40, COOL), (40, COOL)):
        changes.observe(scene.tick(NOON + at, cpu=answer))
    assert [
        (change.at - NOON, change.kind, change.value) for change in changes.of_node("a", 10)
    ] == [
        (40, "inactive", 10.0),
        (40, "release", None),
        (20, "firing", 90.0),
        (20, "mark", None),
    ]
    assert changes.of_node("b", 10) == []
    assert [(change.why.code) for change in changes.of_all(10)] == ["no_rule", "fires"]


BEFORE = example().evaluation


def test_placements_are_counted_in_steps_of_five_minutes_over_an_hour() -> None:
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
def test_steps_without_a_pod_are_zero_and_old_ones_are_dropped(
    pause: int, clean: list[int]
) -> None:
    placements = Placements()
    placements.count(["worker-1"], BEFORE, NOON)
    placements.count(["worker-1"], BEFORE, NOON + pause * STEP)
    found = placements.columns()
    assert (found["clean"], found["times"][-1]) == (clean, NOON + pause * STEP)


def test_the_expected_number_of_pods_on_hot_nodes_by_chance_is_counted() -> None:
    placements = Placements()
    for hot, pods in (("a", "bcde"), ("", "a"), ("ab", "ac")):
        scene = Scene(RULES, map(Node, "abcd"))
        values = {name: 90.0 if name in hot else 10.0 for name in "abcd"}
        placements.count(pods, scene.tick(NOON, cpu=values).evaluation, NOON)
    found = placements.columns()
    assert (found["hot"], found["clean"], found["by_chance"]) == ([1], [6], 4 / 4 + 2 * 2 / 4)
