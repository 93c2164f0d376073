"""Each check of a rule on a real Prometheus, with rules that have the defect and healthy ones."""

import asyncio
import time
from collections.abc import Mapping

import pytest
from builders import node
from prometheus_support import RealPrometheus
from source_support import Fake, vector

from dynsched.rules.parse import parse_rules
from dynsched.rules.promql import MAX_OPERATORS, parse
from dynsched.rules.rule_set import RuleSet
from dynsched.sources.prometheus import (
    PrometheusConfig,
    PrometheusSource,
    RangeResult,
    ServerClock,
)
from dynsched.tools.doctor.checks_rules import check_rules
from dynsched.tools.doctor.findings import Finding, Report, Severity
from dynsched.tools.doctor.rule_context import RuleContext

OF_HOST = {"node_label": "Hostname"}
GPU = 'max by (Hostname) (label_replace(gpu_load, "Hostname", "$1", "host_node", "(.+)"))'
ZERO = 'max by (Hostname) (label_replace(kube_node_info * 0, "Hostname", "$1", "node", "(.+)"))'
JOIN = "memory_used_ratio * on (instance)"
CPU = "sum by (instance) (rate(cpu_busy_seconds_total[2m])) * 100"

HEALTHY = {
    "cpu": {"expr": CPU.replace("2m", "3m"), "threshold": 80, "clear_threshold": 70},
    "memory": {"expr": "memory_used_ratio * 100", "threshold": 80},
    "memory-as-ratio": {"expr": "memory_used_ratio / 1", "threshold": 0.8},
    "free": {"expr": "memory_free_bytes / 1e9", "op": "<", "threshold": 1},
    "one-cluster": {"expr": 'shared_load{cluster="blue"}', "threshold": 80},
    "worst-disk": {"expr": "max by (instance) (disk_busy)", "threshold": 80},
    "unless-absent": {"expr": "memory_used_ratio * 100 unless maintenance", "threshold": 80},
}

