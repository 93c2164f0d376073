"""What the page lists as changed."""

from scenes import NOON, Scene

from dynsched.core.nodes import Node
from dynsched.web.page.changes import Changes

RULES = {"rules": [{"name": "cpu", "expr": "x", "threshold": 80}]}
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
