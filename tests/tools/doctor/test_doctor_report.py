"""The report's forms, its order, what is left out of it, and the exit code."""

import asyncio
import json

import pytest
from rich.console import Console

from dynsched.tools.doctor.findings import Finding, NotChecked, Report, Severity, render


def report() -> Report:
    found = Report()
    low = Finding("P9", Severity.INFO, "cpu", "never passed", "0 to 1", "lower it")
    high = Finding("P1", Severity.ERROR, "mem", "no metric \x00", "none [red]", "correct it")
    foreign = Finding("N2", Severity.WARNING, None, "foreign label", "status=a", "remove it")
    found.add([low, high, NotChecked("P6", None, "404"), foreign])
    return found


def test_findings_come_worst_first_and_codes_can_be_left_out() -> None:
    assert [each.code for each in report().without([]).findings] == ["P1", "N2", "P9"]
    kept = report().without(["P1", "P6"])
    assert [each.code for each in kept.findings] == ["N2", "P9"]
    assert kept.not_checked == []


@pytest.mark.parametrize(
    ("ignored", "fail_on", "code"),
    [
        ([], Severity.ERROR, 1),
        (["P1"], Severity.ERROR, 0),
        (["P1"], Severity.WARNING, 1),
        (["P1", "N2"], Severity.WARNING, 0),
        (["P1", "N2"], Severity.INFO, 1),
    ],
)
def test_the_exit_code_is_by_the_worst_finding(ignored, fail_on, code) -> None:
    assert report().without(ignored).exit_code(fail_on) == code
    assert Report(unreachable=["the API server is away"]).exit_code(fail_on) == 2


def test_json_has_the_documented_names() -> None:
    told = report().without([]).as_json()
    worst = {"code": "P1", "severity": "error", "rule": "mem", "summary": "no metric \x00"}
    assert told["findings"][0] == worst | {"evidence": "none [red]", "fix": "correct it"}
    assert told["findings"][1]["rule"] is None
    assert told["not_checked"] == [{"code": "P6", "rule": None, "reason": "404"}]
    assert told["unreachable"] == []


def test_the_table_has_evidence_and_fix_and_says_what_was_not_checked(capsys) -> None:
    render(report().without([]), Console(width=120, color_system=None))
    text = capsys.readouterr().out
    assert "evidence: none [red]" in text
    assert "fix: correct it" in text
    assert "\x00" not in text
    assert "Not checked: P6: 404" in text
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
    for words, told in (("-r", rules), "threshold"), (("--ignore", "X1"), "'X1' is not one of"):
        code, _, errors = call("doctor", *words)
        assert (code, told in errors) == (2, True)
