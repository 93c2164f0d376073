"""Expressions that probably do not measure what was intended."""

import re
from pathlib import Path

import pytest
from builders import rule, rule_set
from hypothesis import given
from hypothesis import strategies as st
from properties import steady

from dynsched.rules.file import RulesFile, fixed_rules, load_rules
from dynsched.rules.lint import lint
from dynsched.rules.parse import read_rules
from dynsched.rules.promql import UnreadError, parse

ROOT = Path(__file__).parents[2]
CORE = "node_cpu_seconds_total"
CPU = '(1 - avg by (instance) (clamp_max(rate(node_cpu_seconds_total{mode="idle"}[2m]), 1))) * 100'


def warning_of(expr: str) -> str | None:
    found = tuple(lint(rule_set(rule(expr=expr, threshold=0.5))))  # between 0 and 1
    return found[0].message if found else None


COMPARED = {
    "> 80": [
        *(f"{CPU} > 80", f"({CPU} > 80)", "load # in per cent\n  > 80 # or so", "LOAD > 80"),
        *("load > 80 and on (instance) up", "load > 80 unless up == 0", "load > 80 or load > 90"),
    ],
    "> 3": ["load offset -5m > 3", "sum(load) by (instance) > 3", "load{a='\"}'} > 3"],
    ">= 80": [f"((({CPU}) >= 80))"],
    "< load": ["80 < load"],
}
ENDS = ["< 20", "== 1", "> 0", "> on (instance) group_left (zone) limit"]


@pytest.mark.parametrize(
    ("expr", "compared"),
    [(expr, compared) for compared, exprs in COMPARED.items() for expr in exprs]
    + [(f"load {end}", end) for end in ENDS]
    + [("load > +80", "> 80"), ("load > 8e1", "> 80"), ("load > -Inf", "> -inf")],
)
def test_a_comparison_in_the_expression_gives_a_warning(expr: str, compared: str) -> None:
    found = warning_of(expr)
    assert found is not None
    assert found.startswith(f"the comparison {compared!r} leaves out the nodes for which it does")
    assert "its mark goes only after stale_after, and clear_threshold has no effect" in found


CONDITION = "with a condition on a value leaves nodes out"
DONE = "A * on (instance) (B > bool 80)"


@pytest.mark.parametrize(
    ("expr", "begins", "says"),
    [
        ("cpu and on (instance) memory > 80", f"'and' {CONDITION}", DONE),
        ("cpu unless on (instance) memory > 80", f"'unless' {CONDITION}", DONE),
        ("topk(3, load)", "topk leaves all other nodes out", ""),
        ('ALERTS{alertname="Hot"}', "ALERTS has a series only while", ""),
        ("load > 80", "the comparison", "Remove it: op and threshold compare"),
        (f"sum(irate({CORE}[2m]))", f"when a counter of {CORE} dips", CPU),
        (f'clamp_max(1 - avg(rate({CORE}{{mode="idle"}}[2m])), 1)', "when a counter of", CPU),
        (f'(1 - sum(rate({CORE}{{mode="idle"}}[2m])) / sum(rate({CORE}[2m])))', "when a", CPU),
        (f"increase({CORE}[5m:1m])", "when a counter of", CPU),
        ("rate(node_pressure_cpu_waiting_seconds_total[2m])", "pressure (PSI) also", "use"),
        ('rate(container_pressure_cpu_waiting_seconds_total{id="/"}[2m])', "pressure", "use"),
        ("max(container_cpu_load_average_10s)", "kubelets give 0", "Use another"),
        ("count(container_tasks_state)", "kubelets give 0 as", "Use another"),
    ],
)
def test_a_warning_says_what_to_do(expr: str, begins: str, says: str) -> None:
    found = str(warning_of(expr))
    assert found.startswith(begins)
    assert says in found