E, W, INFO = Severity.ERROR, Severity.WARNING, Severity.INFO
DEFECTS: list[tuple[str, Mapping[str, object], str, Severity, str]] = [
    ("sum by (instance", {}, "P0", E, "fails"),
    ("cpu_bussy", {}, "P1", E, "no metric"),
    ('memory_used_ratio{zone="a"}', {}, "P1", E, "the values of zone in 3 series: none"),
    ('disk_busy{device="sdc"}', {}, "P1", E, "sda"),
    ("sum(memory_used_ratio)", {}, "P4", E, "labels of a sample: none"),
    ("disk_busy", {}, "P4", W, "several series"),
    ("told_load", {}, "P4", E, "exported_node holds the node"),
    ("max by (node) (told_load)", {}, "P4", E, "node='w2', exported_node='w1'"),
    ("pushed_load", {}, "P4", E, "exported_instance='10.0.0.1'"),
    ("max by (instance) (pushed_load)", {}, "P4", E, "set node_label: exported_instance"),
    ("max by (Hostname, host_node) (gpu_load)", OF_HOST, "P4", E, "set node_label: host_node"),
    ("max by (instance) (pod_load)", {}, "P4", E, "set node_label: kubernetes_node"),
    ("topk(2, memory_used_ratio) * 100", {}, "P5", W, "topk"),
    ("memory_used_ratio * 100 > 50", {}, "P5", W, "comparison"),
    ("sum by (instance) (rate(node_cpu_seconds_total[2m]))", {}, "P5", W, "clamp_max"),
    ("rate(node_pressure_cpu_waiting_seconds_total[2m])", {}, "P5", W, "the node's use"),
    ("memory_used_ratio / 1", {}, "P9", E, "shares of 1"),
    ("memory_used_ratio * 100", {"threshold": 0.8}, "P9", E, "share of 1"),
    ("max by (instance) (shared_load)", {}, "P10", E, "different clusters have the same"),
    ("max by (instance) (named_load)", {}, "P10", E, 'k8s_cluster_name="..."'),
    ("max by (instance) (fleet_load)", {}, "P10", E, "label clusterID"),
    ("sum by (instance) (twice_load)", {}, "P10", W, "differ in job"),
    ("sum by (instance) (twice_load) / 4", {}, "P10", W, "more than one for 3 nodes, as w1"),
    ("sum by (instance) (kubelet_load)", {}, "P10", W, "differ in service"),
    ("sum by (instance) (paths_load)", {}, "P10", W, "differ in metrics_path"),
    ("sum without (prometheus_replica) (ha_load)", {}, "P10", W, "differ in prometheus_replica"),
    (f"{JOIN} group_left () (requests_open + 1)", {}, "P14", W, "max by (instance) ((requests_op"),
    (f"{JOIN} requests_open", {}, "P14", W, "max by (instance) (requests_open{})"),
    (
        *(f"{JOIN} group_left () max by (instance, job) (requests_open)", {}, "P14", W),
        "max by (instance) (max by (instance, job)",
    ),
    (f"{JOIN} group_left () disk_busy", {}, "P14", W, "max by (instance) (disk_busy{})"),  # fails
    (f"max by (Hostname) (gpu_load) or {ZERO}", OF_HOST, "P15", W, "dcgm-0: no node has this"),
    (f"100 * (max by (Hostname) (gpu_load) or {ZERO})", OF_HOST, "P15", W, "dcgm-0: no node"),
    (f"clamp_max(gpu_load or {ZERO}, 100) / 1", OF_HOST, "P15", W, "dcgm-0: no node"),
]
"""Expression, other keys of the rule (the threshold is 80 by default), and the finding."""
OF_ONE_SERIES: list[tuple[str, str | None]] = [
    ("max by (exported_node) (told_load)", "exported_node"),
    (
        'label_replace(max by (exported_node) (told_load), "node", "$1", "exported_node", "(.+)")',
        None,
    ),
    ("max by (kubernetes_node) (pod_load)", "kubernetes_node"),
    ("sum by (instance) (max without (job) (twice_load))", None),
    ("avg by (instance) (twice_load)", None),
    ("sum by (instance) (twice_load) / count by (instance) (twice_load)", None),
    ("max by (instance) (paths_load)", None),
    ("max by (instance) (ha_load)", None),
    (f"{JOIN} group_left () max by (instance) (requests_open)", None),
    ("memory_used_ratio / memory_used_ratio and on (instance) requests_open", None),
    (f"{GPU} or {ZERO}", "Hostname"),
    (f"({GPU} or {ZERO}) * 100", "Hostname"),
]
"""Rules that read the right label and count each series once, with their ``node_label``."""
NODES = {f"w{n}": node(f"w{n}", addresses={"InternalIP": f"10.0.0.{n}"}) for n in (1, 2, 3)}


def rule_set(rules: Mapping[str, Mapping[str, object]]) -> RuleSet:
    return parse_rules({"rules": [{"name": name, **rule} for name, rule in rules.items()]})


class LateSource(PrometheusSource):
    """A server whose newest values are 150 s old."""

    async def ask_clock(self) -> tuple[ServerClock, None]:
        return ServerClock(time.time(), behind=150.0), None


async def found_by(
    url: str, rules: RuleSet, kind: type[PrometheusSource] = PrometheusSource
) -> list[Finding]:
    report = Report()
    await check_rules(kind(PrometheusConfig(url)), RuleContext(rules, NODES), report)
    assert {each.code for each in report.not_checked} <= {"P5"}  # one expression is invalid
    return report.findings


@pytest.fixture(scope="module")
def findings(history: RealPrometheus) -> list[Finding]:
    """The findings of all rules, in one run."""
    rules = {
        f"r{number}": {"expr": expr, "threshold": 80, **more}
        for number, (expr, more, *_) in enumerate(DEFECTS)
    }
    for number, (expr, label) in enumerate(OF_ONE_SERIES):
        rules[f"one{number}"] = {"expr": expr, "threshold": 80, "node_label": label}
    return asyncio.run(found_by(history.url, rule_set({**HEALTHY, **rules})))


