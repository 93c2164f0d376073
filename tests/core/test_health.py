from __future__ import annotations

import pytest
from builders import NOON, rule_set

from dynsched.core.health import why_unhealthy
from dynsched.core.model import Snapshot


def snapshot(error: str | None = None) -> Snapshot:
    return Snapshot(
        taken_at=NOON, tick=1, duration=0.1, rule_set=rule_set(), nodes={}, rules=(), error=error
    )


def test_before_the_first_tick() -> None:
    assert why_unhealthy(None, 0, 10) == "no tick has finished yet"


@pytest.mark.parametrize(
    ("age", "interval", "reason"),
    [
        (0, 10, None),
        (30, 10, None),
        (30.6, 10, "the last tick finished 31s ago"),
        (30, 1, None),  # however short the interval, a query may take its time
        (31, 1, "the last tick finished 31s ago"),
        (180, 60, None),
        (181, 60, "the last tick finished 3m1s ago"),
        (7200, 10, "the last tick finished 2h ago"),
    ],
)
def test_a_tick_that_is_overdue(age: float, interval: float, reason: str | None) -> None:
    assert why_unhealthy(snapshot(), age, interval) == reason


def test_the_ticks_own_error() -> None:
    failed = snapshot("no rule could be queried: connection refused")
    assert why_unhealthy(failed, 1, 10) == "no rule could be queried: connection refused"


def test_overdue_says_more_than_an_old_error() -> None:
    assert why_unhealthy(snapshot("old"), 60, 10) == "the last tick finished 1m ago"
