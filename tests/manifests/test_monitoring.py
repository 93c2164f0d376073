"""manifests/components/monitoring: alerts that fire when they should, a dashboard with data."""

from __future__ import annotations

import itertools
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from manifest_support import COMPONENTS, OVERLAYS, Doc, kustomize, load_all, the
from programs import ROOT, need, run
from prometheus_client import CollectorRegistry
from prometheus_support import Exporter, RealPrometheus
from snapshots import example

from dynsched.web.api import ENDPOINTS
from dynsched.web.metrics import Metrics

FOLDER = COMPONENTS / "monitoring"
CASES = ROOT / "tests/promtool/alerts.test.yaml"
PAGE = ROOT / "docs/monitoring.md"
DASHBOARD: Doc = json.loads((FOLDER / "dashboard.json").read_text())
(RULE,) = load_all(FOLDER / "prometheusrule.yaml")
ALERTS: list[Doc] = [rule for group in RULE["spec"]["groups"] for rule in group["rules"]]
NAME = re.compile(r"\b(?:dynsched|process)_\w+")
SELECTOR = re.compile(r"\bdynsched_\w+(?:\{[^}]*\})?")


def metrics_text() -> str:
    metrics = Metrics(CollectorRegistry())
    metrics.observe(example())
    return metrics.exposition().decode()


def panels() -> Iterator[Doc]:
    return (panel for panel in DASHBOARD["panels"] if panel["type"] != "row")


def queries() -> list[str]:
    """The dashboard's, as Grafana asks them when all namespaces are chosen."""
    found = [target["expr"] for panel in panels() for target in panel["targets"]]
    return [expr.replace("$namespace", ".*").replace("$__rate_interval", "10s") for expr in found]


def exposed() -> set[str]:
    return set(re.findall(r"^(\w+)(?:\{| )", metrics_text(), re.MULTILINE))


@pytest.mark.parametrize(
    "expr", [*(alert["expr"] for alert in ALERTS), *queries()], ids=lambda expr: expr[:60]
)
def test_every_metric_that_is_asked_for_is_there(expr: str) -> None:
    asked = set(NAME.findall(expr))
    assert asked
    assert asked <= exposed()


# --- alerts ---


@pytest.fixture
def rules_file(tmp_path: Path) -> Path:
    """The PrometheusRule as a file of Prometheus's own."""
    path = tmp_path / "alerts.yaml"
    path.write_text(yaml.safe_dump(RULE["spec"], sort_keys=False))
    return path


def test_promtool_reads_the_alerts(rules_file: Path) -> None:
    strict = ("--lint=all", "--lint-fatal")
    done = run(need("promtool", "prometheus"), "check", "rules", *strict, rules_file)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(ALERTS)} rules found" in done.stdout


def test_the_alerts_fire_when_they_should_and_only_then(rules_file: Path) -> None:
    cases = Path(shutil.copy(CASES, rules_file.parent))
    done = run(need("promtool", "prometheus"), "test", "rules", cases)
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_is_seen_firing_and_seen_quiet() -> None:
    """In promtool's tests. Each asks for all alerts that fire."""
    fired: list[set[str]] = []
    for case in yaml.safe_load(CASES.read_text())["tests"]:
        for asked in case["promql_expr_test"]:
            assert asked["expr"] == 'ALERTS{alertstate="firing"}'
            samples = [sample["labels"] for sample in asked["exp_samples"]]
            fired.append(set(re.findall(r'alertname="(\w+)"', " ".join(samples))))
        assert any(not each for each in fired[-len(case["promql_expr_test"]) :]), case["name"]
    assert set().union(*fired) == {alert["alert"] for alert in ALERTS}


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])
def test_each_alert_says_what_it_is_and_what_to_do(alert: Doc) -> None:
    name, notes = alert["alert"], alert["annotations"]
    assert name.startswith("Dynsched")
    assert alert["for"]
    assert alert["labels"] == {"severity": alert["labels"]["severity"]}
    assert alert["labels"]["severity"] in ("warning", "info")
    assert notes.keys() == {"summary", "description", "runbook"}
    assert not notes["summary"].endswith(".")
    assert notes["description"].endswith(".")
    assert notes["runbook"] == f"docs/monitoring.md#{name.lower()}"
    assert f"\n### {name}\n" in PAGE.read_text()


def test_the_page_has_no_alert_that_is_gone() -> None:
    named = re.findall(r"^### (Dynsched\w+)$", PAGE.read_text(), re.MULTILINE)
    assert named == [alert["alert"] for alert in ALERTS]


# --- dashboard ---


def test_the_dashboard_is_well_formed() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    for panel in panels():
        assert panel["title"]
        assert panel["description"].endswith("."), panel["title"]
        assert panel["datasource"]["uid"] == "${datasource}"
        letters = [target["refId"] for target in panel["targets"]]
        assert len(set(letters)) == len(letters)
        for target in panel["targets"]:
            assert target["datasource"] == panel["datasource"]
            assert 'namespace=~"$namespace"' in target["expr"]
    assert [each["name"] for each in DASHBOARD["templating"]["list"]] == ["datasource", "namespace"]


def test_no_panel_lies_over_another() -> None:
    for panel in DASHBOARD["panels"]:
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24
    for one, other in itertools.combinations(DASHBOARD["panels"], 2):
        a, b = one["gridPos"], other["gridPos"]
        beside = a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"]
        below = a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"]
        assert beside or below, (one["title"], other["title"])


@pytest.mark.slow
def test_every_query_finds_data_in_a_real_prometheus(tmp_path: Path) -> None:
    """Names, labels and values of labels are those that dynsched really gives."""
    with Exporter(metrics_text()) as exporter:
        target = {"targets": [exporter.target], "labels": {"namespace": "d", "pod": "p"}}
        scrape = {"job_name": "dynsched", "static_configs": [target]}
        with RealPrometheus(tmp_path, [scrape]) as prometheus:
            prometheus.wait_for("count_over_time(dynsched_build_info[10s]) > 2")
            for expr in queries():
                found = prometheus.result(expr)
                assert found, expr
                assert "None" not in str(found)
            for alert in ALERTS:
                for selector in SELECTOR.findall(alert["expr"]):
                    assert prometheus.result(selector), f"{alert['alert']}: {selector}"


# --- what brings them into the cluster ---


@pytest.fixture(scope="module")
def rendered() -> list[Doc]:
    return kustomize(OVERLAYS / "monitoring")


def test_grafana_and_prometheus_find_them(rendered: list[Doc]) -> None:
    config = the(rendered, "ConfigMap", "dynsched-dashboard")
    assert config["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert json.loads(config["data"]["dynsched.json"]) == DASHBOARD
    assert the(rendered, "PrometheusRule") == RULE


def test_each_replica_is_scraped(rendered: list[Doc]) -> None:
    spec: dict[str, Any] = the(rendered, "PodMonitor")["spec"]
    template = the(rendered, "Deployment")["spec"]["template"]
    assert spec["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    (endpoint,) = spec["podMetricsEndpoints"]
    ports = [port["name"] for port in template["spec"]["containers"][0]["ports"]]
    assert endpoint["port"] in ports
    assert endpoint["path"] in ENDPOINTS
