"""The schema of rules.yaml. What is refused, with its words, is in test_rules_files."""

from __future__ import annotations

import math
from typing import Any

import pytest
import yaml
from builders import rule, rule_set
from hypothesis import given
from hypothesis import strategies as st
from properties import steady

from dynsched.core.labels import LabelMark, Mark, Selector, TaintMark, parse_selector
from dynsched.core.parsing import parse_rules
from dynsched.core.rule_errors import RuleError, RulesInvalidError
from dynsched.core.rule_fields import Limit
from dynsched.core.rules import Rule, RuleSet

EVERY_KEY = """
mark:
  label: status=presure
  taint: null                    # e.g. dynsched.io/pressure=true:PreferNoSchedule
nodes:
  selector: ""                   # label selector of eligible nodes
  include_control_plane: false
guard:
  max_marked: 50%                # or a number of nodes
  pool_label: null
  max_releases: 25%
stale_after: 5m
rules:
  - name: node-cpu
    expr: (1 - sum by (instance) (rate(node_cpu_seconds_total{mode="idle"}[1m])) / sum by (instance) (rate(node_cpu_seconds_total[1m]))) * 100
    op: ">"                      # > >= < <=   (< for memory.available)
    threshold: 70
    clear_threshold: 60          # default: threshold
    for: 30s                     # default 0s
    keep_firing_for: 1m          # default 0s
    node_label: instance         # which sample label names the node; default: node, then instance
  - name: node-mem-usage
    source: metrics-server       # default: prometheus
    resource: memory             # cpu | memory: usage in % of allocatable
    threshold: 85
extender:
  require_label: null            # /filter keeps only nodes that carry this label key
  reject: []                     # rules whose firing makes /filter reject the node
  profiles:                      # by the pod's schedulerName; `default` for all others
    default: {score: {node-cpu: 1, node-mem-usage: 1}, method: linear}
    mem-real-usage-scheduler: {score: {node-mem-usage: 1}, method: relative}
"""  # noqa: E501 (as users write it)

FIRST_PROJECT = """
PromJob:
  Name: "k8s nodes"
Rulename:
  Node_cpu1:
    Promsql: "(1-(sum(increase(node_cpu_seconds_total{job='k8s nodes',mode='idle'}[1m]))by(instance))/(sum(increase(node_cpu_seconds_total{job='k8s nodes'}[1m]))by(instance)))*100"
    Threshold: 70
  Node_mem:
    Promsql: "(1 - (node_memory_MemAvailable_bytes{job='k8s nodes'} / (node_memory_MemTotal_bytes{job='k8s nodes'})))* 100"
    Threshold: 70
"""  # noqa: E501


def parse(text: str) -> RuleSet:
    return parse_rules(yaml.safe_load(text))


def errors_of(data: object) -> list[str]:
    with pytest.raises(RulesInvalidError) as caught:
        parse_rules(data)
    return [str(error) for error in caught.value.errors]


def test_a_file_with_every_key() -> None:
    rules = parse(EVERY_KEY)
    assert rules.mark == Mark(LabelMark("status", "presure"), None)
    assert rules.nodes.selector == Selector()
    assert rules.nodes.include_control_plane is False
    assert rules.guard.max_marked == Limit(0.5, is_share=True)
    assert rules.guard.pool_label is None
    assert rules.guard.max_releases == Limit(0.25, is_share=True)
    assert rules.stale_after == 300
    cpu, memory = rules.rules
    assert cpu.name == "node-cpu"
    assert cpu.source == "prometheus"
    assert cpu.expr is not None
    assert cpu.expr.endswith("[1m]))) * 100")
    assert cpu.resource is None
    assert cpu.op == ">"
    assert (cpu.threshold, cpu.clear_threshold) == (70, 60)
    assert (cpu.hold_duration, cpu.keep_firing_for) == (30, 60)
    assert cpu.node_labels == ("instance",)
    assert memory.name == "node-mem-usage"
    assert memory.source == "metrics-server"
    assert memory.resource == "memory"
    assert memory.expr is None
    extender = rules.extender
    assert extender.require_label is None
    assert extender.reject == ()
    assert {
        name: (dict(profile.score), profile.method) for name, profile in extender.profiles.items()
    } == {
        "default": ({"node-cpu": 1, "node-mem-usage": 1}, "linear"),
        "mem-real-usage-scheduler": ({"node-mem-usage": 1}, "relative"),
    }


