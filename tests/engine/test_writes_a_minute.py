"""How many writes there are in a minute, which come first, and what is tried again when."""

from collections.abc import Iterable

from builders import NOON, answer, node, rule, unlimited

from dynsched.engine.alerting.alerts import no_alerts
from dynsched.engine.alerting.guard import Chosen, WriteLimiter
from dynsched.engine.decide import decide
from dynsched.engine.model import Action, NodePatch, WriteFailure


def patch(node: str, action: Action = Action.MARK) -> NodePatch:
    return NodePatch(node, action, {"metadata": {}}, "because")


def release(node: str) -> NodePatch:
    return patch(node, Action.RELEASE)


def choose(
    pace: WriteLimiter, due: Iterable[NodePatch], now: float, per_minute: int = 240
) -> Chosen:
    return pace.choose(tuple(due), per_minute, now)


def sent(chosen: Chosen) -> str:
    return " ".join(one.node for one in chosen.patches)


def test_load_that_moves_between_hundreds_of_nodes_stays_within_the_bound() -> None:
    pace, counts = WriteLimiter(), []
    due = [release(str(number)) for number in range(500)]
    for now in range(0, 120, 2):
        chosen = choose(pace, due, now)
        assert len(chosen.patches) + len(chosen.delayed) == 500
        counts.append(len(chosen.patches))
    assert (counts[0], set(counts[1:])) == (240, {8})
    assert len(choose(pace, due, 3600).patches) == 40


def test_a_hot_node_is_marked_at_once_and_the_others_make_up_for_it() -> None:
    pace = WriteLimiter()
    hot = [patch(f"h{number}") for number in range(300)]
    chosen = choose(pace, [release("e"), *hot], 0.0)
    assert chosen.patches == tuple(hot)
    assert chosen.delayed == {"e": "not written yet: guard.max_writes_per_minute is 240"}
    for now in (5.0, 10.0, 15.0):
        assert sent(choose(pace, [release("e")], now)) == ""
        assert sent(choose(pace, [release("e"), patch("h")], now)) == "h"
    assert sent(choose(pace, [release("e")], 16.1)) == "e"


def test_marks_come_first() -> None:
    order, due = [], [release("a"), release("b"), patch("repaired", Action.REPAIR), patch("hot")]
    pace = WriteLimiter()
    choose(pace, map(release, "123456"), -10, per_minute=6)
    for now in range(0, 60, 10):
        chosen = choose(pace, due, now, per_minute=6)
        order.append(sent(chosen))
        due = [one for one in due if one.node in chosen.delayed]
    assert order == ["repaired hot", "", "a", "b", "", ""]


def test_what_is_refused_is_tried_less_and_less_often() -> None:
    pace, tried = WriteLimiter(), []
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


def test_a_node_says_that_its_patch_waits() -> None:
    rules = unlimited(rule("cpu"))
    nodes = {name: node(name, labels={"status": "presure"}) for name in "abc"}
    decision = decide(rules, {"cpu": answer(dict.fromkeys(nodes, 5))}, nodes, no_alerts(), NOON)
    chosen = WriteLimiter().choose(decision.patches, 1, 0.0)
    assert sent(chosen) == "a"
    views = decision.without(chosen.delayed).views(nodes)
    assert views["b"].withheld == "not written yet: guard.max_writes_per_minute is 1"
    assert views["b"].due is not None
