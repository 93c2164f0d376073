"""When somebody else decides on the same marks, and when it only looks like it."""

from collections.abc import Iterable
from typing import Final

import pytest

from dynsched.core.disputes import DIFFERS, PUT_ON, TAKEN_OFF, TIMES, WITHIN, Disputes
from dynsched.core.marks import Action, NodePatch
from dynsched.core.nodes import Node

NODES: Final = {name: Node(name, uid=name) for name in "abc"}


def patches(action: Action, names: Iterable[str] = "a") -> list[NodePatch]:
    body = {"metadata": {"labels": {"status": None if action is RELEASE else "presure"}}}
    return [NodePatch(name, action, body, "because") for name in names]


MARK, REPAIR, RELEASE = Action.MARK, Action.REPAIR, Action.RELEASE


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ([MARK] * TIMES, TAKEN_OFF),
        ([MARK] * (TIMES - 1), None),
        ([RELEASE] * TIMES, PUT_ON),
        ([MARK, *[REPAIR] * (TIMES - 1)], TAKEN_OFF),
        ([MARK, RELEASE] * 10, None),  # load that comes and goes
        ([*[MARK] * TIMES, RELEASE], None),  # our own opposite ends it
    ],
)
def test_what_is_written_again_and_again_was_undone_by_somebody(written, found) -> None:
    disputes = Disputes()
    told = [
        disputes.leading(patches(action), NODES, 10.0 * at) for at, action in enumerate(written)
    ]
    assert told[-1] == ({"a": found} if found else {})
    assert not any(told[:-2])


def test_a_record_to_which_a_rule_is_added_is_no_dispute() -> None:
    disputes, body = Disputes(), {"metadata": {"annotations": {"dynsched.io/pressure": "{}"}}}
    for number in range(TIMES + 1):
        assert disputes.leading([NodePatch("a", REPAIR, body, "because")], NODES, number) == {}


def test_a_dispute_is_over_when_nothing_was_undone_for_a_while() -> None:
    disputes = Disputes()
    for number in range(TIMES):
        disputes.leading(patches(Action.MARK), NODES, number)
    assert disputes.leading([], NODES, TIMES - 1 + WITHIN) == {"a": TAKEN_OFF}
    assert disputes.leading([], NODES, TIMES + WITHIN) == {}
    assert disputes.leading(patches(Action.MARK), NODES, TIMES + WITHIN) == {}


def test_a_leader_that_leaves_undone_what_this_replica_would_do() -> None:
    disputes = Disputes()
    planned = patches(Action.MARK) + patches(Action.RELEASE, "b")
    assert disputes.following(planned, "other", 0) == {}
    assert disputes.following(planned, "other", DIFFERS - 1) == {}
    found = disputes.following(planned, "other", DIFFERS)
    assert found["a"].startswith("this replica would mark it, and other, who leads, does not")
    assert found["b"].startswith("this replica would release it")
    assert disputes.following(patches(Action.RELEASE, "b"), "other", DIFFERS + 1).keys() == {"b"}
    assert disputes.following([], "other", DIFFERS + 2) == {}
    for number in range(20):  # nobody who leads decides otherwise; a moment later is no dispute
        action = Action.MARK if number % 2 else Action.RELEASE
        assert disputes.following(patches(action), "other", number * DIFFERS / 2) == {}
    for number in range(20):
        assert disputes.following(patches(Action.MARK), None, number * DIFFERS) == {}
