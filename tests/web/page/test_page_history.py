"""The last hour that the page shows: what is kept, at which step, and in how much memory."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from properties import steady
from scenes import NOON, Scene

from dynsched.core.nodes import Node
from dynsched.web.page.history import POINTS, STEP, Changes, History

CPU = {"name": "cpu", "expr": "x", "threshold": 80}
RULES = {"rules": [CPU]}


def values(history, node):
    """By rule; None for no node."""
    return history.past([node])["nodes"].get(node, {}).get("values")


def ticked(history, start, end):
    """Ticks every 10 s; the value tells the time."""
    scene = Scene(RULES, [Node("a")])
    for at in range(start, end, 10):
        history.observe(scene.tick(NOON + at, cpu={"a": float(at % 100)}))


def test_the_step_grows_to_a_minute_and_no_more_than_an_hour_is_kept() -> None:
    """A process that just began shows its first minutes finely."""
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


@steady(80)
@given(
    ticks=st.lists(
        st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 3), max_size=8), max_size=20
    )
)
def test_nodes_that_come_and_go_never_show_the_values_of_others(ticks) -> None:
    """``ticks``: the nodes that there are in each, with their uids."""
    history, kept = History(60.0), {}
    for at, uids in enumerate(ticks):
        nodes = {name: Node(name, uid=str(uid)) for name, uid in uids.items()}
        known = {node: float(10 * at + number) for number, node in enumerate(nodes)}
        history.observe(Scene(RULES, nodes.values()).tick(NOON + 60 * at, cpu=known))
        kept = {key: [*kept.get(key, [None] * at), known[key[0]]] for key in uids.items()}
        for name in "abcdefgh":
            expected = [past for (node, _), past in kept.items() if node == name]
            assert values(history, name) == ({"cpu": expected[0]} if expected else None)


def test_a_clock_that_is_set_back_does_not_stop_it() -> None:
    history = History(60.0)
    scene = Scene(RULES, [Node("a")])
    for at, value in ((NOON, 1.0), (NOON - 3600, 2.0)):
        history.observe(scene.tick(at, cpu={"a": value}))
    assert values(history, "a") == {"cpu": [1.0, 2.0]}


COOL, HOT = {"a": 10.0, "b": 5.0}, {"a": 90.0, "b": 5.0}


def test_the_changes_are_what_alerts_did_and_what_was_written_the_latest_first() -> None:
    """What is decided again between two ticks is told once, and a new node is no change."""
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
