"""The Grafana dashboard: Grafana understands all of it, and every query finds data."""

from __future__ import annotations

import itertools
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
    asked,
    exposed,
    metrics_texts,
    panels,
    queries,
    quick,
    variables,
)
from prometheus_support import Exporter, RealPrometheus

SELECTOR = re.compile(r"(?<![\w:])dynsched_\w+(?:\{[^}]*\})?(?![\w:])")


def test_every_panel_can_be_told_apart_and_read() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    titles = [panel["title"] for panel in DASHBOARD["panels"]]
    assert len(set(titles)) == len(titles)
    for panel in panels():
        title = panel["title"]
        assert panel["description"].endswith("."), title
        assert panel["fieldConfig"]["defaults"]["unit"], title
        assert panel["targets"], title


def test_data_come_from_the_source_and_the_namespaces_that_are_chosen() -> None:
    assert list(variables()) == ["datasource", "namespace", "node", "rule"]
    source = {"type": "prometheus", "uid": "${datasource}"}
    for panel in panels():
        assert panel["datasource"] == source, panel["title"]
        letters = [target["refId"] for target in panel["targets"]]
        assert len(set(letters)) == len(letters)
        for target in panel["targets"]:
            assert target["datasource"] == source
            assert 'namespace=~"$namespace"' in target["expr"]
    for variable in variables().values():
        if variable["type"] == "query":
            assert variable["datasource"] == source


def test_each_variable_is_declared_and_used() -> None:
    own = set(re.findall(r"\$\{?([a-z]\w*)", json.dumps(DASHBOARD["panels"])))
    assert own == set(variables())


def test_no_panel_lies_over_another_and_no_place_is_empty() -> None:
    cells: dict[tuple[int, int], str] = {}
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        columns, rows = range(at["x"], at["x"] + at["w"]), range(at["y"], at["y"] + at["h"])
        for cell in itertools.product(columns, rows):
            assert cell not in cells, (panel["title"], cells[cell])
            cells[cell] = panel["title"]
    height = max(row for _, row in cells) + 1
    assert cells.keys() == set(itertools.product(range(24), range(height)))


def test_every_verdict_has_a_name_in_the_timeline() -> None:
    (timeline,) = (panel for panel in panels() if panel["title"] == "Verdicts")
    (mapping,) = timeline["fieldConfig"]["defaults"]["mappings"]
    assert {float(value) for value in mapping["options"]} == {0.0, 0.5, 1.0}


@pytest.mark.parametrize("expr", queries(), ids=lambda expr: expr[:60])
def test_every_metric_that_is_shown_is_there(expr: str) -> None:
    raw, recorded = asked(expr)
    assert raw | recorded
    assert raw <= exposed()
    assert recorded <= {record["record"] for record in RECORDS}


@pytest.mark.slow
def test_every_query_finds_data_in_a_real_prometheus(tmp_path: Path) -> None:
    """Names, labels and values of labels are those that dynsched really gives, and the figures are
    those that the PrometheusRule really records.
    """
    rules = tmp_path / "rules.yaml"
    rules.write_text(yaml.safe_dump(quick(RULE["spec"])))
    plain, early = (Exporter(text) for text in metrics_texts().values())
    targets = [
        {"targets": [each.target], "labels": {"namespace": name, "pod": "p"}}
        for name, each in (("plain", plain), ("early", early))
    ]
    scrape = {"job_name": "dynsched", "static_configs": targets}
    with plain, early, RealPrometheus(tmp_path, [scrape], rule_files=[rules]) as prometheus:
        prometheus.wait_for("count_over_time(dynsched_build_info[10s]) > 2", series=2)
        early.text = metrics_texts(pods=5)["early"]
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
