"""The doctor's report: a table for people, JSON, and JUnit's XML for CI servers."""

from __future__ import annotations

import re
from collections import Counter
from typing import Final
from xml.etree import ElementTree as ET

from rich.console import Console
from rich.text import Text

from dynsched.engine.wording import by_reason, counted, listed
from dynsched.tools.doctor.finding import CODES, Report, Severity
from dynsched.util.tables import plain, show

_STYLES: Final = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.INFO: ""}
_NOUNS: Final = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "hint"}
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
    unchecked = {
        each.code + (f" ({each.rule})" if each.rule else ""): each.reason
        for each in report.not_checked
    }
    for reason, codes in by_reason(unchecked).items():
        show(console, plain(f"Not checked: {listed(codes)}: {reason}"))
    show(console, plain(_summary(report)))


def as_junit(report: Report, fail_on: Severity) -> str:
    """One test case for each code and each finding. A finding below ``fail_on`` is no failure, and
    stands in the case's output.
    """
    suite = ET.Element("testsuite", name="dynsched doctor")

    def case(code: str, name: str) -> ET.Element:
        return ET.SubElement(suite, "testcase", classname=f"dynsched.{code}", name=_xml(name))

    skipped = {each.code: each for each in report.not_checked}
    for code, title in CODES.items():
        found = [each for each in report.findings if each.code == code]
        for each in found:
            about = {"message": _xml(each.summary), "type": str(each.severity)}
            what, more = ("failure", about) if each.severity >= fail_on else ("system-out", {})
            told = ET.SubElement(case(code, f"{code} {each.rule or title}"), what, more)
            told.text = _xml(f"{each.summary}\nevidence: {each.evidence}\nfix: {each.fix}")
        if not found:
            here = case(code, f"{code} {title}")
            if code in skipped:
                ET.SubElement(here, "skipped", message=_xml(skipped[code].reason))
    for text in report.unreachable:
        ET.SubElement(case("unreachable", text), "error", message=_xml(text), type="unreachable")
    suite.set("tests", str(len(suite)))
    for name, what in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(name, str(len(suite.findall(f"testcase/{what}"))))
    ET.indent(suite)
    return ET.tostring(suite, encoding="unicode", xml_declaration=True)


def _xml(text: str) -> str:
    return _NOT_XML.sub("?", text)


def _summary(report: Report) -> str:
    if not report.findings:
        if len(report.unreachable) == _SERVERS:
            return "Nothing was checked: neither Prometheus nor the API server could be asked."
        return "No findings." if not report.unreachable else "No findings in what was checked."
    counts = Counter(each.severity for each in report.findings)
    told = [counted(counts[each], noun) for each, noun in _NOUNS.items() if counts[each]]
    return f"{listed(told)}; docs/doctor.md explains each code."
