"""Disputes: somebody else changes the same marks, or it only looks like it."""

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
        ([MARK, RELEASE] * 10, None),  # the load comes and goes
        ([*[MARK] * TIMES, RELEASE], None),  # our own opposite change ends the dispute
    ],
)
def test_the_same_change_several_times_in_a_row_is_a_dispute(written, found) -> None:
    disputes = Disputes()
    after = [disputes.after(patches(action), NODES, 10.0 * at) for at, action in enumerate(written)]
    assert after[-1] == ({"a": found} if found else {})
    assert not any(after[:-2])


def test_adding_a_rule_to_a_record_is_no_dispute() -> None:
    disputes, body = Disputes(), {"metadata": {"annotations": {"dynsched.io/pressure": "{}"}}}
    for number in range(TIMES + 1):
        assert disputes.after([NodePatch("a", REPAIR, body, "because")], NODES, number) == {}


def test_a_dispute_ends_if_no_change_is_undone_for_a_while() -> None:
    disputes = Disputes()
    for number in range(TIMES):
        disputes.after(patches(Action.MARK), NODES, number)
    assert disputes.after([], NODES, TIMES - 1 + WITHIN) == {"a": TAKEN_OFF}
    assert disputes.after([], NODES, TIMES + WITHIN) == {}
    assert disputes.after(patches(Action.MARK), NODES, TIMES + WITHIN) == {}