@pytest.mark.parametrize("number", range(len(DEFECTS)))
def test_a_defect_of_a_rule_is_found_in_a_real_prometheus(findings, number) -> None:
    *_, code, severity, words = DEFECTS[number]
    every = [each for each in findings if each.rule == f"r{number}"]
    of_rule = [each for each in every if each.code == code]
    assert severity in [each.severity for each in of_rule], every
    assert words in str([f"{each.summary} {each.evidence} {each.fix}" for each in of_rule])
    assert all(each.fix for each in of_rule)


def test_rules_without_a_defect_have_no_finding(findings) -> None:
    assert not [each for each in findings if each.rule in HEALTHY]
    of_one = {(each.code, each.rule) for each in findings if str(each.rule).startswith("one")}
    assert not [rule for code, rule in of_one if code in ("P4", "P10", "P14", "P15")]


async def test_values_that_show_new_pods_late_are_found_in_rules_that_place_pods(
    history,
) -> None:
    slow = {"expr": "rate(slow_seconds_total[4m]) * 100", "threshold": 90}
    fast = {"expr": "rate(fast_seconds_total[5m]) * 100", "threshold": 90, "by": "expected"}
    recorded = {"expr": "fast_seconds_total", "threshold": 90, "by": "expected", "lag": "5m"}
    quick = {"expr": "memory_used_ratio * 100", "threshold": 80, "by": "expected"}
    given = {"slow": slow | {"by": "expected"}, "fast": fast, "recorded": recorded, "quick": quick}
    advice = {
        "slow": "scrape nodes every 15s and write a range of 1m in the rule",
        "fast": "write a range of 1m in the rule",
        "recorded": "write a range of 1m where it is recorded, and lag: 1m",
    }
    for rules, fixes in ((given | {"no-placement": slow}, advice), ({"no-placement": slow}, {})):
        found = await found_by(history.url, rule_set(rules))
        assert {each.rule: each.fix for each in found if each.code == "P12"} == fixes
        assert not any("samples come late" in str(each) for each in found)
    found = await found_by(history.url, rule_set({"quick": quick}), LateSource)
    assert [(each.rule, each.fix) for each in found if each.code == "P12"] == [
        ("quick", "start VictoriaMetrics with -search.latencyOffset=1s")
    ]


class Recorder(Fake):
    async def ask_clock(self) -> tuple[ServerClock, None]:
        return ServerClock(time.time()), None

    async def query_range(self, expr: str, *_: float) -> RangeResult:
        self.asked.append(expr)
        return RangeResult()

    async def read(self, _: str, parameters: Mapping[str, str]) -> tuple[list[str], None]:
        self.asked.append(parameters["match[]"])
        return ["k8s.node.name", "k8s.cluster.name"], None


async def test_dotted_names_are_quoted_in_queries_and_advice() -> None:
    """OpenTelemetry names labels and metrics so; Prometheus 3 accepts them."""
    labels = {"__name__": "k8s.node.cpu", "k8s.node.name": "a", "k8s.cluster.name": "b"}
    expr = '{"k8s.node.cpu", "k8s.node.name"=~"a.*", zone="x"}'
    rules = rule_set({"cpu": {"expr": expr, "threshold": 80, "node_label": "k8s.node.name"}})
    for count in (0.0, 3.0):
        server = Recorder(count=vector((labels, count)), k8s=vector((labels, 50), (labels, 60)))
        report = Report()
        await check_rules(server, RuleContext(rules, {"a": node("a")}), report)
        assert len(server.asked) > 5
        for asked in server.asked:
            parse(asked)
        assert any('by ("k8s.node.name")' in each.fix for each in report.findings)


async def test_if_no_parser_finds_the_ranges_the_advice_is_to_write_the_lag(history) -> None:
    """This Prometheus evaluates the expression but cannot return its parsed form."""
    long = {"expr": "memory_used_ratio * 100" + " + 0" * MAX_OPERATORS, "threshold": 80}
    placed = {"by": "expected"}
    for options, advised in ((placed, ["long"]), ({**placed, "lag": "30s"}, []), ({}, [])):
        found = await found_by(history.url, rule_set({"long": {**long, **options}}))
        fixes = [(each.rule, each.fix) for each in found if each.code == "P12"]
        assert fixes == [(name, "write `lag:` in the rule (docs/rules.md#lag)") for name in advised]
