"""benchmarks/descheduler.py: what it takes for the verdict on a node, and when it is content."""

from __future__ import annotations

import pytest
from descheduler import BOTH, Result, Scene, verdict

pytestmark = pytest.mark.thorough


@pytest.mark.parametrize(
    ("marked", "state", "value", "expected"),
    [
        (True, "firing", 95.0, 1.0),
        (True, "firing", 75.0, 1.0),  # in the dead band: hot until it has cleared
        (True, "firing", 65.0, 0.5),  # held by keep_firing_for
        (False, "firing", 95.0, 0.5),  # over the cap
        (False, "pending", 95.0, 0.5),
        (False, "inactive", 60.0, 0.0),
        (True, "inactive", 60.0, 0.5),  # released in a moment
    ],
)
def test_the_verdict_on_a_node(*, marked: bool, state: str, value: float, expected: float) -> None:
    assert verdict({"marked": marked, "rules": [{"state": state, "value": value}]}) == expected


@pytest.mark.parametrize(
    ("needed", "evictions", "cycles", "returned", "met"),
    [
        (4, 6, 3, 0, True),
        (4, 7, 3, 0, False),
        (4, 4, None, 0, False),
        (4, 4, 2, 1, False),
        (0, 0, None, 0, True),
        (0, 1, None, 0, False),
        (None, 26, None, 0, True),
    ],
)
def test_when_a_target_is_met(
    *, needed: int | None, evictions: int, cycles: int | None, returned: int, met: bool
) -> None:
    result = Result(Scene("a", [], mark=BOTH, needed=needed), evictions, cycles, returned)
    assert (result.misses() is None) is met
