"""Alert states as timelines, in the way of Prometheus's own tests of its rules: what the words of
the rules mean. What holds whatever comes is in `tests/faults/test_stateful.py`.

A timeline has one entry every 30 s: a value; ``_`` (the node is not in the answer); ``!`` (the
query failed); ``nan``, ``inf``; ``90@400`` (the sample is 400 s old). The states below it: ``.``
inactive, ``P`` pending, ``F`` firing, ``K`` firing, held by ``keep_firing_for``.
"""

import json
import math
from collections.abc import Iterable
from typing import Any

import pytest
from builders import NOON, named, rule, rule_set
from evaluating import Reading, RuleReadings, alerts_of, evaluate, verdicts_of
from msgspec.structs import replace

from dynsched.engine.alerting.alerts import no_alerts
from dynsched.engine.alerting.restore import adopted
from dynsched.engine.model import Alert, AlertState, Node, Quality
from dynsched.engine.nodes.mark_state import mark_state
from dynsched.rules.keys import EVIDENCE_ANNOTATION
from dynsched.rules.rule_set import RuleSet

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


def history(rules: RuleSet, entries: Iterable[tuple[float, str]]) -> str:
    """One node through ``(seconds after noon, entry)``: its state after each."""
    alerts = no_alerts()
    found = []
    for seconds, entry in entries:
        now = NOON + seconds
        alerts = evaluate(rules, {"cpu": observation(entry, now)}, named("n1"), alerts, now).alerts
        found.append(letter(alerts_of(alerts)["cpu"]["n1"]))
    return " ".join(found)


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
    entries = ((number * STEP, entry) for number, entry in enumerate(timeline.split()))
    assert history(rule_set(rule(**options)), entries) == expected


def test_the_example_of_the_documentation() -> None:
    rules = rule_set(rule(for_="1m", clear_threshold=70, keep_firing_for="2m"))
    values = {0: "91", 50: "85", 60: "88", 300: "75", 360: "64", 479: "62", 480: "62"}
    assert history(rules, values.items()) == "P P F F K K ."


def test_a_node_is_as_hot_as_the_rule_that_is_furthest_beyond_its_threshold() -> None:
    rules = rule_set(
        rule("cpu"), rule("free", op="<", threshold=20), rule("zero", threshold=0), rule("wish")
    )
    trial = rule_set(*(rule(each.name, shadow=True) for each in rules.rules))
    alerts = no_alerts()
    for now, values in ((NOON, {"cpu": "88"}), (NOON + 10, {"cpu": "84", "free": "10"})):
        readings = {name: observation(value, now) for name, value in values.items()}
        found = evaluate(rules, readings, named("n1"), alerts, now)
        alerts = found.alerts
    verdict = verdicts_of(found)["n1"]
    assert (verdict.hot, verdict.since, verdict.severity) == (True, NOON, 0.5)
    only_tried = verdicts_of(evaluate(trial, readings, named("n1"), no_alerts(), now))["n1"]
    assert (only_tried.hot, only_tried.severity) == (False, 0.0)
    readings = {"zero": observation("0.3", now)}
    alone = verdicts_of(evaluate(rules, readings, named("n1"), no_alerts(), now))["n1"]
    assert alone.severity == 0.3  # a share of the threshold, or of 1


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
    rules = rule_set(rule("cpu"), rule("memory"))
    evidence = json.dumps({"rules": [{"rule": name} for name in fired]})
    state = mark_state(Node("n1", annotations={EVIDENCE_ANNOTATION: evidence}), rules.mark)
    found = {alert.rule: alert for alert in adopted(rules, [state], NOON)}
    fires = Alert("cpu", "n1", AlertState.FIRING, NOON, NOON, NOON, quality=Quality.MISSING)
    fires = replace(fires, active_since=NOON, adopted=True)
    assert found == {name: replace(fires, rule=name) for name in names}
