"""Alert states: timelines that show what the keys of a rule mean, as in Prometheus's own rule
tests, and properties that hold for all input.

A timeline has one entry every 30 s: a value; ``_`` (the node is not in the answer); ``!`` (the
query failed); ``nan``, ``inf``; ``90@400`` (the sample is 400 s old). Its states are ``.``
inactive, ``P`` pending, ``F`` firing, ``K`` kept firing by ``keep_firing_for``.
"""

import math
from collections.abc import Iterable
from typing import Any

import pytest
from builders import NOON, rule, rule_set
from hypothesis import given
from hypothesis import strategies as st

from dynsched.core.alerts import Alert, AlertState, new_alert, next_alert
from dynsched.core.samples import FAILED, MISSING, Quality, Reading
from dynsched.rules.rule_set import Rule

STEP = 30.0


def reading(entry: str, now: float) -> Reading:
    if entry in ("!", "_"):
        return FAILED if entry == "!" else MISSING
    text, _, age = entry.partition("@")
    quality = Quality.OK if math.isfinite(float(text)) else Quality.INVALID
    return Reading(float(text), now - float(age or 0), quality)


def letter(alert: Alert) -> str:
    if alert.keep_firing_since is not None:
        assert alert.firing
        return "K"
    return {AlertState.INACTIVE: ".", AlertState.PENDING: "P", AlertState.FIRING: "F"}[alert.state]


def history(options: dict[str, Any], entries: Iterable[tuple[float, str]]) -> list[Alert]:
    """The alert after each pair ``(seconds after noon, entry)``."""
    (of,) = rule_set(rule(**options)).rules
    alert, found = new_alert("cpu", "n1", "1", NOON), []
    for seconds, entry in entries:
        alert = next_alert(alert, of, reading(entry, NOON + seconds), NOON + seconds)
        found.append(alert)
    return found


BAND = {"clear_threshold": 70}
FOR = {"for_": "1m"}
KEEP = {"keep_firing_for": "1m"}
SHORT = {"stale_after": "1m"}
HOLD = {**SHORT, "on_stale": "hold"}

TIMELINES: dict[str, tuple[dict[str, Any], str, str]] = {
    # threshold 80 everywhere
    "a value at the threshold is not over it": ({}, "79.9 80 80.1 80", ". . F ."),
    ">=": ({"op": ">="}, "79 80 79", ". F ."),
    "<": ({"op": "<"}, "81 80 79 80 nan -inf", ". . F . . ."),
    "for: one value below restarts it": (FOR, "90 80 90 90 90 50 90", "P . P P F . P"),
    "for: ends at the first tick after it": ({"for_": "45s"}, "90 90 90", "P P F"),
    "for: shorter than a tick": ({"for_": "1s"}, "90 90", "P F"),
    "keep: after for": ({**FOR, **KEEP}, "90 50 90 90 90 50 90 50 50 50", "P . P P F K F K K ."),
    "band: does not start or keep pending": ({**BAND, **FOR}, "90 75 90 90 90", "P . P P F"),
    "band: keeps firing and restarts keep_firing_for": (
        {**BAND, **KEEP},
        "90 60 75 60 70 60",
        "F K F K K .",
    ),
    "unknown: no change within 5 m": ({}, "90 _ ! nan inf 10@400 50 _ !", "F F F F F F . . ."),
    "unknown: for and keep go on": (
        {**FOR, **KEEP},
        "90 _ _ 90 50 _ _ 50",
        "P P P F K K K .",
    ),
    "stale: released after 1 m, for restarts": (
        {**SHORT, **FOR},
        "90 _ 90 ! nan _ 90",
        "P P F F F . P",
    ),
    "stale: age counts from the sample": (SHORT, "50 90@30 _ _ 90@61 90@60", ". F F . . F"),
    "hold: also during keep, until a good reading": (
        {**HOLD, **KEEP},
        "90 50 _ ! nan 90@61 50",
        "F K K K K K .",
    ),
    "hold: does not apply to pending": ({**HOLD, "for_": "1h"}, "90 _ _ _", "P P P ."),
}


