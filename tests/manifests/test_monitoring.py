"""manifests/components/monitoring: alerts, recorded series, and the descheduler's query.

Prometheus's own promtool evaluates them.
"""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from descheduler_support import QUERY
from manifest_support import Doc, kustomize, shipped, the
from monitoring_support import ALERTS, DASHBOARD, RECORDS, RULE, exposed, queries
from programs import ROOT, need, run

from dynsched.web.app import ENDPOINTS

FOLDER = ROOT / "tests/promtool"
# Values are read as text, because YAML would read `0x300` as a number.
CASES: list[Doc] = yaml.load((FOLDER / "alerts.yaml").read_text(), Loader=yaml.BaseLoader)
PAGE = ROOT / "docs/operate.md"
RUNBOOKS = "https://github.com/OWNER/dynsched/blob/main/docs/operate.md"
ALERT = re.compile(r"\w+(?:\{.*?\})?")


def promtool(command: str, *arguments: str | Path) -> None:
    done = run(need("promtool", "prometheus"), command, "rules", *arguments)
    assert done.returncode == 0, done.stdout + done.stderr


def labelled(text: str, **more: str) -> tuple[str, dict[str, str]]:
    """Name and labels of `name{label="x"}`; its labels override ``more``."""
    name, _, labels = text.partition("{")
    return name, more | dict(re.findall(r'(\w+)="(.*?)"', labels))


def series(text: str) -> str:
    name, labels = labelled(text, namespace="d", pod="p1")
    labels = {"instance": labels["pod"].replace("p", "i"), **labels}
    return f"dynsched_{name}{shown(labels)}"


def shown(labels: dict[str, str]) -> str:
    return "{" + ", ".join(f'{key}="{text}"' for key, text in labels.items() if text) + "}"


def firing(text: str) -> Doc:
    name, labels = labelled(text, severity="warning", namespace="d")
    labels = {"alertname": name, "alertstate": "firing"} | labels
    return {"labels": f"ALERTS{shown(labels)}", "value": 1}


def case(given: Doc) -> Doc:
    """One of our cases in promtool's format."""
    values = given["series"]
    if alive := given.get("alive"):
        ticks = f"0+30x{alive}"
        values = {"build_info": f"1x{alive}", "last_tick_timestamp_seconds": ticks} | values
    found: Doc = {"name": given["name"], "interval": given.get("interval", "30s")}
    found["input_series"] = [{"series": series(k), "values": str(v)} for k, v in values.items()]
    found["promql_expr_test"] = [
        {
            "expr": 'ALERTS{alertstate="firing"}',
            "eval_time": moment,
            "exp_samples": [firing(alert) for alert in ALERT.findall(alerts)],
        }
        for moment, alerts in given["fires"].items()
    ]
    return found


def test_the_alerts_fire_when_they_should_and_only_then(tmp_path: Path) -> None:
    rules, cases = tmp_path / "alerts.yaml", tmp_path / "cases.yaml"
    rules.write_text(yaml.safe_dump(RULE["spec"], sort_keys=False))
    promtool("check", "--lint=all", "--lint-fatal", rules)
    given = [case(each) for each in CASES]
    head = {"rule_files": [rules.name], "evaluation_interval": "30s"}
    cases.write_text(yaml.safe_dump(head | {"tests": given}))
    promtool("test", cases)


def test_the_cases_show_each_alert_firing_and_each_case_has_a_quiet_moment() -> None:
    fired = {
        labelled(alert)[0]
        for each in CASES
        for alerts in each["fires"].values()
        for alert in ALERT.findall(alerts)
    }
    assert fired == {alert["alert"] for alert in ALERTS}
    assert [each["name"] for each in CASES if all(each["fires"].values())] == []


def test_each_alert_links_to_its_section_of_the_page() -> None:
    for notes in (alert["annotations"] | {"of": alert["alert"]} for alert in ALERTS):
        assert notes.keys() == {"of", "summary", "description", "runbook_url"}
        # The anchor that GitHub generates for the heading.
        assert notes["runbook_url"] == f"{RUNBOOKS}#{notes['of'].lower()}"


def test_the_page_has_each_alert_with_its_severity_and_duration() -> None:
    section = r"^### (\w+)\n\n(Warning|Info) after (\w+)\. First: `(?:kubectl|dynsched) [^`\n]+`$"
    assert re.findall(section, PAGE.read_text(), re.MULTILINE) == [
        (alert["alert"], alert["labels"]["severity"].capitalize(), alert["for"]) for alert in ALERTS
    ]


def test_the_recorded_series_are_right(tmp_path: Path) -> None:
    # Without the alerts: hours of them take longer than all recorded series.
    groups = [group for group in RULE["spec"]["groups"] if "record" in group["rules"][0]]
    (tmp_path / "records.yaml").write_text(yaml.safe_dump({"groups": groups}))
    promtool("test", shutil.copy(FOLDER / "records.test.yaml", tmp_path))


def test_the_deschedulers_query_returns_only_verdicts_of_the_last_minute(tmp_path: Path) -> None:
    text = (FOLDER / "descheduler.test.yaml").read_text()
    path = tmp_path / "cases.yaml"
    path.write_text(text.replace("expr: QUERY", f"expr: {json.dumps(QUERY)}"))
    promtool("test", path)


def test_the_dashboard_has_a_line_for_each_cluster_including_one_that_is_gone(
    tmp_path: Path,
) -> None:
    def whole(begun: re.Match[str]) -> str:
        return "expr: " + json.dumps(next(q for q in queries() if q.startswith(begun[1])))

    path = tmp_path / "cases.yaml"
    path.write_text(
        re.sub(r"expr: (.*) \.\.\.", whole, (FOLDER / "clusters.test.yaml").read_text())
    )
    promtool("test", path)


def test_recording_rules_work_without_an_operator() -> None:
    """They record the expected values under the names that other tools read."""
    shipped = ROOT / "manifests/prometheus/rules.yaml"
    promtool("check", "--lint-fatal", shipped)
    promtool("test", FOLDER / "recording-rules.yaml")
    (group,) = yaml.safe_load(shipped.read_text())["groups"]
    names = {rule["record"] for rule in group["rules"]}
    assert {"HostMemoryUsagePercent", "node_mem_usage_avg_5m", "node_cpu_usage_avg_5m"} <= names


def test_the_pages_remote_write_filter_keeps_exactly_the_recorded_series() -> None:
    (relabel,) = re.findall(r'regex: "(namespace\S+)"', PAGE.read_text())
    for record in RECORDS:
        assert re.fullmatch(relabel, record["record"])
    assert not [name for name in exposed() if re.fullmatch(relabel, name)]


@pytest.fixture(scope="module")
def rendered() -> list[Doc]:
    return kustomize(shipped("monitoring"))


def test_grafana_and_prometheus_find_dashboard_and_rules(rendered: list[Doc]) -> None:
    config = the(rendered, "ConfigMap", "dynsched-dashboard")
    assert config["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert yaml.safe_load(config["data"]["dynsched.json"]) == DASHBOARD  # JSON is YAML
    assert the(rendered, "PrometheusRule") == RULE


def test_each_replica_is_scraped(rendered: list[Doc]) -> None:
    spec: dict[str, Any] = the(rendered, "PodMonitor")["spec"]
    template = the(rendered, "Deployment")["spec"]["template"]
    assert spec["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    (endpoint,) = spec["podMetricsEndpoints"]
    ports = [port["name"] for port in template["spec"]["containers"][0]["ports"]]
    assert endpoint["port"] in ports
    assert endpoint["path"] in ENDPOINTS
