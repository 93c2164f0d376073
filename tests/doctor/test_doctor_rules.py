"""Each check of a rule, in a real Prometheus that has the defect, beside rules that have none."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping

import pytest
from prometheus_support import RealPrometheus

from dynsched.core.model import QueryResult
from dynsched.core.parsing import parse_rules
from dynsched.core.rules import RuleSet
from dynsched.doctor.ask_prometheus import ask_prometheus
from dynsched.doctor.checks_rules import check_rules
from dynsched.doctor.checks_values import values_against_thresholds
from dynsched.doctor.expressions import read
from dynsched.doctor.facts import RuleFacts, Seen
from dynsched.doctor.findings import Finding, NotChecked, Severity
from dynsched.sources.prometheus import PrometheusConfig, PrometheusSource

CPU = "sum by (instance) (rate(cpu_busy_seconds_total[2m])) * 100"

HEALTHY = {
    "cpu": {"expr": CPU.replace("2m", "3m"), "threshold": 80, "clear_threshold": 70},
    "memory": {"expr": "memory_used_ratio * 100", "threshold": 80},
    "memory-as-ratio": {"expr": "memory_used_ratio / 1", "threshold": 0.8},
    "free": {"expr": "memory_free_bytes / 1e9", "op": "<", "threshold": 1},
    "one-cluster": {"expr": 'shared_load{cluster="blue"} + 40', "threshold": 89.5},
    "worst-disk": {"expr": "max by (instance) (disk_busy) + 40", "threshold": 89.5},
    "unless-absent": {"expr": "memory_used_ratio * 100 unless maintenance", "threshold": 80},
    "pressure-with-use": {
        "expr": "rate(node_pressure_cpu_waiting_seconds_total[2m]) * 100 "
        "and on (instance) memory_used_ratio > bool 0",
        "threshold": 40,
        "for": "1m",
    },
}
"""Two of them are always beyond the threshold, and that is said: it is asked for P9 only."""

DEFECTIVE: Mapping[str, tuple[dict[str, object], str, Severity, str]] = {
    "refused": ({"expr": "sum by (instance", "threshold": 1}, "P0", Severity.ERROR, "fails"),
    "misspelled": ({"expr": "cpu_bussy", "threshold": 1}, "P1", Severity.ERROR, "no metric"),
    "gone": ({"expr": "vanished_load", "threshold": 1}, "P1", Severity.ERROR, "has vanished"),
    "no-such-label": (
        {"expr": 'memory_used_ratio{zone="a"}', "threshold": 1},
        *("P1", Severity.ERROR, "has the label zone"),
    ),
    "no-such-value": (
        {"expr": 'disk_busy{device="sdc"}', "threshold": 1},
        *("P1", Severity.ERROR, "sda"),
    ),
    "range-too-short": (
        {"expr": "rate(slow_seconds_total[1m])", "threshold": 0.5},
        *("P2", Severity.ERROR, "job slow"),
    ),
    "range-short": (
        {"expr": "rate(slow_seconds_total[3m])", "threshold": 0.5},
        *("P2", Severity.WARNING, "3.0 scrapes"),
    ),
    "bare-counter": (
        {"expr": "cpu_busy_seconds_total", "threshold": 80},
        *("P3", Severity.ERROR, "is a counter"),
    ),
    "rate-of-sum": (
        {"expr": "rate(sum by (instance) (cpu_busy_seconds_total)[4m:15s])", "threshold": 0.8},
        *("P3", Severity.ERROR, "rate is made of a sum"),
    ),
    "no-node": (
        {"expr": "sum(memory_used_ratio)", "threshold": 1},
        *("P4", Severity.ERROR, "sum(memory_used_ratio) drops it"),
    ),
    "several": ({"expr": "disk_busy", "threshold": 80}, "P4", Severity.WARNING, "several series"),
    "ranked": (
        {"expr": "topk(2, memory_used_ratio) * 100", "threshold": 80},
        *("P5", Severity.WARNING, "topk"),
    ),
    "compares": (
        {"expr": "memory_used_ratio * 100 > 50", "threshold": 80},
        *("P5", Severity.WARNING, "comparison"),
    ),
    "impatient": (
        {
            "expr": "sum by (instance) (memory_free_bytes) / sum by (instance) (requests_open + 1)",
            "threshold": 1e9,
        },
        *("P5", Severity.WARNING, "without `for`"),
    ),
    "divides-by-zero": (
        {"expr": "requests_open / requests_slots * 100", "threshold": 80},
        *("P6", Severity.WARNING, "10.0.0.1:9100 (nan)"),
    ),
    "recorded": ({"expr": CPU, "threshold": 80}, "P7", Severity.INFO, "instance:load:rate2m"),
    "beyond-retention": (
        {"expr": "max_over_time(memory_used_ratio[5d]) * 100", "threshold": 80},
        *("P8", Severity.ERROR, "it looks back 5d; Prometheus keeps 3d"),
    ),
    "ratio": (
        {"expr": "memory_used_ratio / 1", "threshold": 80},
        *("P9", Severity.ERROR, "shares of 1"),
    ),
    "percent": (
        {"expr": "memory_used_ratio * 100", "threshold": 0.8},
        *("P9", Severity.ERROR, "share of 1"),
    ),
    "never": (
        {"expr": "memory_used_ratio * 100  # in percent", "threshold": 99},
        *("P9", Severity.INFO, "18 to 85.5"),
    ),
    "bytes": (
        {"expr": "memory_free_bytes", "op": "<", "threshold": 1024},
        *("P9", Severity.WARNING, "units may differ"),
    ),
    "always": (
        {"expr": "memory_used_ratio * 100", "threshold": 5},
        *("P9", Severity.ERROR, "always fires"),
    ),
    "two-clusters": (
        {"expr": "max by (instance) (shared_load)", "threshold": 80},
        *("P10", Severity.ERROR, "'blue' and 'green'"),
    ),
    "throttled": (
        {"expr": "rate(node_pressure_cpu_waiting_seconds_total[2m]) * 100", "threshold": 40},
        *("P11", Severity.WARNING, "1 container throttled"),
    ),
}


def rule_set(rules: Mapping[str, Mapping[str, object]]) -> RuleSet:
    return parse_rules({"rules": [{"name": name, **rule} for name, rule in rules.items()]})


async def found_by(url: str, rules: RuleSet, interval: float = 10.0) -> list[Finding | NotChecked]:
    source = PrometheusSource(PrometheusConfig(url))
    try:
        facts = await ask_prometheus(source, rules)
    finally:
        await source.close()
    return list(check_rules(facts, rules, interval, None))


@pytest.fixture(scope="module")
def findings(history: RealPrometheus) -> list[Finding]:
    """Of all rules, asked for in one go."""
    defective = {name: rule for name, (rule, *_) in DEFECTIVE.items()}
    found = asyncio.run(found_by(history.url, rule_set({**HEALTHY, **defective})))
    assert [each for each in found if isinstance(each, NotChecked) and each.rule is None] == []
    return [each for each in found if isinstance(each, Finding)]


@pytest.mark.parametrize("name", DEFECTIVE)
def test_a_defect_of_a_rule_is_found_in_a_real_prometheus(findings, name) -> None:
    _, code, severity, words = DEFECTIVE[name]
    of_rule = [each for each in findings if each.rule == name and each.code == code]
    assert of_rule, [each for each in findings if each.rule == name]
    assert severity in [each.severity for each in of_rule]
    told = json.dumps([f"{each.summary} {each.evidence} {each.fix}" for each in of_rule])
    assert words in told
    assert all(each.fix for each in of_rule)


def test_rules_without_a_defect_have_no_finding(findings) -> None:
    always = {"one-cluster", "worst-disk", "pressure-with-use"}
    told = [
        each
        for each in findings
        if each.rule in HEALTHY and not (each.code == "P9" and each.rule in always)
    ]
    assert told == []


@pytest.mark.parametrize(
    ("expr", "threshold", "is_told"),
    [
        ("instance:node_cpu_utilisation:rate5m", 80, True),
        ('1 - avg by (instance) (rate(node_cpu_seconds_total{mode="idle"}[2m]))', 80, True),
        ("instance:node_cpu_utilisation:rate5m", 0.8, False),
        ("100 * instance:node_cpu_utilisation:rate5m", 80, False),  # of an idle cluster
    ],
)
def test_values_of_a_young_prometheus_that_may_be_shares_of_1_are_a_hint(
    expr, threshold, is_told
) -> None:
    (rule,) = rule_set({"cpu": {"expr": expr, "threshold": threshold}}).file_rules
    seen = Seen(0.02, 0.93, points=168, since=600.0)
    facts = RuleFacts(rule, QueryResult(()), read(expr), past=seen)
    found = [(each.code, each.severity) for each in values_against_thresholds(facts)]
    assert found == ([("P9", Severity.INFO)] if is_told else [])


async def test_a_slow_query_is_told_by_the_interval(history) -> None:
    found = await found_by(history.url, rule_set({"cpu": HEALTHY["cpu"]}), interval=1e-6)
    (slow,) = [each for each in found if each.code == "P7"]
    assert slow.severity is Severity.ERROR
    assert "of the interval" in slow.summary
