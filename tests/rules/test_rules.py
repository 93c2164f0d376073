"""The schema of rules.yaml. test_rules_files has the texts of the errors."""

import math
import re
from typing import Any

import pytest
import yaml
from builders import rule, rule_set
from hypothesis import given
from hypothesis import strategies as st
from programs import ROOT
from properties import steady

from dynsched.rules.fields import IntOrPercent
from dynsched.rules.labels import LabelMark, Mark, Selector, TaintMark, parse_selector
from dynsched.rules.parse import parse_rules
from dynsched.rules.rule_errors import RulesInvalidError


def errors_of(data: object) -> list[str]:
    with pytest.raises(RulesInvalidError) as caught:
        parse_rules(data)
    return [str(error) for error in caught.value.errors]


def test_the_defaults_are_as_documented() -> None:
    rules = rule_set()
    assert rules.mark == Mark(LabelMark("status", "presure"), None)
    assert (rules.nodes.selector, rules.nodes.include_control_plane) == (Selector(), False)
    shares = IntOrPercent(0.5, is_share=True), IntOrPercent(0.25, is_share=True)
    assert (rules.guard.max_marked, rules.guard.max_releases) == shares
    assert (rules.stale_after, rules.on_stale, rules.guard.pool_label) == (300, "release", None)
    extender = rules.extender
    assert (extender.require_label, extender.reject, extender.profiles) == (None, (), {})
    (found,) = rules.rules
    assert (found.source, found.resource, found.op) == ("prometheus", None, ">")
    assert (found.clear_threshold, found.hold_duration, found.keep_firing_for) == (80, 0, 0)
    assert (found.node_label, found.node_labels) == (None, ("node", "instance"))
    assert (found.stale_after, found.on_stale) == (300, "release")


def test_a_rules_file_of_dynamic_scheduler_is_read() -> None:
    """It marks nodes as dynamicScheduler did, and keys that had no effect there are ignored."""
    raw = yaml.safe_load((ROOT / "tests/rules/first-project.yaml").read_text())
    expected = parse_rules(raw)
    assert expected.mark == Mark(LabelMark("status", "presure"), None)
    assert [
        (each.name, each.op, each.threshold, each.hold_duration) for each in expected.rules
    ] == [
        ("Node_cpu1", ">", 70, 0),
        ("Node_mem", ">", 70, 0),
    ]
    raw["Rulename"]["Node_mem"] |= {"Threshold": "70", "Comment": "x"}
    assert parse_rules({**raw, "PromJob": 3, "Anything": []}) == expected


@pytest.mark.parametrize(
    ("path", "written", "read"),
    [
        ("stale_after", "1h30m", 5400),
        ("guard.max_marked", "12.5%", IntOrPercent(0.125, is_share=True)),
        ("guard.max_marked", 0, IntOrPercent(0)),
        ("nodes.selector", "pool=batch,!gpu", parse_selector("pool=batch,!gpu")),
        ("mark", {}, rule_set().mark_rules),
        ("extender", {}, rule_set().extender),
        ("mark.label", "load=high", LabelMark("load", "high")),
        ("mark.taint", "dynsched.io/a=b:PreferNoSchedule", TaintMark("dynsched.io/a", "b")),
        ("extender.reject", ["cpu"], ("cpu",)),
    ],
)
def test_a_key_of_the_file_is_parsed(path: str, written: object, read: object) -> None:
    *section, key = path.split(".")
    sections = {section[0]: {key: written}} if section else {key: written}
    found: Any = rule_set(rule("cpu"), **sections)
    for part in (*section, key):
        found = getattr(found, "mark_rules" if part == "mark" else part)
    assert found == read


