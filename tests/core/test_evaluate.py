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
    "at the threshold is not over it": ({}, "79.9 80 80.1 80", ". . F ."),
    ">= ": ({"op": ">="}, "79 80 79", ". F ."),
    "<": ({"op": "<"}, "81 80 79 80 nan -inf", ". . F . . ."),
    "for: one value below starts it anew": (FOR, "90 80 90 90 90 50 90", "P . P P F . P"),
    "for: between two ticks ends at the later one": ({"for_": "45s"}, "90 90 90", "P P F"),
    "for: less than a tick": ({"for_": "1s"}, "90 90", "P F"),
    "keep: after for": ({**FOR, **KEEP}, "90 50 90 90 90 50 90 50 50 50", "P . P P F K F K K ."),
    "band: begins beyond it, pending ends in it": ({**BAND, **FOR}, "90 75 90 90 90", "P . P P F"),
    "band: stays in it, which is no cooling": (
        {**BAND, **KEEP},
        "90 60 75 60 70 60",
        "F K F K K .",
    ),
    "unknown: nothing moves before 5 m": ({}, "90 _ ! nan inf 10@400 50 _ !", "F F F F F F . . ."),
    "unknown: ends neither for nor keep": (
        {**FOR, **KEEP},
        "90 _ _ 90 50 _ _ 50",
        "P P P F K K K .",
    ),
    "stale: released after 1 m, for starts anew": (
        {**SHORT, **FOR},
        "90 _ 90 ! nan _ 90",
        "P P F F F . P",
    ),
    "stale: age counts from the sample": (SHORT, "50 90@30 _ _ 90@61 90@60", ". F F . . F"),
    "hold: kept too, until a good reading": (
        {**HOLD, **KEEP},
        "90 50 _ ! nan 90@61 50",
        "F K K K K K .",
    ),
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
