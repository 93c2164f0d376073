"""The report as a table and as JSON, its sequence, and the exit code."""

import asyncio
import json

from rich.console import Console

from dynsched.tools.doctor.findings import Finding, NotChecked, Report, Severity, render


def report() -> Report:
    low = Finding("P12", Severity.INFO, "cpu", "late", "in full after 2m", "scrape more often")
    high = Finding("P1", Severity.ERROR, "mem", "no metric \x00", "none [red]", "correct it")
    taint = Finding("K2", Severity.WARNING, None, "Karpenter", "a taint", "no taint")
    found = Report([low, high, taint], [NotChecked("P9", None, "404")])
    found.sort()
    return found


def test_findings_come_worst_first_and_an_error_is_exit_code_1() -> None:
    found = report()
    assert [each.code for each in found.findings] == ["P1", "K2", "P12"]
    assert found.exit_code == 1
    assert Report(found.findings[1:]).exit_code == 0
    assert Report(unreachable=["the API server is away"]).exit_code == 2


def test_json_has_the_documented_names() -> None:
    found = report().as_json()
    worst = {"code": "P1", "severity": "error", "rule": "mem", "summary": "no metric \x00"}
    assert found["findings"][0] == worst | {"evidence": "none [red]", "fix": "correct it"}
    assert found["findings"][1]["rule"] is None
    assert found["not_checked"] == [{"code": "P9", "rule": None, "reason": "404"}]
    assert found["unreachable"] == []


def test_the_table_has_evidence_fixes_and_unchecked_items(capsys) -> None:
    render(report(), Console(width=120, color_system=None))
    text = capsys.readouterr().out
    assert "evidence: none [red]" in text
    assert "fix: correct it" in text
    assert "\x00" not in text
    assert "Not checked: P9: 404" in text
    assert "1 error, 1 warning and 1 hint" in text


async def test_without_prometheus_and_dynsched_the_missing_installation_is_reported_once(
    tmp_path, call, sim
) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text("{rules: [{name: cpu, expr: up, threshold: 1}], order: {score: {cpu: 1}}}")
    asking = ("--prom", "http://127.0.0.1:1", "-r", rules, "--kubeconfig", sim.kubeconfig)
    _, printed, _ = await asyncio.to_thread(call, "doctor", *asking, "-o", "json")
    assert [each["code"] for each in json.loads(printed)["findings"]] == ["K5"]


async def test_unreachable_servers_and_unusable_files_are_exit_code_2(tmp_path, call, sim) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text("rules: [{name: cpu, expr: up, threshold: 1}]")
    asking = ("doctor", "--prom", "http://127.0.0.1:1", "-r", rules, "--kubeconfig")
    for kubeconfig, error in (
        (sim.kubeconfig, "Prometheus at http://127.0.0.1:1: connection refused"),
        (tmp_path / "none", "none: no such file; check --kubeconfig"),
    ):
        code, printed, errors = await asyncio.to_thread(call, *asking, kubeconfig, "-o", "json")
        (line,) = json.loads(printed)["unreachable"]
        assert (code, error in line, f"Error: {line}" in errors) == (2, True, True)
    _, printed, _ = await asyncio.to_thread(call, *asking, tmp_path / "none")
    assert printed == "No findings in what was checked.\n"
    rules.write_text("rules: [{name: cpu, expr: up}]")
    code, _, errors = call("doctor", "-r", rules)
    assert (code, "threshold" in errors) == (2, True)
