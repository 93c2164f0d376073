"""Alert states as timelines, in the way of Prometheus's own tests of its rules.

A timeline has one entry every 30 s: a value; ``_`` (the node is not in the answer); ``!`` (the
query failed); ``nan``, ``inf``; ``90@400`` (the sample is 400 s old). The states below it: ``.``
inactive, ``P`` pending, ``F`` firing, ``K`` firing, held by ``keep_firing_for``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import pytest
from builders import NOON, named, rule, rule_set
from evaluating import RuleReadings, evaluate
from msgspec.structs import replace

from dynsched.core.adoption import adopt
from dynsched.core.alerts import Alerts
from dynsched.core.evaluate import Evaluation
from dynsched.core.model import Alert, AlertState, Node, Quality, Reading
from dynsched.core.rules import RuleSet

STEP = 30.0


def observation(entry: str, now: float, node: str = "n1") -> RuleReadings:
    if entry == "!":
        return RuleReadings(failed=True)
    if entry == "_":
        return RuleReadings({})
    text, _, age = entry.partition("@")
    value = float(text)
    quality = Quality.OK if math.isfinite(value) else Quality.INVALID
    return RuleReadings({node: Reading(node, value, now - float(age or 0), quality)})


def letter(alert: Alert) -> str:
    if alert.keep_firing_since is not None:
        assert alert.firing
        return "K"
    return {AlertState.INACTIVE: ".", AlertState.PENDING: "P", AlertState.FIRING: "F"}[alert.state]


def history(
    rules: RuleSet, entries: Iterable[tuple[float, str]], previous: Alerts | None = None
) -> list[Alert]:
    """One node through ``(seconds after noon, entry)``: its alert after each."""
    alerts = previous or {}
    found = []
    for seconds, entry in entries:
        now = NOON + seconds
        alerts = evaluate(rules, {"cpu": observation(entry, now)}, named("n1"), alerts, now).alerts
        found.append(alerts["cpu"]["n1"])
    return found


def play(rules: RuleSet, timeline: str, previous: Alerts | None = None) -> list[Alert]:
    entries = ((number * STEP, entry) for number, entry in enumerate(timeline.split()))
    return history(rules, entries, previous)


def states(alerts: Iterable[Alert]) -> str:
    return " ".join(map(letter, alerts))


def alert_of(value: float | None, now: float, **other: Any) -> Alert:
    """The alert of ``cpu`` on ``n1`` that became what it is at ``now``; None: by no reading."""
    plain = Alert(
        rule="cpu",
        node="n1",
        state=AlertState.INACTIVE,
        since=now,
        updated_at=now,
        known_at=now,
        value=value,
        sampled_at=None if value is None else now,
    )
    return replace(plain, **other)


BAND = {"clear_threshold": 70}
FOR = {"for_": "1m"}
KEEP = {"keep_firing_for": "1m"}
SHORT = {"stale_after": "1m"}
HOLD = {**SHORT, "on_stale": "hold"}

TIMELINES: dict[str, tuple[dict[str, Any], str, str]] = {
    # threshold 80 everywhere
    "below": ({}, "50 79.9 0 -5", ". . . ."),
    "at the threshold is not over it": ({}, "80 80.1 80", ". F ."),
    "fires at once without for": ({}, "81 79 81", "F . F"),
    ">= ": ({"op": ">="}, "79 80 79", ". F ."),
    "<": ({"op": "<"}, "81 80 79 80", ". . F ."),
    "<=": ({"op": "<="}, "81 80 79 81", ". F F ."),
    # for
    "for": (FOR, "90 90 90 90", "P P F F"),
    "for: one value below starts it anew": (FOR, "90 79 90 90 90", "P . P P F"),
    "for: at the threshold starts it anew": (FOR, "90 80 90 90 90", "P . P P F"),
    "for: between two ticks ends at the later one": ({"for_": "45s"}, "90 90 90", "P P F"),
    "for: less than a tick": ({"for_": "1s"}, "90 90", "P F"),
    "for: and clears at once": (FOR, "90 90 90 50 90", "P P F . P"),
    # keep_firing_for
    "keep": (KEEP, "90 50 50 50 50", "F K K . ."),
    "keep: hot again is firing again": (KEEP, "90 50 90 50 50 50", "F K F K K ."),
    "keep: nothing to keep in pending": ({**FOR, **KEEP}, "90 50 50", "P . ."),
    "keep: after for": ({**FOR, **KEEP}, "90 90 90 50 50 50 90", "P P F K K . P"),
    # the dead band, 70 to 80
    "band: does not begin in it": (BAND, "75 79 80", ". . ."),
    "band: stays in it": (BAND, "81 75 70.1 70 75", "F F F . ."),
    "band: pending ends in it": ({**BAND, **FOR}, "90 75 90 90 90", "P . P P F"),
    "band: is no cooling": ({**BAND, **KEEP}, "90 60 75 60 60 60", "F K F K K ."),
    "band: >=": ({"op": ">=", **BAND}, "80 70 69.9 70", "F F . ."),
    "band: <": ({"op": "<", "clear_threshold": 90}, "79 85 89.9 90 85", "F F F . ."),
    "band: <=": ({"op": "<=", "clear_threshold": 90}, "80 90 90.1 90", "F F . ."),
    # unknown: nothing moves before 5 m
    "unknown: inactive stays": ({}, "50 _ ! nan inf 50@400", ". . . . . ."),
    "unknown: firing stays": ({}, "90 _ ! nan inf -inf 10@400", "F F F F F F F"),
    "unknown: pending stays": ({"for_": "1h"}, "90 _ ! nan inf 10@400", "P P P P P P"),
    "unknown: kept stays": ({"keep_firing_for": "1h"}, "90 50 _ ! nan", "F K K K K"),
    "unknown: does not start for anew": (FOR, "90 _ 90 90", "P P F F"),
    "unknown: does not end for by itself": (FOR, "90 _ _ _ _ 90", "P P P P P F"),
    "unknown: does not end keep by itself": (KEEP, "90 50 _ _ _ 50", "F K K K K ."),
    "unknown: nan is no breach under <": ({"op": "<"}, "90 nan -inf", ". . ."),
    # and after stale_after (1 m here): released
    "stale: released after it": (SHORT, "90 _ _ _ _", "F F F . ."),
    "stale: by failed queries": (SHORT, "90 ! ! !", "F F F ."),
    "stale: by nan": (SHORT, "90 nan nan nan", "F F F ."),
    "stale: by old samples": (SHORT, "90 90@61 90@91 90@121", "F F F ."),
    "stale: mixed": (SHORT, "90 ! _ nan", "F F F ."),
    "stale: pending too": ({**SHORT, "for_": "1h"}, "90 _ _ _", "P P P ."),
    "stale: kept too": ({**SHORT, "keep_firing_for": "1h"}, "90 50 _ _ _", "F K K K ."),
    "stale: one good reading counts anew": (SHORT, "90 _ _ 90 _ _ _", "F F F F F F ."),
    "stale: back hot": (SHORT, "90 _ _ _ 90", "F F F . F"),
    "stale: back hot, for starts anew": ({**SHORT, **FOR}, "90 90 90 _ _ _ 90", "P P F F F . P"),
    "stale: a sample not older than it is good": (SHORT, "90@60 90@60", "F F"),
    "stale: age counts from the sample": (SHORT, "50 90@30 _ _", ". F F ."),
    "stale: an old sample says nothing": (SHORT, "90@61 90@300", ". ."),
    # unless on_stale is hold
    "hold: as long as it takes": (HOLD, "90 " + "_ ! nan " * 4, "F " * 13),
    "hold: ends with a good reading": (HOLD, "90 _ _ _ _ 50", "F F F F F ."),
    "hold: kept is held too": ({**HOLD, **KEEP}, "90 50 _ _ _ _", "F K K K K K"),
    "hold: pending is no mark to hold": ({**HOLD, "for_": "1h"}, "90 _ _ _", "P P P ."),
}


@pytest.mark.parametrize(
    ("options", "timeline", "expected"), TIMELINES.values(), ids=TIMELINES.keys()
)
def test_timeline(options: dict[str, Any], timeline: str, expected: str) -> None:
    assert states(play(rule_set(rule(**options)), timeline)) == expected.strip()


def test_the_example_of_the_documentation() -> None:
    rules = rule_set(rule(for_="1m", clear_threshold=70, keep_firing_for="2m"))
    values = {0: "91", 50: "85", 60: "88", 300: "75", 360: "64", 479: "62", 480: "62"}
    assert states(history(rules, values.items())) == "P P F F K K ."


@pytest.mark.parametrize(
    ("entry", "quality"),
    [
        ("90", Quality.OK),
        ("_", Quality.MISSING),
        ("!", Quality.FAILED),
        ("nan", Quality.INVALID),
        ("-inf", Quality.INVALID),
        ("90@301", Quality.STALE),
        ("nan@301", Quality.INVALID),
    ],
)
def test_quality(entry: str, quality: Quality) -> None:
    for before in ("50", "90"):
        assert play(rule_set(), f"{before} {entry}")[-1].quality is quality


def test_what_an_alert_tells() -> None:
    rules = rule_set(rule(for_="1m", keep_firing_for="1m"))
    cool, begun, fired, unknown, kept, over = (
        play(rules, "50 90 95 99 nan 60@5 60 60")[place] for place in (0, 1, 3, 4, 5, 7)
    )
    at = [NOON + STEP * number for number in range(8)]
    assert cool == alert_of(50, at[0])
    assert begun == alert_of(90, at[1], state=AlertState.PENDING, active_since=at[1])
    firing = alert_of(99, at[3], state=AlertState.FIRING, active_since=at[1])
    assert fired == firing
    assert unknown == replace(firing, updated_at=at[4], quality=Quality.INVALID)
    assert kept == replace(
        firing,
        updated_at=at[5],
        known_at=at[5] - 5,
        value=60,
        sampled_at=at[5] - 5,
        keep_firing_since=at[5],
    )
    assert over == alert_of(60, at[7])


# Reload


RELOADS: dict[str, tuple[dict[str, Any], str, dict[str, Any], str, str]] = {
    "threshold raised": ({}, "85", {"threshold": 90}, "85", "."),
    "threshold raised, kept": (KEEP, "85", {**KEEP, "threshold": 90}, "85 85 85", "K K ."),
    "threshold raised, band": ({}, "85", {"threshold": 90, "clear_threshold": 80}, "85", "F"),
    "threshold lowered": ({}, "75", {"threshold": 70}, "75", "F"),
    "threshold lowered with for": (FOR, "75", {**FOR, "threshold": 70}, "75 75 75", "P P F"),
    "for raised while firing": ({}, "90", {"for_": "1h"}, "90 90", "F F"),
    "for raised while pending": (FOR, "90 90", {"for_": "2m"}, "90 90 90", "P P F"),
    "for lowered while pending": ({"for_": "1h"}, "90 90", {"for_": "30s"}, "90", "F"),
    "for lowered while pending, cool": ({"for_": "1h"}, "90 90", {"for_": "30s"}, "50", "."),
    "keep raised": (KEEP, "90 50", {"keep_firing_for": "2m"}, "50 50 50 50", "K K K ."),
    "keep lowered": ({"keep_firing_for": "1h"}, "90 50 50", KEEP, "50", "."),
    "op turned": ({}, "90", {"op": "<"}, "90 70", ". F"),
    "expr changed": ({}, "90", {"expr": "other"}, "_ 90", "F F"),
    "stale_after lowered": ({}, "90 _ _ _", SHORT, "_", "."),
    "hold taken away": (HOLD, "90 _ _ _ _", SHORT, "_", "."),
}


@pytest.mark.parametrize(
    ("before", "timeline", "after", "then", "expected"), RELOADS.values(), ids=RELOADS.keys()
)
def test_a_reload_carries_the_state_over(
    before: dict[str, Any], timeline: str, after: dict[str, Any], then: str, expected: str
) -> None:
    (*_, last) = play(rule_set(rule(**before)), timeline)
    gone = len(timeline.split())
    entries = ((STEP * (gone + number), entry) for number, entry in enumerate(then.split()))
    alerts = history(rule_set(rule(**after)), entries, {"cpu": {"n1": last}})
    assert states(alerts) == expected


# Adoption


@pytest.mark.parametrize(
    ("fired", "names"),
    [
        (["cpu"], {"cpu"}),
        (["cpu", "memory"], {"cpu", "memory"}),
        (["memory", "gone"], {"memory"}),
        (["gone"], {"cpu", "memory"}),
        ([], {"cpu", "memory"}),
    ],
)
def test_which_rules_are_adopted(fired: list[str], names: set[str]) -> None:
    adopted = adopt(rule_set(rule("cpu"), rule("memory")), Node("n1"), fired, NOON)
    fires = alert_of(None, NOON, state=AlertState.FIRING, quality=Quality.MISSING)
    assert adopted == {
        name: replace(fires, rule=name, active_since=NOON, adopted=True) for name in names
    }


@pytest.mark.parametrize(
    ("options", "timeline", "expected"),
    [
        ({}, "90 50", "F ."),
        ({"for_": "1h"}, "90 90", "F F"),
        ({}, "50", "."),
        (BAND, "75 69", "F ."),
        (KEEP, "50 50 50", "K K ."),
        ({}, "_ ! 90 _", "F F F F"),
        (SHORT, "_ _ _ _", "F F F ."),
        (HOLD, "_ _ _ _ _", "F F F F F"),
    ],
)
def test_what_is_adopted_fires_until_it_clears(
    options: dict[str, Any], timeline: str, expected: str
) -> None:
    """And counts as adopted until the first good reading."""
    rules = rule_set(rule(**options))
    previous = {"cpu": {"n1": adopt(rules, Node("n1"), ["cpu"], NOON)["cpu"]}}
    found = play(rules, timeline, previous)
    assert states(found) == expected
    good = [entry not in "_!" for entry in timeline.split()]
    released = [letter(alert) == "." for alert in found]
    assert [alert.adopted for alert in found] == [
        not any(good[: at + 1]) and not released[at] for at in range(len(found))
    ]


# Clock


@pytest.mark.parametrize(
    ("options", "entries", "expected"),
    [
        ({}, [(3600, "90"), (0, "50"), (30, "90")], "F . F"),  # samples of the new time count
        ({}, [(0, "90"), (3600, "90"), (7200, "_")], "F F ."),
        (SHORT, [(0, "90@-3600"), (30, "_"), (61, "_")], "F F ."),  # a sample from the future
    ],
)
def test_a_clock_that_jumps(
    options: dict[str, Any], entries: list[tuple[float, str]], expected: str
) -> None:
    assert states(history(rule_set(rule(**options)), entries)) == expected


def test_the_clock_steps_back_and_nothing_in_an_alert_does() -> None:
    rules = rule_set(rule(for_="1m", keep_firing_for="1m"))
    entries = [(600, "90"), (630, "90"), (30, "90"), (60, "_"), (660, "90"), (0, "50"), (720, "50")]
    alerts = history(rules, entries)
    assert states(alerts) == "P P P P F K ."
    updated = [alert.updated_at - NOON for alert in alerts]
    assert updated == [600, 630, 630, 630, 660, 660, 720]


def test_the_verdict_of_a_node_on_which_several_rules_fire() -> None:
    """Since the first of them, and as hot as the worst; never below zero."""
    rules = rule_set(rule("cpu", clear_threshold=40), rule("free", op="<", threshold=1000))
    alerts: Alerts = {}
    found = []
    for number, (cpu, free) in enumerate(
        [("50", "750"), ("88", "750"), ("88", "2000"), ("50", "2000"), ("9", "2000")]
    ):
        now = NOON + number * STEP
        observations = {"cpu": observation(cpu, now), "free": observation(free, now)}
        result = evaluate(rules, observations, named("n1"), alerts, now)
        alerts = result.alerts
        verdict = result.verdicts["n1"]
        assert [alert.rule for alert in verdict.alerts] == ["cpu", "free"]
        found.append((verdict.pressured, verdict.since, round(verdict.severity, 9)))
    later = NOON + STEP
    assert found == [
        (True, NOON, 0.25),
        (True, NOON, 0.25),
        (True, later, 0.1),
        (True, later, 0),
        (False, None, 0),
    ]


def test_no_nodes_and_nodes_that_a_rule_does_not_select() -> None:
    assert evaluate(rule_set(), {}, {}, {}, NOON) == Evaluation({"cpu": {}}, {})
    rules = rule_set(rule("all"), rule("some", selector="x"))
    nodes = {"a": Node("a", labels={"x": ""}), "b": Node("b")}
    found = evaluate(rules, {}, nodes, {}, NOON)
    assert (len(found.alerts), len(found.verdicts)) == (2, 2)
    assert [set(found.alerts[name]) for name in ("all", "some")] == [{"a", "b"}, {"a"}]
    assert found.alerts["some"].get("b") is None
