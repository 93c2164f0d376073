"""The report's forms, its order, what is left out of it, and the exit code."""

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
    told = report().as_json()
    worst = {"code": "P1", "severity": "error", "rule": "mem", "summary": "no metric \x00"}
    assert told["findings"][0] == worst | {"evidence": "none [red]", "fix": "correct it"}
    assert told["findings"][1]["rule"] is None
    assert told["not_checked"] == [{"code": "P9", "rule": None, "reason": "404"}]
    assert told["unreachable"] == []


def test_the_table_has_evidence_and_fix_and_says_what_was_not_checked(capsys) -> None:
    render(report(), Console(width=120, color_system=None))
    text = capsys.readouterr().out
    assert "evidence: none [red]" in text
    assert "fix: correct it" in text
    assert "\x00" not in text
    assert "Not checked: P9: 404" in text
    assert "1 error, 1 warning and 1 hint" in text


async def test_nobody_to_ask_and_what_cannot_be_used_are_exit_code_2(tmp_path, call, sim) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text("rules: [{name: cpu, expr: up, threshold: 1}]")
    asking = ("doctor", "--prom", "http://127.0.0.1:1", "-r", rules, "--kubeconfig")
    for kubeconfig, told in (
        (sim.kubeconfig, "Prometheus at http://127.0.0.1:1: connection refused"),
        (tmp_path / "none", "none: no such file; check --kubeconfig"),
    ):
        code, printed, errors = await asyncio.to_thread(call, *asking, kubeconfig, "-o", "json")
        (line,) = json.loads(printed)["unreachable"]
        assert (code, told in line, f"Error: {line}" in errors) == (2, True, True)
    _, printed, _ = await asyncio.to_thread(call, *asking, tmp_path / "none")
    assert printed == "No findings in what was checked.\n"
    rules.write_text("rules: [{name: cpu, expr: up}]")
    code, _, errors = call("doctor", "-r", rules)
    assert (code, "threshold" in errors) == (2, True)
