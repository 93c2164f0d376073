"""The doctor's report: a table for people, JSON, and JUnit's XML for CI servers."""

from __future__ import annotations

import json
import re
from typing import Final
from xml.etree import ElementTree as ET

from rich.console import Console
from rich.text import Text

from dynsched.engine.wording import by_reason, counted, listed
from dynsched.tools.doctor.finding import CODES, Finding, Report, Severity
from dynsched.util.tables import plain, show

_STYLES: Final = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.INFO: ""}
_SERVERS: Final = 2
_INDENT: Final = " " * 13
_NOT_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render(report: Report, console: Console) -> None:
    """The findings, worst first, each with what shows it and what to do; then what was not
    checked. No columns: what they would hold is sentences.
    """
    for each in report.findings:
        about = f"{each.rule}: " if each.rule else ""
        head = plain(f"{each.code:<4}{each.severity!s:<8} ", _STYLES[each.severity])
        show(console, Text.assemble(head, plain(f"{about}{each.summary}")))
        show(console, plain(f"{_INDENT}evidence: {each.evidence}", "dim"))
        show(console, plain(f"{_INDENT}fix: {each.fix}"))
    for reason, codes in _unchecked(report).items():
        show(console, plain(f"Not checked: {listed(codes)}: {reason}"))
    show(console, plain(_summary(report)))


def as_json(report: Report) -> str:
    """The documented JSON."""
    return json.dumps(report.as_json(), indent=2, ensure_ascii=False)


def as_junit(report: Report, fail_on: Severity) -> str:
    """One test case for each code and each finding. A finding below ``fail_on`` is no failure, and
    stands in the case's output.
    """
    suite = ET.Element("testsuite", name="dynsched doctor")
    skipped = {each.code: each for each in report.not_checked}
    for code, title in CODES.items():
        found = [each for each in report.findings if each.code == code]
        for each in found:
            case = _case(suite, code, f"{code} {each.rule or title}")
            is_failure = each.severity >= fail_on
            told = ET.SubElement(case, "failure" if is_failure else "system-out")
            told.text = _xml(f"{each.summary}\nevidence: {each.evidence}\nfix: {each.fix}")
            if is_failure:
                told.set("message", _xml(each.summary))
                told.set("type", str(each.severity))
        if not found:
            case = _case(suite, code, f"{code} {title}")
            if code in skipped:
                ET.SubElement(case, "skipped", message=_xml(skipped[code].reason))
    for text in report.unreachable:
        error = ET.SubElement(_case(suite, "unreachable", text), "error", message=_xml(text))
        error.set("type", "unreachable")
    suite.set("tests", str(len(suite)))
    suite.set("failures", str(len(suite.findall("testcase/failure"))))
    suite.set("errors", str(len(suite.findall("testcase/error"))))
    suite.set("skipped", str(len(suite.findall("testcase/skipped"))))
    ET.indent(suite)
    return ET.tostring(suite, encoding="unicode", xml_declaration=True)


def _case(suite: ET.Element, code: str, name: str) -> ET.Element:
    return ET.SubElement(suite, "testcase", classname=f"dynsched.{code}", name=_xml(name))


def _xml(text: str) -> str:
    return _NOT_XML.sub("?", text)


def _unchecked(report: Report) -> dict[str, list[str]]:
    reasons = {
        each.code + (f" ({each.rule})" if each.rule else ""): each.reason
        for each in report.not_checked
    }
    return by_reason(reasons)


def _summary(report: Report) -> str:
    if not report.findings:
        if len(report.unreachable) == _SERVERS:
            return "Nothing was checked: neither Prometheus nor the API server could be asked."
        return "No findings." if not report.unreachable else "No findings in what was checked."
    return f"{listed(list(_counts(report.findings)))}; docs/doctor.md explains each code."


def _counts(findings: list[Finding]) -> list[str]:
    counts = []
    for severity, noun in (
        (Severity.ERROR, "error"),
        (Severity.WARNING, "warning"),
        (Severity.INFO, "hint"),
    ):
        number = sum(each.severity is severity for each in findings)
        if number:
            counts.append(counted(number, noun))
    return counts
