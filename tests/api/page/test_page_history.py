"""The last hour that the page shows: what is kept, at which step, and in how much memory."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import steady
from snapshots import EXAMPLE_RULES, NOON, Scene, many

from dynsched.api.page.history import MAX_CHANGES, POINTS, STEP, Changes, History
from dynsched.engine.model import Node

CPU = {"name": "cpu", "expr": "x", "threshold": 80}
RULES = {"rules": [CPU]}


def values(history, node):
    """By rule; None for no node."""
    return history.past([node])["nodes"].get(node, {}).get("values")


def taken(*ticks):
    """A history: of each minute the rule r, and what it is answered of node a."""
    history = History(60.0)
    for minute, (rule, answer) in enumerate(ticks):
        scene = Scene({"rules": [{"name": "r", "expr": "x", **rule}]}, [Node("a")])
        known = {"a": answer} if isinstance(answer, float) else answer
        history.observe(scene.tick(NOON + 60 * minute, r=known))
    return history


def ticked(history, start, end):
    """Ticks every 10 s; the value tells the time."""
    scene = Scene(RULES, [Node("a")])
    for at in range(start, end, 10):
        history.observe(scene.tick(NOON + at, cpu={"a": float(at % 100)}))


def test_the_step_grows_to_a_minute_and_the_points_stay_in_order() -> None:
    """A process that just began shows its first minutes finely; no more than an hour is kept."""
    history = History(10.0)
    ticked(history, 0, 120)
    assert history.step < STEP
    assert values(history, "a") == {"cpu": [0.0, 20.0, 40.0, 60.0, 80.0, 0.0]}
    assert history.past([])["times"] == [NOON + at for at in range(0, 120, 20)]
    seconds = 120
    for later in (*range(290, 4000, 290), 3 * 3600):
        ticked(history, seconds, later)
        seconds = later
        times = history.past([])["times"]
        assert times == sorted(times)
        assert values(history, "a")["cpu"] == [(at - NOON) % 100 for at in times]
    assert history.step == STEP
    assert len(times) == POINTS
    assert {later - earlier for earlier, later in pairwise(times)} == {STEP}
    assert times[-1] > NOON + 3 * 3600 - 2 * STEP


PERCENT = {"threshold": 80}


@pytest.mark.parametrize(
    ("ticks", "expected"),
    [
        # Three digits, whatever the unit.
        *(
            ([(rule, value) for value in values], values)
            for rule, values in (
                (PERCENT, [79.9, 80.1, 0.0123, 4_000.0]),
                ({"threshold": 4e9, "op": "<", "clear_threshold": 8e9}, [3.99e9, 64e9, 1.25e6]),
                ({"threshold": 0.05}, [0.049, 0.051, 1.0]),
                ({"threshold": 0, "clear_threshold": 0}, [0.0, 1.0, 12.5]),
                ({"threshold": -5}, [-4.99, -40.0]),
            )
        ),
        # What is not known is a gap.
        ([(PERCENT, 50.0), (PERCENT, "refused"), (PERCENT, 51.5)], [50.0, None, 51.5]),
        # A value beyond 16 bits is the largest.
        ([(PERCENT, 1e300)], [80 * 65_500]),
        # A rule with another threshold keeps its values.
        ([(PERCENT, 72.5), ({"threshold": 0.8}, 0.725)], [72.5, 0.725]),
    ],
)
def test_what_is_kept_of_values(ticks, expected) -> None:
    assert values(taken(*ticks), "a") == {"r": expected}


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
        scene = Scene({"rules": [{**CPU, "name": name} for name in sorted(names)]}, nodes.values())
        known = {node: float(10 * at + number) for number, node in enumerate(nodes)}
        history.observe(scene.tick(NOON + 60 * at, **dict.fromkeys(names, known)))
        # The plain form: a list for each node and rule, begun anew where either is new.
        plain = {
            (*key, rule): [*plain.get((*key, rule), [None] * at), known[key[0]]]
            for key in uids.items()
            for rule in names
        }
        for name in "abcdefgh":
            shown = values(history, name)
            expected = {rule: had for (node, _, rule), had in plain.items() if node == name}
            assert (shown or {}) == expected
            assert (shown is None) == (name not in uids)


def test_a_clock_that_is_set_back_does_not_stop_it() -> None:
    history = History(60.0)
    scene = Scene(RULES, [Node("a")])
    for at, value in ((NOON, 1.0), (NOON - 3600, 2.0)):
        history.observe(scene.tick(at, cpu={"a": value}))
    assert values(history, "a") == {"cpu": [1.0, 2.0]}


def test_its_memory_is_bounded_and_as_documented() -> None:
    history = History(60.0)
    snapshot = many(500)
    for minute in range(100):
        history.observe(replace(snapshot, taken_at=NOON + 60 * minute))
    assert len(history._points) == POINTS
    for point in history._points:
        sizes = [point.states.nbytes, *(values.nbytes for _, values in point.values.values())]
        assert sizes == [501, *[2 * 501] * 3]


COOL, HOT = {"a": 10.0, "b": 5.0}, {"a": 90.0, "b": 5.0}


def test_the_changes_are_what_alerts_did_and_what_was_written_the_latest_first() -> None:
    """What is decided again between two ticks is told once, and a new node is no change."""
    changes = Changes()
    scene = Scene(RULES, [Node("a"), Node("b")])
    for at, answer in ((0, COOL), (10, COOL), *[(20, HOT)] * 3, (30, HOT), (40, COOL), (40, COOL)):
        snapshot = scene.tick(NOON + at, cpu=answer)
        changes.observe(snapshot)
    assert [(change.at - NOON, change.kind, change.value) for change in changes.latest(10)] == [
        (40, "inactive", 10.0),
        (40, "release", None),
        (20, "firing", 90.0),
        (20, "mark", None),
    ]
    assert changes.latest(10, "a") == changes.latest(10)
    assert changes.latest(10, "b") == []
    assert len(changes.latest(3)) == 3
    assert "cpu" in changes.latest(10, "a")[3].text


def test_the_number_of_changes_is_bounded() -> None:
    changes = Changes()
    scene = Scene(EXAMPLE_RULES, [Node(f"n{n}") for n in range(400)])
    hot = dict.fromkeys(scene.nodes, 99.0)
    for at in range(30):
        snapshot = scene.tick(NOON + 300 * at, node_cpu=hot if at % 2 else {}, node_mem_usage=hot)
        changes.observe(snapshot)
    assert len(changes.latest(MAX_CHANGES * 2)) == MAX_CHANGES
