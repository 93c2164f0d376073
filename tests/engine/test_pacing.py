"""How many writes there are in a minute, which come first, and what is tried again when."""

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import numpy as np
from builders import NOON, answer, named, rule, rule_set

from dynsched.engine.alerts import no_alerts
from dynsched.engine.decide import decide
from dynsched.engine.model import Action, NodePatch, WriteFailure
from dynsched.engine.pacing import Chosen, Pace

Severities = dict[str, float]


def patch(node: str, action: Action = Action.MARK, **options: Any) -> NodePatch:
    return NodePatch(node, action, {"metadata": {}}, "because", **options)


def early(node: str, action: Action = Action.MARK) -> NodePatch:
    return patch(node, action, early=True)


def choose(
    pace: Pace, patches: Iterable[NodePatch], now: float, per_minute: int = 240, **severity: float
) -> Chosen:
    due = tuple(patches)
    names = [one.node for one in due]
    roster = SimpleNamespace(places={name: place for place, name in enumerate(names)})
    decision: Any = SimpleNamespace(
        patches=due,
        rule_set=rule_set(guard={"max_writes_per_minute": per_minute}),
        inventory=SimpleNamespace(index=SimpleNamespace(roster=roster)),
        evaluation=SimpleNamespace(
            verdicts=SimpleNamespace(severity=np.array([severity.get(name, 0.0) for name in names]))
        ),
    )
    return pace.choose(decision, now)


def sent(chosen: Chosen) -> str:
    return " ".join(one.node for one in chosen.patches)


def test_load_that_moves_between_hundreds_of_nodes_stays_within_the_bound() -> None:
    pace, counts = Pace(), []
    due = [early(str(number)) for number in range(500)]
    for now in range(0, 120, 2):
        chosen = choose(pace, due, now)
        assert len(chosen.patches) + len(chosen.delayed) == 500
        counts.append(len(chosen.patches))
    assert (counts[0], set(counts[1:])) == (240, {8})
    assert len(choose(pace, due, 3600).patches) == 40


def test_a_hot_node_is_marked_at_once_and_the_others_make_up_for_it() -> None:
    pace = Pace()
    hot = [patch(f"h{number}") for number in range(300)]
    chosen = choose(pace, [early("e"), *hot], 0.0)
    assert chosen.patches == tuple(hot)
    assert chosen.delayed == {"e": "not written yet: guard.max_writes_per_minute is 240"}
    for now in (5.0, 10.0, 15.0):
        assert sent(choose(pace, [early("e")], now)) == ""
        assert sent(choose(pace, [early("e"), patch("h")], now)) == "h"
    assert sent(choose(pace, [early("e")], 16.1)) == "e"


def test_which_come_first() -> None:
    relieved = patch("relieved", Action.RELEASE)
    cooled = patch("cooled", Action.REPAIR, restates=True)
    due = [early("a"), early("b"), early("gone", Action.RELEASE), cooled, relieved, patch("hot")]
    order = []
    pace = Pace()
    choose(pace, map(patch, "123456"), -10, per_minute=6)
    for now in range(0, 60, 10):
        chosen = choose(pace, due, now, per_minute=6, a=0.1, b=0.3)
        order.append(sent(chosen))
        due = [one for one in due if one.node in chosen.delayed]
    assert order == ["hot", "relieved", "cooled", "gone", "b", "a"]


def test_what_is_refused_is_tried_less_and_less_often() -> None:
    pace, tried = Pace(), []
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


def test_what_was_given_up_waits_too_and_is_no_failure() -> None:
    pace = Pace()
    pace.refused([WriteFailure("a", "403")], [patch("b")], 0.0)
    chosen = choose(pace, [patch("a"), patch("b")], 4.0)
    assert (chosen.patches, len(chosen.refused)) == ((), 1)
    assert sent(choose(pace, [patch("a"), patch("b")], 5.0)) == "a b"


def test_what_is_not_due_any_more_is_forgotten() -> None:
    pace = Pace()
    pace.refused([WriteFailure("a", "403")], [], 0.0)
    choose(pace, [], 1.0)
    assert sent(choose(pace, [patch("a")], 2.0)) == "a"


def test_a_node_says_that_its_patch_waits() -> None:
    rules = rule_set(
        rule("cpu", early={}), guard={"max_marked": "100%", "max_writes_per_minute": 1}
    )
    nodes = named("a", "b", "c", "d")
    load = {"a": 75, "b": 70, "c": 5, "d": 5}
    decision = decide(rules, {"cpu": answer(load)}, nodes, no_alerts(), NOON)
    chosen = Pace().choose(decision, 0.0)
    assert sent(chosen) == "a"
    views = decision.without(chosen.delayed).views(nodes)
    assert views["b"].withheld == "not written yet: guard.max_writes_per_minute is 1"
    assert views["b"].due is not None
