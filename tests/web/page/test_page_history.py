"""The last hour that the page shows: what is kept, at which step, and in how much memory."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import steady
from snapshots import EXAMPLE_RULES, NOON, Scene, example, many

from dynsched.core.model import Node
from dynsched.web.page.changes import MAX_CHANGES, Changes
from dynsched.web.page.history import POINTS, STEP, History

RULES = {"rules": [{"name": "cpu", "expr": "x", "threshold": 80}]}


def take(history, snapshot):
    if history.is_due(snapshot.taken_at):
        history.take(snapshot)


def ticked(seconds, interval=10.0, step=10):
    history = History(interval)
    scene = Scene(RULES, [Node("a")])
    for at in range(0, seconds, step):
        take(history, scene.tick(NOON + at, cpu={"a": float(at % 100)}))
    return history


def test_a_process_that_just_began_shows_its_first_minutes_finely() -> None:
    history = ticked(120)
    assert history.step < STEP
    assert history.values("a") == {"cpu": [0.0, 20.0, 40.0, 60.0, 80.0, 0.0]}
    assert history.times == [NOON + at for at in range(0, 120, 20)]


def test_after_an_hour_there_is_a_point_each_minute_and_no_more_than_an_hour() -> None:
    history = ticked(3 * 3600)
    times = history.times
    assert history.step == STEP
    assert len(times) == POINTS
    assert {later - earlier for earlier, later in pairwise(times)} == {STEP}
    assert times[-1] > NOON + 3 * 3600 - 2 * STEP
    values = history.values("a")["cpu"]
    assert values == [(at - NOON) % 100 for at in times]


def test_the_points_stay_in_order_while_the_step_grows() -> None:
    for seconds in range(60, 4000, 290):
        history = ticked(seconds)
        times = history.times
        assert times == sorted(times)
        assert history.values("a")["cpu"] == [(at - NOON) % 100 for at in times]


def test_what_is_not_known_is_a_gap_and_no_zero() -> None:
    history = History(60.0)
    scene = Scene(RULES, [Node("a")])
    take(history, scene.tick(NOON, cpu={"a": 50.0}))
    take(history, scene.tick(NOON + 60, cpu="connection refused"))
    take(history, scene.tick(NOON + 120, cpu={"a": 51.5}))
    assert history.values("a") == {"cpu": [50.0, None, 51.5]}


def test_a_value_beyond_16_bits_is_kept_as_the_largest() -> None:
    history = History(60.0)
    take(history, Scene(RULES, [Node("a")]).tick(NOON, cpu={"a": 1e300}))
    assert history.values("a")["cpu"] == [80 * 65_500]


def of_rule(threshold, **fields):
    return {"rules": [{"name": "r", "expr": "x", "threshold": threshold, **fields}]}


@pytest.mark.parametrize(
    ("rule", "values"),
    [
        (of_rule(80), [79.9, 80.1, 0.0123, 4_000.0]),
        (of_rule(4e9, op="<", clear_threshold=8e9), [3.99e9, 64e9, 1.25e6]),
        (of_rule(0.05), [0.049, 0.051, 1.0]),
        (of_rule(0, clear_threshold=0), [0.0, 1.0, 12.5]),
        (of_rule(-5), [-4.99, -40.0]),
    ],
)
def test_values_keep_three_digits_whatever_their_unit(rule, values) -> None:
    history = History(60.0)
    scene = Scene(rule, [Node("a")])
    for at, value in enumerate(values):
        take(history, scene.tick(NOON + 60 * at, r={"a": value}))
    assert history.values("a") == {"r": values}


def test_a_rule_with_another_threshold_keeps_its_values() -> None:
    history = History(60.0)
    take(history, Scene(of_rule(80), [Node("a")]).tick(NOON, r={"a": 72.5}))
    take(history, Scene(of_rule(0.8), [Node("a")]).tick(NOON + 60, r={"a": 0.725}))
    assert history.values("a") == {"r": [72.5, 0.725]}


def test_an_early_rule_takes_no_memory_because_its_values_are_those_of_another() -> None:
    history = History(60.0)
    early = {"rules": [{**RULES["rules"][0], "early": {}}]}
    take(history, Scene(early, [Node("a")]).tick(NOON, cpu={"a": 50.0}))
    assert history.values("a") == {"cpu": [50.0]}


@steady(80)
@given(
    ticks=st.lists(
        st.tuples(
            st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 3), max_size=8),
            st.sets(st.sampled_from(["cpu", "memory"]), min_size=1),
        ),
        max_size=20,
    )
)
def test_nodes_and_rules_that_come_and_go_never_show_the_values_of_others(ticks) -> None:
    history, plain = History(60.0), {}
    for at, (uids, names) in enumerate(ticks):
        nodes = {name: Node(name, uid=str(uid)) for name, uid in uids.items()}
        rules = [{**RULES["rules"][0], "name": name} for name in sorted(names)]
        scene = Scene({"rules": rules}, nodes.values())
        values = {node: float(10 * at + number) for number, node in enumerate(nodes)}
        take(history, scene.tick(NOON + 60 * at, **dict.fromkeys(names, values)))
        # The plain form: a list for each node and rule, begun anew where either is new.
        plain = {
            (name, uid, rule): [
                *plain.get((name, uid, rule), [None] * at),
                values[name],
            ]
            for name, uid in uids.items()
            for rule in names
        }
        for name in "abcdefgh":
            shown = history.values(name)
            expected = {rule: had for (node, _, rule), had in plain.items() if node == name}
            assert (shown or {}) == expected
            assert (shown is None) == (name not in uids)


def test_a_node_that_is_gone_or_replaced_leaves_nothing() -> None:
    history = History(60.0)
    scene = Scene(RULES, [Node("a", uid="1"), Node("b", uid="2")])
    take(history, scene.tick(NOON, cpu={"a": 1.0, "b": 2.0}))
    scene.nodes = {"b": Node("b", uid="3")}
    take(history, scene.tick(NOON + 60, cpu={"b": 3.0}))
    assert history.values("a") is None
    assert history.values("b") == {"cpu": [None, 3.0]}


def test_rules_that_stay_keep_their_values_when_others_come_or_go() -> None:
    history = History(60.0)
    two = {"rules": [*RULES["rules"], {"name": "memory", "expr": "y", "threshold": 80}]}
    take(history, Scene(RULES, [Node("a")]).tick(NOON, cpu={"a": 1.0}))
    take(history, Scene(two, [Node("a")]).tick(NOON + 60, cpu={"a": 2.0}, memory={"a": 3.0}))
    assert history.values("a") == {"cpu": [1.0, 2.0], "memory": [None, 3.0]}


def test_a_clock_that_is_set_back_does_not_stop_it() -> None:
    history = History(60.0)
    scene = Scene(RULES, [Node("a")])
    take(history, scene.tick(NOON, cpu={"a": 1.0}))
    take(history, scene.tick(NOON - 3600, cpu={"a": 2.0}))
    assert history.values("a") == {"cpu": [1.0, 2.0]}


def test_the_marks_are_kept_beside_the_values() -> None:
    history = History(10.0)
    take(history, example())
    assert history.marked("worker-2") == [True]
    assert history.marked("worker-1") == [False]


def test_its_memory_is_bounded_and_as_documented() -> None:
    history = History(60.0)
    snapshot = many(500)
    for minute in range(100):
        take(history, replace(snapshot, taken_at=NOON + 60 * minute))
    rules = 3
    assert history.size == 500 * POINTS * (2 * rules + 1) + 8 * POINTS
    assert not math.isnan(history.times[0])


def ticks(scene, changes, *answers):
    for at, answer in enumerate(answers):
        snapshot = scene.tick(NOON + 10 * at, cpu=answer)
        changes.written(snapshot)
        changes.observe(snapshot.nodes)


def test_the_changes_are_what_alerts_did_and_what_was_written_the_latest_first() -> None:
    changes = Changes()
    cool, hot = {"a": 10.0, "b": 5.0}, {"a": 90.0, "b": 5.0}
    ticks(Scene(RULES, [Node("a"), Node("b")]), changes, cool, cool, hot, hot, cool)
    found = [(change.at - NOON, change.kind, change.value) for change in changes.latest(10, "a")]
    assert found == [
        (40, "inactive", 10.0),
        (40, "release", None),
        (20, "firing", 90.0),
        (20, "mark", None),
    ]
    assert changes.latest(10, "b") == []
    assert len(changes.latest(3)) == 3
    assert "cpu" in changes.latest(10, "a")[3].text


def test_a_new_node_that_is_cool_is_no_change() -> None:
    changes = Changes()
    ticks(Scene(RULES, [Node("a")]), changes, {"a": 1.0})
    assert changes.latest(10) == []


def test_what_is_decided_again_between_two_ticks_is_told_once() -> None:
    changes = Changes()
    scene = Scene(RULES, [Node("a")])
    cool, hot = {"a": 10.0}, {"a": 90.0}
    for at, values in ((0, cool), (10, hot), (10, hot), (10, hot), (20, cool), (20, cool)):
        snapshot = scene.tick(NOON + at, cpu=values)
        changes.observe(snapshot.nodes)
    assert [change.kind for change in changes.latest(10)] == ["inactive", "firing"]


def test_the_number_of_changes_is_bounded() -> None:
    changes = Changes()
    scene = Scene(EXAMPLE_RULES, [Node(f"n{n}") for n in range(200)])
    hot = dict.fromkeys(scene.nodes, 99.0)
    for at in range(60):
        snapshot = scene.tick(NOON + 300 * at, node_cpu=hot if at % 2 else {}, node_mem_usage=hot)
        changes.observe(snapshot.nodes)
    assert len(changes.latest(MAX_CHANGES * 2)) <= MAX_CHANGES
