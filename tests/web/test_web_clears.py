"""What would clear a firing alert, in words."""

import pytest
from snapshots import NOON

from dynsched.core.model import Alert, AlertState, Quality
from dynsched.core.rules import Rule
from dynsched.web.explain import what_clears


def rule(**changes):
    return Rule(
        **{
            "name": "r",
            "expr": "x",
            "threshold": 80,
            "clear_threshold": 60,
            "keep_firing_for": "1m",
        }
        | changes
    )


def alert(**changes):
    known = {"value": 72.4, "since": NOON - 300, "updated_at": NOON, "known_at": NOON}
    return Alert("r", "node", **({"state": AlertState.FIRING} | known | changes))


def words(a_rule, an_alert, *, holds_stale=False):
    return what_clears(a_rule, an_alert, NOON, stale_after=300, holds_stale=holds_stale)


@pytest.mark.parametrize("state", [AlertState.INACTIVE, AlertState.PENDING])
def test_an_alert_that_does_not_fire_has_nothing_to_clear(state) -> None:
    assert words(rule(), alert(state=state)) is None


@pytest.mark.parametrize(
    ("op", "clear", "text"),
    [
        (">", 60, "r must fall to 60 or below (is 72.4), then stay there for 1m"),
        (">=", 60, "r must fall below 60 (is 72.4), then stay there for 1m"),
        ("<", 90, "r must rise to 90 or above (is 72.4), then stay there for 1m"),
        ("<=", 90, "r must rise above 90 (is 72.4), then stay there for 1m"),
    ],
)
def test_the_value_must_leave_the_band_of_its_op(op, clear, text) -> None:
    assert words(rule(op=op, clear_threshold=clear), alert()) == text


def test_without_keep_firing_for_leaving_the_band_is_enough() -> None:
    assert words(rule(keep_firing_for=0), alert()) == "r must fall to 60 or below (is 72.4)"


@pytest.mark.parametrize(
    ("held_for", "rest"), [(0, "1m"), (20, "40s"), (59.9, "1s"), (60, "1s"), (500, "1s")]
)
def test_a_held_alert_clears_when_the_rest_of_its_time_is_over(held_for, rest) -> None:
    held = alert(value=55.0, keep_firing_since=NOON - held_for)
    assert words(rule(), held) == f"r must stay at 60 or below (is 55) for {rest} more"


@pytest.mark.parametrize(
    ("quality", "why"),
    [
        (Quality.MISSING, "the query's answer does not name this node"),
        (Quality.STALE, "the last sample is too old"),
        (Quality.INVALID, "the sample is no finite number"),
        (Quality.FAILED, "the query failed"),
    ],
)
def test_what_is_unknown_clears_by_a_good_sample_or_when_it_is_stale(quality, why) -> None:
    unknown = alert(quality=quality, known_at=NOON - 100)
    assert words(rule(), unknown) == (
        f"r needs a good sample at 60 or below (no current value: {why}), "
        "or no good sample for 3m20s more"
    )
    assert words(rule(), unknown, holds_stale=True) == (
        f"r needs a good sample at 60 or below (no current value: {why}; on_stale: hold)"
    )