@pytest.mark.parametrize(
    "expr",
    [
        CPU,
        f"avg(clamp((rate({CORE}[2m])), 0, 1))",
        f"count({CORE})",
        f"rate(node_pressure_cpu_waiting_seconds_total[2m]) * on (instance) ({CPU})",
        "load",
        "load > bool 80",
        "cpu * on (instance) (memory > bool 80)",
        'load{a="> 80"}',
        "load > 80 or load * 0",
        "cpu and on (instance) memory",
        "cpu and on (instance) up == 1",
        "load unless on (node) kube_node_spec_unschedulable == 1",
        "load and on (job) time() - push_time_seconds < 180",
        "load and timestamp(load) > time() - 60",
        "load / (cores > 0)",
        "sum by (node) (requests * on (pod) group_left () (phase == 1))",
        "topk by (instance) (1, load)",
        "scalar(load > 80) * other",
        "vector(1)",
        "absent(load > 80)",
    ],
)
def test_an_expression_without_a_warning(expr: str) -> None:
    parse(expr)
    assert warning_of(expr) is None


@pytest.mark.parametrize(
    "expr",
    [
        *("load >", "load > 80)", "(load > 80", "load[5m > 80", "sum by (a) > 1", "$x > 1", "''é"),
        *("unknown(load) > 80", " + ".join(["load"] * 200) + " > 80", "(" * 2000 + ")" * 2000),
    ],
)
def test_an_expression_that_cannot_be_parsed_gives_no_warning(expr: str) -> None:
    with pytest.raises(UnreadError):
        parse(expr)
    assert warning_of(expr) is None


FILES = [
    *ROOT.glob("docs/examples/*.yaml"),
    *ROOT.glob("manifests/**/rules.yaml"),
    ROOT / "rules.yaml",
    ROOT / "dynsched_sim/demo-rules.yaml",
]


@pytest.mark.parametrize(
    "path",
    [path for path in FILES if "manifests/prometheus" not in str(path)],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_shipped_rules_give_no_warnings(path: Path) -> None:
    assert list(lint(load_rules(path))) == []


def test_removed_keys_give_a_warning_with_their_location() -> None:
    found = read_rules(
        "rules.yaml",
        b"rules: [{name: cpu, expr: load, threshold: 80, early: {above_mean: 5, wrong: 1}}]\n"
        b"guard: {bind_burst: {pods: 20, window: 1m}}\n"
        b"experiment: {until: 2026-12-08T00:00:00Z}\nscale_down: true\n",
    )
    assert found.rule_set is not None
    assert [(rule.name, rule.by) for rule in found.rule_set.rules] == [("cpu", "measured")]
    assert [
        re.sub(r":\d+: warning:(.*): was removed.*", r"\1", each) for each in found.warnings
    ] == [
        "rules.yaml:1 rules[0].early",
        "rules.yaml:2 guard.bind_burst",
        "rules.yaml:3 experiment",
        "rules.yaml:4 scale_down",
    ]


def test_a_warning_names_the_file_and_the_location(tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text("scale_down: true\nrules: [{name: cpu, expr: load, threshold: 80}]\n")
    running = RulesFile(path)
    (warned,) = running.warnings
    assert warned.startswith(f"{path}:1:1: warning: scale_down: was removed in 0.3.0; instead: ")
    assert fixed_rules(path).warnings == running.warnings
    path.write_text("rules: [{name: cpu, expr: load, threshold: 81}]\n")
    assert running.read()
    running.accept()
    assert running.warnings == ()


PARTS = st.sampled_from([
    *"()[]{},@+-*/%^<>=!~#'\"`\\", " and ", " or ", " unless ", " bool ", " on ", " by ", "\n",
    " offset ", "load", "sum", "topk", "ALERTS", "5m", "80", "0x1f", "1e-3", ">= ", "é", "{a=~'b'}",
])  # fmt: skip


@steady(200)
@given(parts=st.lists(PARTS, max_size=20))
def test_lint_accepts_any_text(parts: list[str]) -> None:
    warning_of("load " + "".join(parts))
