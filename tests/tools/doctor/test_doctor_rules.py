"""Each check of a rule, in a real Prometheus that has the defect, beside rules that have none."""

import asyncio
import json
import time
from collections.abc import Mapping

import pytest
from builders import node
from prometheus_support import RealPrometheus
from source_support import Fake, vector

from dynsched.core.nodes import AddressLookup
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
from dynsched.tools.doctor.checks_values import RuleContext
from dynsched.tools.doctor.findings import Finding, NotChecked, Severity

CPU = "sum by (instance) (rate(cpu_busy_seconds_total[2m])) * 100"

HEALTHY = {
    "cpu": {"expr": CPU.replace("2m", "3m"), "threshold": 80, "clear_threshold": 70},
    "memory": {"expr": "memory_used_ratio * 100", "threshold": 80},
    "memory-as-ratio": {"expr": "memory_used_ratio / 1", "threshold": 0.8},
    "free": {"expr": "memory_free_bytes / 1e9", "op": "<", "threshold": 1},
    "one-cluster": {"expr": 'shared_load{cluster="blue"} + 40', "threshold": 89.5},
    "worst-disk": {"expr": "max by (instance) (disk_busy) + 40", "threshold": 89.5},
    "unless-absent": {"expr": "memory_used_ratio * 100 unless maintenance", "threshold": 80},
}
"""Both are always beyond the threshold, and that is said: it is asked for P9 only."""

E, W, INFO = Severity.ERROR, Severity.WARNING, Severity.INFO
DEFECTS: list[tuple[str, float, str, Severity, str]] = [
    ("sum by (instance", 1, "P0", E, "fails"),
    ("cpu_bussy", 1, "P1", E, "no metric"),
    ("vanished_load", 1, "P1", E, "has vanished"),
    ('memory_used_ratio{zone="a"}', 1, "P1", E, "has the label zone"),
    ('disk_busy{device="sdc"}', 1, "P1", E, "sda"),
    ("sum(memory_used_ratio)", 1, "P4", E, "labels of a sample: none"),
    ("disk_busy", 80, "P4", W, "several series"),
    ("topk(2, memory_used_ratio) * 100", 80, "P5", W, "topk"),
    ("memory_used_ratio * 100 > 50", 80, "P5", W, "comparison"),
    ("sum by (instance) (rate(node_cpu_seconds_total[2m]))", 80, "P5", W, "clamp_max"),
    ("rate(node_pressure_cpu_waiting_seconds_total[2m])", 80, "P5", W, "the node's use"),
    ("requests_open / requests_slots * 100", 80, "P6", W, "10.0.0.1:9100 (nan)"),
    ("memory_used_ratio / 1", 80, "P9", E, "shares of 1"),
    ("memory_used_ratio * 100", 0.8, "P9", E, "share of 1"),
    ("memory_used_ratio * 100  # in percent", 99, "P9", INFO, "18 to 85.5"),
    ("memory_free_bytes", -1024, "P9", INFO, "correct its unit"),
    ("memory_used_ratio * 100", 5, "P9", E, "always fires"),
    ("max by (instance) (shared_load)", 80, "P10", E, "'blue' and 'green'"),
]
"""Each rule, what is told of it, and how; a threshold below 0 is one that the values must not fall
below.
"""


def rule_set(rules: Mapping[str, Mapping[str, object]]) -> RuleSet:
    return parse_rules({"rules": [{"name": name, **rule} for name, rule in rules.items()]})


class LateSource(PrometheusSource):
    """Answers with the values of some minutes ago."""

    async def ask_clock(self) -> tuple[ServerClock, None]:
        return ServerClock(time.time(), behind=150.0), None


async def found_by(
    url: str, rules: RuleSet, kind: type[PrometheusSource] = PrometheusSource
) -> list[Finding | NotChecked]:
    return await check_rules(kind(PrometheusConfig(url)), RuleContext(rules))


@pytest.fixture(scope="module")
def findings(history: RealPrometheus) -> list[Finding]:
    """Of all rules, asked for in one go."""
    defective = {
        f"r{number}": {"expr": expr, "threshold": abs(line), "op": "<" if line < 0 else ">"}
        for number, (expr, line, *_) in enumerate(DEFECTS)
    }
    found = asyncio.run(found_by(history.url, rule_set({**HEALTHY, **defective})))
    assert [each for each in found if isinstance(each, NotChecked) and each.rule is None] == []
    return [each for each in found if isinstance(each, Finding)]