def test_the_first_projects_file() -> None:
    raw = yaml.safe_load(FIRST_PROJECT)["Rulename"]
    rules = parse(FIRST_PROJECT)
    assert rules == parse_rules(
        {
            "rules": [
                {"name": name, "expr": raw[name]["Promsql"], "threshold": 70, "op": ">"}
                for name in ("Node_cpu1", "Node_mem")
            ]
        }
    )


def test_the_first_projects_file_marks_as_that_project_did() -> None:
    rules = parse(FIRST_PROJECT)
    assert str(rules.mark) == "label status=presure"
    assert [(rule.breached(70), rule.breached(70.1)) for rule in rules.rules] == [(False, True)] * 2
    assert [rule.hold_duration for rule in rules.rules] == [0, 0]


def test_what_the_first_project_did_not_read_is_ignored() -> None:
    rule = {"Promsql": "up", "Threshold": "70", "Comment": "x"}
    rules = parse_rules({"Rulename": {"a": rule}, "PromJob": 3, "Anything": []})
    assert rules == parse_rules({"rules": [{"name": "a", "expr": "up", "threshold": 70}]})


DEFAULTS = {
    "mark": Mark(LabelMark("status", "presure"), None),
    "nodes.selector": Selector(),
    "nodes.include_control_plane": False,
    "guard.max_marked": Limit(0.5, is_share=True),
    "guard.pool_label": None,
    "guard.max_releases": Limit(0.25, is_share=True),
    "stale_after": 300,
    "on_stale": "release",
    "extender.require_label": None,
    "extender.reject": (),
    "extender.profiles": {},
}
RULE_DEFAULTS = {
    "source": "prometheus",
    "resource": None,
    "op": ">",
    "clear_threshold": 80,
    "hold_duration": 0,
    "keep_firing_for": 0,
    "node_label": None,
    "node_labels": ("node", "instance"),
    "stale_after": None,
    "on_stale": None,
}


@pytest.mark.parametrize(("path", "value"), DEFAULTS.items())
def test_defaults(path: str, value: object) -> None:
    found: Any = parse_rules({"rules": [{"name": "a", "expr": "up", "threshold": 80}]})
    for part in path.split("."):
        found = getattr(found, part)
    assert found == value


@pytest.mark.parametrize(("key", "value"), RULE_DEFAULTS.items())
def test_a_rules_defaults(key: str, value: object) -> None:
    (found,) = parse_rules({"rules": [{"name": "a", "expr": "up", "threshold": 80}]}).rules
    assert getattr(found, key) == value


@pytest.mark.parametrize("section", ["mark", "nodes", "guard", "extender"])
def test_an_empty_section_means_its_defaults(section: str) -> None:
    assert rule_set(**{section: {}}) == rule_set()


@pytest.mark.parametrize(
    ("path", "written", "read"),
    [
        ("stale_after", "90s", 90),
        ("stale_after", "1h30m", 5400),
        ("on_stale", "hold", "hold"),
        ("guard.max_marked", "33%", Limit(0.33, is_share=True)),
        ("guard.max_marked", "12.5%", Limit(0.125, is_share=True)),
        ("guard.max_marked", "100%", Limit(1, is_share=True)),
        ("guard.max_marked", "0%", Limit(0, is_share=True)),
        ("guard.max_marked", 3, Limit(3)),
        ("guard.max_marked", 0, Limit(0)),
        ("guard.max_releases", 1, Limit(1)),
        ("guard.pool_label", "pool", "pool"),
        ("nodes.selector", "pool=batch,!gpu", parse_selector("pool=batch,!gpu")),
        ("nodes.include_control_plane", True, True),
        ("mark.label", "load=high", LabelMark("load", "high")),
        ("mark.taint", "dynsched.io/a=b:PreferNoSchedule", TaintMark("dynsched.io/a", "b")),
        ("extender.require_label", "filter.xy.com", "filter.xy.com"),
        ("extender.reject", ["cpu"], ("cpu",)),
    ],
)
def test_a_key_of_the_file(path: str, written: object, read: object) -> None:
    *section, key = path.split(".")
    sections = {section[0]: {key: written}} if section else {key: written}
    found: Any = rule_set(rule("cpu"), **sections)
    for part in (*(f"{name}_rules" if name == "mark" else name for name in section), key):
        found = getattr(found, part)
    assert found == read