@pytest.mark.parametrize(
    ("key", "written", "attribute", "read"),
    [
        ("for", "2m", "hold_duration", 120),
        ("for", 0, "hold_duration", 0),
        ("keep_firing_for", "500ms", "keep_firing_for", 0.5),
        ("node_label", "host", "node_labels", ("host",)),
        ("name", "节点 cpu", "name", "节点 cpu"),
        ("expr", 'a{b="{}"} > 1', "expr", 'a{b="{}"} > 1'),
    ],
)
def test_a_key_of_a_rule_is_parsed(key: str, written: object, attribute: str, read: object) -> None:
    (found,) = rule_set(rule(**{key: written})).rules
    assert getattr(found, attribute) == read


@pytest.mark.parametrize(
    ("key", "own", "files", "counts"),
    [
        ("stale_after", None, "2m", 120),
        ("stale_after", "30s", "2m", 30),
        ("on_stale", None, "hold", "hold"),
        ("on_stale", "release", "hold", "release"),
    ],
)
def test_a_value_of_the_rule_overrides_that_of_the_file(
    key: str, own: str | None, files: str, counts: object
) -> None:
    (found,) = rule_set(rule(**({} if own is None else {key: own})), **{key: files}).rules
    assert getattr(found, key) == counts


@pytest.mark.parametrize(
    ("op", "clear", "breached", "holds"),
    [
        (">", 80, {81, 90, 91}, {81, 90, 91}),
        (">=", 80, {80, 81, 90, 91}, {80, 81, 90, 91}),
        ("<", 80, {69, 70, 79}, {69, 70, 79}),
        ("<=", 80, {69, 70, 79, 80}, {69, 70, 79, 80}),
        (">", 70, {81, 90, 91}, {79, 80, 81, 90, 91}),
        (">=", 70, {80, 81, 90, 91}, {70, 79, 80, 81, 90, 91}),
        ("<", 90, {69, 70, 79}, {69, 70, 79, 80, 81}),
        ("<=", 90, {69, 70, 79, 80}, {69, 70, 79, 80, 81, 90}),
    ],
)
def test_which_values_breach_a_threshold_and_which_keep_an_alert(
    op, clear, breached, holds
) -> None:
    (found,) = rule_set(rule(op=op, clear_threshold=clear)).rules
    values = {69, 70, 79, 80, 81, 90, 91}
    assert set(filter(found.breached, values)) == breached
    assert set(filter(found.holds, values)) == holds
    assert not found.breached(None)


@pytest.mark.parametrize(
    ("op", "threshold", "value", "distance"),
    [
        (">", 80, 100, 0.25),
        (">=", 80, 60, -0.25),
        ("<", 1000, 750, 0.25),
        (">", 0, 3, 3),
        ("<", -10, -15, 0.5),
        (">", 1e-308, 1e308, math.inf),
    ],
)
def test_the_distance_from_the_threshold_is_a_share_of_it(op, threshold, value, distance) -> None:
    (found,) = rule_set(rule(op=op, threshold=threshold)).rules
    assert found.distance(value) == pytest.approx(distance)
    assert found.excess(value) == pytest.approx(max(0, distance))


