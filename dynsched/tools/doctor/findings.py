"""The doctor's findings, and the report of them: for people, and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from rich.console import Console
from rich.text import Text

from dynsched.core.wording import by_reason, counted, listed
from dynsched.util.errors import ExpectedError
from dynsched.util.tables import plain, show

_T = TypeVar("_T")


class Severity(IntEnum):
    INFO = 1
    WARNING = 2
    ERROR = 3

    def __str__(self) -> str:
        return self.name.lower()


_STYLES: Final = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.INFO: ""}
_NOUNS: Final = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "hint"}
_INDENT: Final = " " * 13


class Finding(NamedTuple):
    """One thing that is wrong. The report fills in its code and its rule."""

    code: str
    severity: Severity
    rule: str | None
    summary: str
    evidence: str
    """Numbers, names, or a part of an expression that show the problem."""
    fix: str


error = partial(Finding, "", Severity.ERROR, None)
warning = partial(Finding, "", Severity.WARNING, None)
hint = partial(Finding, "", Severity.INFO, None)


class NotChecked(NamedTuple):
    code: str
    rule: str | None
    reason: str


Check = Callable[[_T], AsyncIterator[Finding]]
"""Yields the findings about a subject. Raises ExpectedError if it cannot be checked."""
Chain = Sequence[tuple[str, Check[_T]]]
"""Checks with their codes, in the order in which they run."""


@dataclass(slots=True)
class Report:
    """``unreachable``: a line for each server that did not answer, so that checks are missing."""

    findings: list[Finding] = field(default_factory=list)
    not_checked: list[NotChecked] = field(default_factory=list)
    unreachable: list[str] = field(default_factory=list)

    def add(self, code: str, found: Iterable[Finding], rule: str | None = None) -> None:
        """Add the findings of a check without duplicates: a rule can repeat a selector."""
        self.findings += (each._replace(code=code, rule=rule) for each in dict.fromkeys(found))

    async def run(self, chain: Chain[_T], subject: _T, rule: str | None = None) -> None:
        """Run the checks and add their findings. One that fails does not stop the others."""
        for code, check in chain:
            try:
                self.add(code, [each async for each in check(subject)], rule)
            except ExpectedError as failed:
                self.not_checked.append(NotChecked(code, rule, str(failed)))

    def sort(self) -> None:
        """The worst first."""
        self.findings.sort(key=lambda each: -each.severity)

    @property
    def exit_code(self) -> int:
        """0: no error; 1: at least one; 2: a server did not answer."""
        if self.unreachable:
            return 2
        return int(any(each.severity is Severity.ERROR for each in self.findings))

    def as_json(self) -> dict[str, Any]:
        return {
            "findings": [
                each._asdict() | {"severity": str(each.severity)} for each in self.findings
            ],
            "not_checked": [each._asdict() for each in self.not_checked],
            "unreachable": self.unreachable,
        }


def render(report: Report, console: Console) -> None:
    """Print the report. It is not a table, because its columns would contain sentences."""
    for each in report.findings:
        about = f"{each.rule}: " if each.rule else ""
        head = plain(f"{each.code:<4}{each.severity!s:<8} ", _STYLES[each.severity])
        show(console, Text.assemble(head, plain(f"{about}{each.summary}")))
        show(console, plain(f"{_INDENT}evidence: {each.evidence}", "dim"))
        show(console, f"{_INDENT}fix: {each.fix}")
    unchecked = {
        each.code + (f" ({each.rule})" if each.rule else ""): each.reason
        for each in report.not_checked
    }
    for reason, codes in by_reason(unchecked).items():
        show(console, f"Not checked: {listed(codes)}: {reason}")
    show(console, _summary(report))


def _summary(report: Report) -> str:
    if not report.findings:
        return "No findings in what was checked." if report.unreachable else "No findings."
    counts = Counter(each.severity for each in report.findings)
    found = [counted(counts[each], noun) for each, noun in _NOUNS.items() if counts[each]]
    return f"{listed(found)}; docs/check.md explains each code."
