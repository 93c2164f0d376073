"""What would clear a firing alert, in words."""

import builders
import pytest
from snapshots import NOON

from dynsched.api.why import what_clears
from dynsched.engine.model import Alert, AlertState, Quality


def rule(**changes):
    known = {"clear_threshold": 60, "keep_firing_for": "1m"}
    return builders.rule("r", **(known | changes))


def alert(**changes):
    known = {"value": 72.4, "since": NOON - 300, "updated_at": NOON, "known_at": NOON}
    told = {"state": AlertState.FIRING} | known | changes
    return Alert("r", "node", **told, compared=told["value"])


def words(a_rule, an_alert, *, holds_stale=False):
    held = {"on_stale": "hold"} if holds_stale else {}
    return what_clears(builders.rule_set(a_rule, **held), an_alert, NOON)


LEAVES = "r must fall to 60 or below (is 72.4)"
GOOD = "r needs a good sample at 60 or below (no current value: "


@pytest.mark.parametrize(
    ("of_rule", "of_alert", "text"),
    [
        ({}, {"state": AlertState.INACTIVE}, None),
        ({}, {"state": AlertState.PENDING}, None),
        ({"op": ">"}, {}, f"{LEAVES}, then stay there for 1m"),
        ({"op": ">="}, {}, "r must fall below 60 (is 72.4), then stay there for 1m"),
        (
            {"op": "<", "clear_threshold": 90},
            {},
            "r must rise to 90 or above (is 72.4), then stay there for 1m",
        ),
        (
            {"op": "<=", "clear_threshold": 90},
            {},
            "r must rise above 90 (is 72.4), then stay there for 1m",
        ),
        ({"keep_firing_for": 0}, {}, LEAVES),
        *(
            (
                {},
                {"value": 55.0, "keep_firing_since": NOON - held_for},
                f"r must stay at 60 or below (is 55) for {rest} more",
            )
            for held_for, rest in ((0, "1m"), (20, "40s"), (59.9, "1s"), (60, "1s"), (500, "1s"))
        ),
    ],
)
def test_what_clears_an_alert_of_a_known_value(of_rule, of_alert, text) -> None:
    assert words(rule(**of_rule), alert(**of_alert)) == text


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
    assert words(rule(), unknown) == f"{GOOD}{why}), or no good sample for 3m20s more"
    assert words(rule(), unknown, holds_stale=True) == f"{GOOD}{why}; on_stale: hold)"