REFUSED: list[tuple[str, list[object]]] = [
    ("stale_after", ["0s", 300, "300y"]),
    ("on_stale", ["keep"]),
    ("mark.label", ["presure", {"key": "a"}]),
    ("mark.taint", ["hot", {}]),
    ("nodes.selector", ["pool is batch", {"pool": "batch"}]),
    ("nodes.include_control_plane", ["no"]),
    ("guard.max_marked", ["150%", "10", -1, 0.25, 1_000_001]),
    ("guard.pool_label", [1]),
    ("extender", [1]),
    ("extender.require_label", [""]),
    ("extender.reject", ["cpu"]),
    ("extender.reject[0]", [[7], ["disk"]]),
    ("extender.profiles", [["default"]]),
    ("extender.profiles[1]", [{1: {"score": {"cpu": 1}}}]),
    ("extender.profiles.a.score", [{"a": {}}, {"a": {"score": ["cpu"]}}]),
    ("extender.profiles.a.method", [{"a": {"score": {"cpu": 1}, "method": "log"}}]),
    (
        "extender.profiles.a.score.cpu",
        [{"a": {"score": {"cpu": weight}}} for weight in (math.inf, -1, "high", 1e300)],
    ),
    ("extender.profiles.a.score.disk", [{"a": {"score": {"disk": 1}}}]),
    ("order.score", [{"cpu": 0}, None]),
    ("rules[0].name", ["", " cpu", "c" * 101, 7]),
    ("rules[0].expr", [" ", 1, None]),
    ("rules[0].threshold", [math.nan, math.inf, "80", "80%", True]),
    ("rules[0].clear_threshold", [90, None]),
    ("rules[0].full_at", [0]),
    ("rules[0].op", ["==", ">\n"]),
    ("rules[0].for", [30, True, ["30s"], "soon", "-30s", "30m1h"]),
    ("rules[0].stale_after", [0]),
    ("rules[0].on_stale", [False]),
    ("rules[0].source", ["influx"]),
    ("rules[0].resource", ["disk"]),
    ("rules[0].node_label", [""]),
]


@pytest.mark.parametrize(
    ("where", "written"), [(path, value) for path, values in REFUSED for value in values]
)
def test_a_bad_value_is_an_error_at_its_key(where: str, written: object) -> None:
    *parents, key = re.sub(r"^(extender\.(?:reject|profiles)|order\.score).*", r"\1", where).split(
        "."
    )
    if parents == ["rules[0]"]:
        data: dict[str, Any] = {"rules": [{**rule("cpu"), key: written}]}
    else:
        data = {
            "rules": [rule("cpu")],
            **({parents[0]: {key: written}} if parents else {key: written}),
        }
    (error,) = errors_of(data)
    assert error.startswith(f"{where}: ")


def test_one_error_does_not_cause_another() -> None:
    """Defaults that depend on a bad field, and references to a bad rule, are not reported too.
    Braces in a value are plain text.
    """
    data = {
        "rules": [rule("cpu", threshold="x", op="=", source="y")],
        "nodes": {"selector": "{message} {0}"},
        "extender": {"reject": ["cpu"], "profiles": {"default": {"score": {"cpu": 1}}}},
    }
    found = errors_of(data)
    assert "nodes.selector: '{message} {0}' is not a label selector" in found[0]
    assert [text.split(":")[0] for text in found] == [
        "nodes.selector",
        "rules[0].source",
        "rules[0].op",
        "rules[0].threshold",
    ]


@pytest.mark.parametrize(
    ("section", "path"),
    [
        ({"extender": {"reject": ["trial"]}}, "extender.reject[0]"),
        (
            {"extender": {"profiles": {"default": {"score": {"trial": 1}}}}},
            "extender.profiles.default.score.trial",
        ),
        ({"order": {"score": {"trial": 1}}}, "order.score.trial"),
    ],
)
def test_a_shadow_rule_cannot_be_used_to_place_pods(section: dict[str, Any], path: str) -> None:
    (error,) = errors_of({"rules": [rule("trial", shadow=True), rule("cpu")], **section})
    assert error.startswith(f"{path}: ")


NUMBERS = st.floats(-1e6, 1e6)


@steady(100)
@given(st.sampled_from([">", ">=", "<", "<="]), NUMBERS, NUMBERS, NUMBERS)
def test_a_clear_threshold_is_an_error_or_makes_a_dead_band(op, threshold, clear, value) -> None:
    raw = rule(op=op, threshold=threshold, clear_threshold=clear)
    upward = op in (">", ">=")
    if clear != threshold and (clear > threshold) is upward:
        (text,) = errors_of({"rules": [raw]})
        assert text.startswith("rules[0].clear_threshold: ")
        return
    (found,) = rule_set(raw).rules
    assert found.holds(value) or not found.breached(value)
    assert found.distance(value) >= 0 or not found.breached(value)
