"""Which nodes the filter refuses, and in which words."""

import math
from typing import Any

import pytest
from builders import rule
from snapshots import NOON, Answer, Scene

from dynsched.engine.model import Node
from dynsched.engine.placing.score import Refusal, load_refusals


def refusals(*steps: tuple[float, Answer], **options: Any) -> dict[str, Refusal]:
    """After ticks at these seconds."""
    rules = {"rules": [rule("mem", **options)], "extender": {"reject": ["mem"]}}
    scene = Scene(rules, map(Node, "abc"))
    return load_refusals([scene.tick(NOON + seconds, mem=found) for seconds, found in steps][-1])


HOT, FAILED = {"a": 99.0}, "connection refused"


@pytest.mark.parametrize(
    ("options", "steps", "says"),
    [
        ({}, [(0, {"a": 91.24, "b": 80, "c": 12})], "node load high: mem 91.24 > 80"),
        ({"for_": "30s"}, [(0, HOT)], None),
        ({"for_": "30s"}, [(0, HOT), (30, HOT)], "node load high: mem 99 > 80"),
        # a held alert does not claim a value that is not
        (
            {"keep_firing_for": "5m"},
            [(0, HOT), (10, {"a": 50})],
            "node load high: mem was > 80 and is held",
        ),
        # nodes without data pass; a gap is bridged, and then the node passes
        ({}, [(0, FAILED)], None),
        ({}, [(0, {"a": math.nan})], None),
        ({}, [(0, HOT), (60, FAILED)], "node load high: mem was > 80 and is held"),
        ({}, [(0, HOT), (301, FAILED)], None),
        ({"on_stale": "hold"}, [(0, HOT), (301, FAILED)], None),
    ],
)
def test_a_firing_rule_refuses_and_says_by_how_much(options, steps, says) -> None:
    expected = {} if says is None else {"a": Refusal(says, "node load high: mem > 80")}
    assert refusals(*steps, **options) == expected
    scene = Scene({"rules": [rule("mem")]}, [Node("a")])
    assert load_refusals(scene.tick(NOON, mem=HOT)) == {}  # `reject` does not name it
