"""What would clear a firing alert."""

import builders
import pytest
from scenes import NOON

from dynsched.core.alerts import Alert, AlertState
from dynsched.core.samples import Quality
from dynsched.web.nodes import what_clears


def clears(rule=None, *, holds_stale=False, **of_alert):
    """Code and values of what clears an alert of the rule r; empty if there is nothing to clear."""
    rule = builders.rule("r", **{"clear_threshold": 60, "keep_firing_for": "1m", **(rule or {})})
    known = {"value": 72.4, "since": NOON - 300, "updated_at": NOON, "known_at": NOON}
    known |= {"quality": Quality.OK}
    fields = {"state": AlertState.FIRING} | known | of_alert
    alert = Alert("r", "node", "", **fields, compared=fields["value"])
    options = {"on_stale": "hold"} if holds_stale else {}
    found = what_clears(builders.rule_set(rule, **options), [alert], NOON)
    return [(reason.code, *reason.values[1:]) for reason in found]


@pytest.mark.parametrize(
    ("rule", "alert", "expected"),
    [
        ({}, {"state": AlertState.INACTIVE}, []),
        ({}, {"state": AlertState.PENDING}, []),
        ({"shadow": True}, {}, []),
        ({"op": ">"}, {}, [("clears_for", "<= 60", "72.4", "1m")]),
        ({"op": ">="}, {}, [("clears_for", "< 60", "72.4", "1m")]),
        ({"op": "<", "clear_threshold": 90}, {}, [("clears_for", ">= 90", "72.4", "1m")]),
        ({"op": "<=", "clear_threshold": 90}, {}, [("clears_for", "> 90", "72.4", "1m")]),
        ({"keep_firing_for": 0}, {}, [("clears", "<= 60", "72.4")]),
        *(
            (
                {},
                {"value": 55.0, "keep_firing_since": NOON - below},
                [("stays", "<= 60", "55", rest)],
            )
            for below, rest in ((0, "1m"), (20, "40s"), (59.9, "1s"), (500, "1s"))
        ),
    ],
)
def test_what_clears_an_alert_with_a_known_value(rule, alert, expected) -> None:
    assert clears(rule, **alert) == expected


@pytest.mark.parametrize("quality", [each for each in Quality if each is not Quality.OK])
def test_an_unknown_value_clears_with_a_good_sample_or_when_it_is_stale(quality) -> None:
    unknown = {"quality": quality, "known_at": NOON - 100}
    ((code, where, why, rest),) = clears(**unknown)
    assert (code, where, why.code, rest) == ("good_sample", "<= 60", quality, "3m20s")
    ((code, where, why),) = clears(holds_stale=True, **unknown)
    assert (code, where, why.code) == ("good_sample_alone", "<= 60", quality)
