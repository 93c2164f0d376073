"""The Grafana dashboard: its variables are used, and every query finds data."""

import json
import re
from pathlib import Path

import pytest
import yaml
from monitoring_support import (
    ALERTS,
    DASHBOARD,
    RECORDS,
    RULE,
    metrics_texts,
    panels,
    queries,
    quick,
    variables,
)
from prometheus_support import Exporter, RealPrometheus

METRIC = re.compile(r"(?:\w+:)?(?:dynsched|process)_\w+(?::\w+)?")
SELECTOR = re.compile(r"(?<![\w:])dynsched_\w+(?:\{[^}]*\})?(?![\w:])")


def test_queries_use_the_chosen_data_source_clusters_and_namespaces() -> None:
    assert list(variables()) == ["datasource", "cluster", "namespace", "node", "rule"]
    source = {"type": "prometheus", "uid": "${datasource}"}
    for panel in panels():
        assert panel["datasource"] == source, panel["title"]
        letters = [target["refId"] for target in panel["targets"]]
        assert len(set(letters)) == len(letters)
        for target in panel["targets"]:
            assert target["datasource"] == source
            chosen = 'cluster=~"$cluster",namespace=~"$namespace"'
            assert target["expr"].count(chosen) == len(METRIC.findall(target["expr"]))
    for variable in variables().values():
        if variable["type"] == "query":
            assert variable["datasource"] == source


def test_each_variable_is_declared_and_used() -> None:
    own = set(re.findall(r"\$\{?([a-z]\w*)", json.dumps(DASHBOARD["panels"])))
    assert own == set(variables())


@pytest.mark.thorough
def test_every_query_finds_data_in_a_real_prometheus(tmp_path: Path) -> None:
    """Names, labels and label values are those that dynsched exposes, and the recorded series are
    those of the PrometheusRule.
    """
    rules = tmp_path / "rules.yaml"
    rules.write_text(yaml.safe_dump(quick(RULE["spec"])))
    plain, expected = (Exporter(text) for text in metrics_texts().values())
    targets = [
        {"targets": [each.target], "labels": {"namespace": name, "pod": "p"}}
        for name, each in (("plain", plain), ("expected", expected))
    ]
    scrape = {"job_name": "dynsched", "static_configs": targets}
    with plain, expected, RealPrometheus(tmp_path, [scrape], rule_files=[rules]) as prometheus:
        prometheus.wait_for("count_over_time(dynsched_build_info[10s]) > 2", series=2)
        expected.text = metrics_texts(pods=5)["expected"]
        prometheus.wait_for("namespace:dynsched_pods_placed_hot_per_pods_placed:ratio_increase1d")
        for expr in queries():
            found = prometheus.result(expr)
            assert found, expr
            assert "None" not in str(found)
        for alert in ALERTS:
            for selector in SELECTOR.findall(alert["expr"]):
                assert prometheus.result(selector), f"{alert['alert']}: {selector}"
        for record in RECORDS:
            assert prometheus.result(record["record"]), record["record"]
        evaluated = prometheus.rules()
    assert {(rule["name"], rule["health"]) for rule in evaluated} == {
        *((alert["alert"], "ok") for alert in ALERTS),
        *((record["record"], "ok") for record in RECORDS),
    }
    alerts = {rule["name"]: rule["alerts"] for rule in evaluated if rule.get("alerts")}
    assert {"DynschedHotNodeUnmarked", "DynschedClusterHot", "DynschedConflicts"} <= alerts.keys()
    assert "error expanding" not in str(alerts)
