"""How many writes there are in a minute, which come first, and what is tried again when."""

from collections.abc import Iterable

import pytest

from dynsched.core.marks import Action, NodePatch
from dynsched.core.pace import WriteBatch, WriteFailure, WritePace


def patch(node: str, action: Action = Action.MARK) -> NodePatch:
    return NodePatch(node, action, {"metadata": {}}, "because")


def release(node: str) -> NodePatch:
    return patch(node, Action.RELEASE)


def choose(
    pace: WritePace, due: Iterable[NodePatch], now: float, per_minute: int = 240
) -> WriteBatch:
    return pace.choose(tuple(due), per_minute, now)


def sent(chosen: WriteBatch) -> str:
    return " ".join(one.node for one in chosen.patches)


@pytest.mark.parametrize("interval", [2, 10, 30, 60])
def test_load_that_moves_between_hundreds_of_nodes_stays_within_the_bound(interval: int) -> None:
    """And reaches it, however rare the ticks are."""
    pace, due = WritePace(), [release(str(number)) for number in range(500)]
    batches = [choose(pace, due, now) for now in range(0, 180, interval)]
    counts = [len(each.patches) for each in batches]
    assert all(len(each.patches) + len(each.delayed) == 500 for each in batches)
    assert (counts[0], set(counts[1:])) == (240, {4 * interval})
    assert len(choose(pace, due, 3600).patches) == 240  # a minute's at most, after any pause


def test_a_hot_node_is_marked_at_once_and_the_others_make_up_for_it() -> None:
    pace = WritePace()
    hot = [patch(f"h{number}") for number in range(300)]
    chosen = choose(pace, [release("e"), *hot], 0.0)
    assert chosen.patches == tuple(hot)
    assert chosen.delayed == {"e": "not written yet: guard.max_writes_per_minute is 240"}
    for now in (5.0, 10.0, 15.0):
        assert sent(choose(pace, [release("e")], now)) == ""
        assert sent(choose(pace, [release("e"), patch("h")], now)) == "h"
    assert sent(choose(pace, [release("e")], 16.1)) == "e"


def test_new_marks_come_first() -> None:
    order, due = [], [release("a"), release("b"), patch("repaired", Action.REPAIR), patch("hot")]
    pace = WritePace()
    choose(pace, map(release, "123456"), -10, per_minute=6)
    for now in range(0, 60, 10):
        chosen = choose(pace, due, now, per_minute=6)
        order.append(sent(chosen))
        due = [one for one in due if one.node in chosen.delayed]
    assert order == ["hot", "a", "b", "repaired", "", ""]


def test_what_is_refused_is_tried_less_and_less_often() -> None:
    pace, tried = WritePace(), []
    failure = WriteFailure("a", "403")
    for now in range(0, 300, 2):
        chosen = choose(pace, [patch("a"), patch("b")], now)
        assert "b" in sent(chosen)
        if "a" in sent(chosen):
            tried.append(now)
            pace.refused([failure], [], now)
        else:
            assert chosen.refused == (WriteFailure("a", "403", again=True),)
    assert tried == [0, 6, 16, 36, 76, 136, 196, 256]