@pytest.mark.parametrize(
    ("key", "written", "attribute", "read"),
    [
        ("op", ">=", "op", ">="),
        ("op", "<", "op", "<"),
        ("op", "<=", "op", "<="),
        ("threshold", 0, "threshold", 0),
        ("threshold", -1.5, "threshold", -1.5),
        ("clear_threshold", 80, "clear_threshold", 80),
        ("clear_threshold", 12, "clear_threshold", 12),
        ("for", "2m", "hold_duration", 120),
        ("for", 0, "hold_duration", 0),
        ("for", 0.0, "hold_duration", 0),
        ("for", "0", "hold_duration", 0),
        ("keep_firing_for", "500ms", "keep_firing_for", 0.5),
        ("node_label", "host", "node_labels", ("host",)),
        ("stale_after", "30s", "stale_after", 30),
        ("on_stale", "hold", "on_stale", "hold"),
        ("name", "节点 cpu", "name", "节点 cpu"),
        ("name", "c" * 100, "name", "c" * 100),
        ("expr", 'a{b="{}"} > 1', "expr", 'a{b="{}"} > 1'),
    ],
)
def test_a_key_of_a_rule(key: str, written: object, attribute: str, read: object) -> None:
    (found,) = rule_set(rule(**{key: written})).rules
    assert getattr(found, attribute) == read


def test_taint_only() -> None:
    rules = rule_set(mark={"label": None, "taint": "dynsched.io/pressure=true:PreferNoSchedule"})
    assert rules.mark == Mark(None, TaintMark("dynsched.io/pressure", "true"))


@pytest.mark.parametrize(
    ("own", "files", "seconds"), [(None, "2m", 120), ("30s", "2m", 30), ("10m", "2m", 600)]
)
def test_a_rules_own_stale_after_counts(own: str | None, files: str, seconds: float) -> None:
    rules = rule_set(rule(stale_after=own), stale_after=files)
    assert rules.stale_after_of(rules.rules[0]) == seconds


@pytest.mark.parametrize(
    ("own", "files", "holds"),
    [
        (None, "release", False),
        (None, "hold", True),
        ("hold", "release", True),
        ("release", "hold", False),
    ],
)
def test_a_rules_own_on_stale_counts(own: str | None, files: str, *, holds: bool) -> None:
    rules = rule_set(rule(on_stale=own), on_stale=files)
    assert rules.holds_stale(rules.rules[0]) is holds


@pytest.mark.parametrize(
    ("op", "below", "at", "above"),
    [
        (">", False, False, True),
        (">=", False, True, True),
        ("<", True, False, False),
        ("<=", True, True, False),
    ],
)
def test_ops(op: str, *, below: bool, at: bool, above: bool) -> None:
    (found,) = rule_set(rule(op=op)).rules
    assert [found.breached(value) for value in (79.999, 80, 80.001)] == [below, at, above]
    assert [found.holds(value) for value in (79.999, 80, 80.001)] == [below, at, above]


@pytest.mark.parametrize(
    ("op", "threshold", "clear", "value", "breached", "holds"),
    [
        (">", 80, 70, 75, False, True),
        (">", 80, 70, 70, False, False),
        (">=", 80, 70, 70, False, True),
        ("<", 10, 20, 15, False, True),
        ("<", 10, 20, 20, False, False),
        ("<=", 10, 20, 20, False, True),
        ("<=", 10, 20, 20.5, False, False),
    ],
)
def test_the_dead_band(
    op: str, threshold: float, clear: float, value: float, *, breached: bool, holds: bool
) -> None:
    (found,) = rule_set(rule(op=op, threshold=threshold, clear_threshold=clear)).rules
    assert found.breached(value) is breached
    assert found.holds(value) is holds