@pytest.mark.parametrize(
    ("options", "timeline", "expected"), TIMELINES.values(), ids=TIMELINES.keys()
)
def test_timeline(options: dict[str, Any], timeline: str, expected: str) -> None:
    entries = [(number * STEP, entry) for number, entry in enumerate(timeline.split())]
    assert " ".join(map(letter, history(options, entries))) == expected


def test_the_example_in_the_documentation() -> None:
    options = {"for_": "1m", "clear_threshold": 70, "keep_firing_for": "2m"}
    values = {0: "91", 50: "85", 60: "88", 300: "75", 360: "64", 479: "62", 480: "62"}
    assert "".join(map(letter, history(options, values.items()))) == "PPFFKK."


def test_an_alert_keeps_its_last_good_value_and_the_start_of_its_state() -> None:
    options = {"for_": "30s", "keep_firing_for": "1m"}
    entries = [(0, "90@5"), (30, "95@10"), (60, "_"), (90, "40@1"), (120, "!")]
    *_, alert = history(options, entries)
    assert alert == Alert(
        *("cpu", "n1", "1", AlertState.FIRING),
        since=NOON + 30,
        updated_at=NOON + 120,
        known_at=NOON + 89,
        quality=Quality.FAILED,
        value=40.0,
        compared=40.0,
        sampled_at=NOON + 89,
        active_since=NOON,
        keep_firing_since=NOON + 90,
    )
    assert alert.good_value is None


def test_the_expected_value_is_compared_and_the_measured_one_is_kept() -> None:
    (of,) = rule_set(rule()).rules
    found = Reading(74.0, NOON, Quality.OK, expected=86.0)
    alert = next_alert(new_alert("cpu", "n1", "", NOON), of, found, NOON)
    assert (alert.firing, alert.value, alert.compared) == (True, 74.0, 86.0)


@pytest.mark.parametrize("seconds", [3600.0, -3600.0])
def test_all_times_of_an_alert_move_when_the_clock_is_set(seconds: float) -> None:
    times = ("since", "updated_at", "known_at", "sampled_at", "active_since", "keep_firing_since")
    for before in history({"for_": "1s", "keep_firing_for": "1m"}, [(0, "90"), (9, "9"), (9, "9")]):
        after = before.shifted(seconds)
        for time in times:
            old = getattr(before, time)
            assert getattr(after, time) == (None if old is None else old + seconds), time
        assert (after.state, after.value, after.uid) == (before.state, before.value, before.uid)


OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "for_": st.sampled_from(["10s", "1m"]),
        "keep_firing_for": st.sampled_from(["10s", "1m"]),
        "clear_threshold": st.just(70),
        "on_stale": st.just("hold"),
        "stale_after": st.just("1m"),
        "op": st.sampled_from([">", ">="]),
    },
)
ENTRIES = st.sampled_from(["90", "75", "80", "50", "90@50", "90@70", "_", "!", "nan", "-inf"])


@given(OPTIONS, st.lists(st.tuples(st.integers(-30, 90), ENTRIES), max_size=20))
def test_invariants_of_an_alert_hold_for_any_readings_and_clock_steps(
    options: dict[str, Any], steps: list[tuple[int, str]]
) -> None:
    (of,) = rule_set(rule(**options)).rules
    now, alert = NOON, new_alert("cpu", "n1", "", NOON)
    for passed, entry in steps:
        now += passed
        found, before = reading(entry, now), alert
        alert = next_alert(before, of, found, now)
        assert alert.updated_at == max(before.updated_at, now)
        assert before.known_at <= alert.known_at <= alert.updated_at
        assert before.since <= alert.since <= alert.updated_at
        assert (alert.since == before.since) or alert.state is not before.state
        assert (alert.active_since is None) is (alert.state is AlertState.INACTIVE)
        assert alert.firing or alert.keep_firing_since is None
        if alert.quality is Quality.OK:
            assert _may_follow(of, before, alert, found.value)
        elif alert.state is not before.state:  # without good readings an alert can only end
            assert alert.state is AlertState.INACTIVE
            assert alert.updated_at - alert.known_at > of.stale_after
            assert not before.firing or of.on_stale == "release"


def _may_follow(of: Rule, before: Alert, after: Alert, value: float) -> bool:
    if before.firing:
        return after.firing or not of.holds(value)
    return (after.state is AlertState.INACTIVE) is not of.breached(value)
