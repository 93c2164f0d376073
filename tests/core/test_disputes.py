"""When somebody else decides on the same marks, and when it only looks like it."""

from collections.abc import Iterable
from typing import Final

import pytest

from dynsched.core.disputes import PUT_ON, TAKEN_OFF, TIMES, WITHIN, Disputes
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
    told = [disputes.after(patches(action), NODES, 10.0 * at) for at, action in enumerate(written)]
    assert told[-1] == ({"a": found} if found else {})
    assert not any(told[:-2])


def test_a_record_to_which_a_rule_is_added_is_no_dispute() -> None:
    disputes, body = Disputes(), {"metadata": {"annotations": {"dynsched.io/pressure": "{}"}}}
    for number in range(TIMES + 1):
        assert disputes.after([NodePatch("a", REPAIR, body, "because")], NODES, number) == {}


def test_a_dispute_is_over_when_nothing_was_undone_for_a_while() -> None:
    disputes = Disputes()
    for number in range(TIMES):
        disputes.after(patches(Action.MARK), NODES, number)
    assert disputes.after([], NODES, TIMES - 1 + WITHIN) == {"a": TAKEN_OFF}
    assert disputes.after([], NODES, TIMES + WITHIN) == {}
    assert disputes.after(patches(Action.MARK), NODES, TIMES + WITHIN) == {}