@pytest.mark.parametrize("number", range(len(DEFECTS)))
def test_a_defect_of_a_rule_is_found_in_a_real_prometheus(findings, number) -> None:
    *_, code, severity, words = DEFECTS[number]
    every = [each for each in findings if each.rule == f"r{number}"]
    of_rule = [each for each in every if each.code == code]
    assert severity in [each.severity for each in of_rule], every
    told = json.dumps([f"{each.summary} {each.evidence} {each.fix}" for each in of_rule])
    assert words in told
    assert all(each.fix for each in of_rule)


def test_rules_without_a_defect_have_no_finding(findings) -> None:
    always = {("P9", rule) for rule in ("one-cluster", "worst-disk")}
    told = {(each.code, each.rule) for each in findings if each.rule in HEALTHY}
    assert told <= always


async def test_values_that_show_a_new_pod_late_are_found_where_pods_are_placed_by_them(
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
    for rules, told in ((given | {"no-placement": slow}, advice), ({"no-placement": slow}, {})):
        found = await found_by(history.url, rule_set(rules))
        assert {each.rule: each.fix for each in found if each.code == "P12"} == told
        assert "N1" not in {each.code for each in found}
    found = await found_by(history.url, rule_set({"quick": quick}), LateSource)
    assert [(each.rule, each.fix) for each in found if each.code == "P12"] == [
        ("quick", "start VictoriaMetrics with -search.latencyOffset=1s")
    ]
    assert [each.code for each in found].count("N1") == 1


class Recorder(Fake):
    async def ask_clock(self) -> tuple[ServerClock, None]:
        return ServerClock(time.time()), None

    async def query_range(self, expr: str, *_: float) -> RangeResult:
        self.asked.append(expr)
        return RangeResult()

    async def raw(self, selector: str) -> RangeResult:
        return await self.query_range(selector)

    async def read(self, _: str, parameters: Mapping[str, str]) -> tuple[list[str], None]:
        self.asked.append(parameters["match[]"])
        return ["k8s.node.name", "k8s.cluster.name"], None


async def test_dotted_names_are_quoted_in_all_that_is_asked_and_advised() -> None:
    """As OpenTelemetry names labels and metrics; Prometheus 3 takes them."""
    labels = {"__name__": "k8s.node.cpu", "k8s.node.name": "a", "k8s.cluster.name": "b"}
    expr = '{"k8s.node.cpu", "k8s.node.name"=~"a.*", zone="x"}'
    rules = rule_set({"cpu": {"expr": expr, "threshold": 80, "node_label": "k8s.node.name"}})
    for count in (0.0, 3.0):
        server = Recorder(count=vector((labels, count)), k8s=vector((labels, 50), (labels, 60)))
        found = await check_rules(server, RuleContext(rules))
        assert len(server.asked) > 5
        for asked in server.asked:
            parse(asked)
        advised = [each.fix for each in found if isinstance(each, Finding)]
        assert any('by ("k8s.node.name")' in each for each in advised)


async def test_where_nothing_reads_the_ranges_the_lag_is_asked_for(history) -> None:
    """This Prometheus answers the expression, and has no page that parses it for others."""
    long = {"expr": "memory_used_ratio * 100" + " + 0" * MAX_OPERATORS, "threshold": 80}
    placed = {"by": "expected"}
    for options, told in ((placed, ["long"]), ({**placed, "lag": "30s"}, []), ({}, [])):
        found = await found_by(history.url, rule_set({"long": {**long, **options}}))
        fixes = [(each.rule, each.fix) for each in found if each.code == "P12"]
        assert fixes == [(name, "write `lag:` in the rule (docs/rules.md#lag)") for name in told]


NODES = [node(f"w{n}", addresses={"InternalIP": f"10.0.0.{n}"}) for n in (1, 2, 3)]
BY_NODE = 'label_replace(max by (exported_node) (told_load), "node", "$1", "exported_node", "(.+)")'
OF_HOST = 'max by (Hostname) (label_replace(gpu_load, "Hostname", "$1", "host_node", "(.+)"))'
ZERO = 'max by (Hostname) (label_replace(kube_node_info * 0, "Hostname", "$1", "node", "(.+)"))'
OF_NODES: list[tuple[str, str | None, dict[str, str]]] = [
    ("told_load", None, {"P4": "exported_node holds the node"}),
    ("max by (node) (told_load)", None, {"P4": "node='w2', exported_node='w1'"}),
    ("max by (exported_node) (told_load)", "exported_node", {}),
    (BY_NODE, None, {}),
    ("pushed_load", None, {"P4": "exported_instance='10.0.0.1'"}),
    ("max by (instance) (pushed_load)", None, {"P4": "set node_label: exported_instance"}),
    ("max by (Hostname, host_node) (gpu_load)", "Hostname", {"P4": "set node_label: host_node"}),
    ("max by (instance) (pod_load)", None, {"P4": "set node_label: kubernetes_node"}),
    ("max by (kubernetes_node) (pod_load)", "kubernetes_node", {}),
    ("sum by (instance) (twice_load)", None, {"P10": "differ in job"}),
    ("sum by (instance) (max without (job) (twice_load))", None, {}),
    ("avg by (instance) (twice_load)", None, {}),
    ("sum by (instance) (twice_load) / count by (instance) (twice_load)", None, {}),
    ("sum by (instance) (twice_load) / 4", None, {"P10": "more than one for 3 nodes, as w1"}),
    ("sum by (instance) (kubelet_load)", None, {"P10": "differ in service"}),
    ("sum by (instance) (paths_load)", None, {"P10": "'/metrics/cadvisor' and '/metrics/res"}),
    ("max by (instance) (paths_load)", None, {}),
    ("sum without (prometheus_replica) (ha_load)", None, {"P10": "differ in prometheus_replica"}),
    ("max by (instance) (ha_load)", None, {}),
    ("max by (instance) (named_load)", None, {"P10": 'k8s_cluster_name="..."'}),
    ("max by (instance) (fleet_load)", None, {"P10": "label clusterID"}),
    (
        "memory_used_ratio * 100 * on (instance) group_left () (requests_open + 1)",
        None,
        {"P14": "max by (instance) ((requests_open{} + 1))"},
    ),
    (
        "memory_used_ratio * on (instance) group_left () max by (instance) (requests_open)",
        None,
        {},
    ),
    (
        "memory_used_ratio * on (instance) requests_open",
        None,
        {"P14": "max by (instance) (requests_open{})"},
    ),
    (
        "memory_used_ratio * on (instance) group_left () max by (instance, job) (requests_open)",
        None,
        {"P14": "max by (instance) (max by (instance, job)"},
    ),
    (
        "memory_used_ratio * on (instance) group_left () disk_busy",
        None,
        {"P14": "max by (instance) (disk_busy{})"},  # and the query fails already
    ),
    ("memory_used_ratio / memory_used_ratio and on (instance) requests_open", None, {}),
    (f"max by (Hostname) (gpu_load) or {ZERO}", "Hostname", {"P15": "dcgm-0: no node has this"}),
    (f"100 * (max by (Hostname) (gpu_load) or {ZERO})", "Hostname", {"P15": "dcgm-0: no node"}),
    (f"clamp_max(gpu_load or {ZERO}, 100) / 1", "Hostname", {"P15": "dcgm-0: no node"}),
    (f"{OF_HOST} or {ZERO}", "Hostname", {}),
    (f"({OF_HOST} or {ZERO}) * 100", "Hostname", {}),
]
"""Expressions, `node_label`, and what is said of them by the codes P4, P10, P14 and P15."""


@pytest.fixture(scope="module")
def findings_of_nodes(history: RealPrometheus) -> list[Finding]:
    rules = {
        f"r{number}": {"expr": expr, "threshold": 80, "node_label": label}
        for number, (expr, label, _) in enumerate(OF_NODES)
    }
    nodes = {each.name: each for each in NODES}
    context = RuleContext(rule_set(rules), nodes=nodes, lookup=AddressLookup(NODES))
    found = asyncio.run(check_rules(PrometheusSource(PrometheusConfig(history.url)), context))
    assert [each for each in found if isinstance(each, NotChecked)] == []
    return [each for each in found if isinstance(each, Finding)]


@pytest.mark.parametrize("number", range(len(OF_NODES)))
def test_whose_load_a_value_is_and_how_often_it_counts(findings_of_nodes, number) -> None:
    *_, expected = OF_NODES[number]
    found = [each for each in findings_of_nodes if each.rule == f"r{number}"]
    told = {
        each.code: f"{each.summary}; {each.evidence}; {each.fix}"
        for each in found
        if each.code in ("P4", "P10", "P14", "P15")
    }
    assert told.keys() == expected.keys()
    for code, words in expected.items():
        assert words in told[code]
    assert "is their exporter running" not in str(found)
