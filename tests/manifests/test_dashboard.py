"""The Grafana dashboard: Grafana understands all of it, and every query finds data."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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

LOST = object()
METRIC = re.compile(r"(?:\w+:)?(?:dynsched|process)_\w+(?::\w+)?")
SELECTOR = re.compile(r"(?<![\w:])dynsched_\w+(?:\{[^}]*\})?(?![\w:])")


def lost(ours: Any, read: Any, path: str = "") -> Iterator[str]:
    """Where ``read`` lacks something of ``ours``, or has something else."""
    if isinstance(ours, dict) and isinstance(read, dict):
        for key, value in ours.items():
            yield from lost(value, read.get(key, LOST), f"{path}.{key}")
    elif isinstance(ours, list) and isinstance(read, list) and len(ours) == len(read):
        for index, (mine, other) in enumerate(zip(ours, read, strict=True)):
            yield from lost(mine, other, f"{path}[{index}]")
    elif ours != read:
        yield path


@pytest.mark.thorough
def test_grafana_knows_every_field() -> None:
    """Through the types of Grafana's own SDK, which drop what they do not know."""
    from grafana_foundation_sdk.cog.encoder import JSONEncoder  # noqa: PLC0415 - second tier only
    from grafana_foundation_sdk.cog.plugins import register_default_plugins  # noqa: PLC0415
    from grafana_foundation_sdk.cog.runtime import Runtime  # noqa: PLC0415
    from grafana_foundation_sdk.models.dashboard import Dashboard  # noqa: PLC0415

    register_default_plugins()
    read = json.loads(json.dumps(Dashboard.from_json(DASHBOARD), cls=JSONEncoder))
    assert list(lost(DASHBOARD, read)) == []
    assert {panel["type"] for panel in panels()} <= Runtime().panelcfg_variants.keys()


def test_data_come_from_the_source_the_clusters_and_the_namespaces_that_are_chosen() -> None:
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
    """Names, labels and values of labels are those that dynsched really gives, and the figures are
    those that the PrometheusRule really records.
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