@pytest.mark.parametrize(
    ("op", "threshold", "value", "excess"),
    [
        (">", 80, 80, 0),
        (">", 80, 100, 0.25),
        (">=", 80, 60, -0.25),
        ("<", 1000, 750, 0.25),
        ("<=", 1000, 1500, -0.5),
        (">", 0, 3, 3),
        ("<", 0, -3, 3),
        (">", -10, -5, 0.5),
        ("<", -10, -15, 0.5),
    ],
)
def test_how_far_over_as_a_share_of_the_threshold(
    op: str, threshold: float, value: float, excess: float
) -> None:
    (found,) = rule_set(rule(op=op, threshold=threshold)).rules
    assert found.excess(value) == pytest.approx(excess)


@pytest.mark.parametrize(
    ("limit", "text"),
    [
        (Limit(0.5, is_share=True), "50%"),
        (Limit(0.125, is_share=True), "12.5%"),
        (Limit(3), "3"),
    ],
)
def test_limits_in_words(limit: Limit, text: str) -> None:
    assert str(limit) == text


@pytest.mark.parametrize(
    ("path", "where"),
    [
        ((), "wrong"),
        (("rules",), "rules: wrong"),
        (("rules", 2, "for"), "rules[2].for: wrong"),
        (("Rulename", "Node_cpu1", "Promsql"), "Rulename.Node_cpu1.Promsql: wrong"),
        ((1,), "[1]: wrong"),
    ],
)
def test_an_error_says_where(path: tuple[str | int, ...], where: str) -> None:
    assert str(RuleError(path, "wrong")) == where


def test_one_error_does_not_bring_another() -> None:
    """A default that hangs on a bad field, and what refers to a bad rule, are not told again."""
    data = {
        "rules": [rule("cpu", threshold="x", op="=", source="y")],
        "extender": {"reject": ["cpu"], "profiles": {"default": {"score": {"cpu": 1}}}},
    }
    assert [text.split(":")[0] for text in errors_of(data)] == [
        "rules[0].source",
        "rules[0].op",
        "rules[0].threshold",
    ]


def test_braces_in_an_error_are_only_text() -> None:
    (text,) = errors_of({"rules": [rule()], "nodes": {"selector": "{message} {0}"}})
    assert text.startswith("nodes.selector: '{message} {0}' is not a label selector")


@pytest.mark.parametrize("data", [None, [], "rules", 7, [{"rules": []}]])
def test_no_mapping(data: object) -> None:
    assert errors_of(data) == ["a rules file is a mapping with the key `rules`"]


def test_a_rule_set_cannot_be_changed() -> None:
    rules = rule_set()
    with pytest.raises(ValueError, match="frozen"):
        rules.rules[0].threshold = 1.0  # type: ignore[misc]
    with pytest.raises(ValueError, match="frozen"):
        rules.stale_after = 1.0  # type: ignore[misc]


NUMBERS = st.floats(-1e6, 1e6)


@steady(300)
@given(st.sampled_from([">", ">=", "<", "<="]), NUMBERS, NUMBERS, NUMBERS)
def test_a_clear_threshold_is_refused_or_makes_a_dead_band(
    op: str, threshold: float, clear: float, value: float
) -> None:
    raw = rule(op=op, threshold=threshold, clear_threshold=clear)
    upward = op in (">", ">=")
    if clear != threshold and (clear > threshold) is upward:
        (text,) = errors_of({"rules": [raw]})
        assert text.startswith("rules[0].clear_threshold: ")
        return
    (found,) = rule_set(raw).rules
    if found.breached(value):
        assert found.holds(value)
    assert not math.isnan(found.excess(value))
    assert found.breached(value) <= (found.excess(value) >= 0)


def test_a_rule_is_made_from_the_file_only() -> None:
    """`hold_duration` is the code's name; the file's is `for`."""
    assert Rule.model_validate(rule(for_="1m")).hold_duration == 60
    assert errors_of({"rules": [rule(hold_duration="1m")]}) == [
        "rules[0].hold_duration: unknown key; remove it"
    ]
