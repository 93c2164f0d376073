"""What the doctor finds, and how bad it is."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from typing import Any, Final, NamedTuple

CODES: Final[Mapping[str, str]] = {
    "P0": "the query of a rule",
    "P1": "metrics, labels and values that are not there",
    "P2": "ranges against scrape intervals",
    "P3": "counters and their rates",
    "P4": "one series for each node",
    "P5": "expressions that flap or compare",
    "P6": "values that are no numbers",
    "P7": "what the queries cost",
    "P8": "retention",
    "P9": "thresholds against the values of 7 days",
    "P10": "several clusters in one Prometheus",
    "P11": "CPU pressure that throttling makes",
    "N1": "nodes without samples, samples without nodes, clocks and lag",
    "N2": "foreign labels, stale marks, a limit of no marks",
    "W1": "pods that react to the mark",
    "W2": "reactions that are cancelled",
    "K1": "rights, Lease, guardrail and injection",
    "K2": "autoscalers, descheduler, Cilium",
    "K3": "an extender that nobody asks",
}
"""Every code, and what it checks. A published code keeps its meaning."""


class Severity(IntEnum):
    INFO = 1
    WARNING = 2
    ERROR = 3

    def __str__(self) -> str:
        return self.name.lower()


class Told(NamedTuple):
    """What a check finds wrong. Which code it is, and of which rule, is known to who calls it."""

    severity: Severity
    summary: str
    """What is wrong, in one sentence."""
    evidence: str
    """What shows it: figures, names, a part of an expression."""
    fix: str
    """What to do, in one line."""


error = partial(Told, Severity.ERROR)
warning = partial(Told, Severity.WARNING)
hint = partial(Told, Severity.INFO)


class Finding(NamedTuple):
    """One thing that is wrong. ``code``: a key of CODES; ``rule``: the one that it is about."""

    code: str
    severity: Severity
    rule: str | None
    summary: str
    evidence: str
    fix: str


class NotChecked(NamedTuple):
    """A check that could not be made, and why."""

    code: str
    rule: str | None
    reason: str


def findings(code: str, told: Iterable[Told], rule: str | None = None) -> Iterator[Finding]:
    """What a check tells, once each: a selector may stand several times in a rule."""
    for severity, *words in dict.fromkeys(told):
        yield Finding(code, severity, rule, *words)


@dataclass(slots=True)
class Report:
    """What one run of the doctor came to. ``unreachable``: one line for each server that did not
    answer at all, so that its checks could not be made.
    """

    findings: list[Finding] = field(default_factory=list)
    not_checked: list[NotChecked] = field(default_factory=list)
    unreachable: list[str] = field(default_factory=list)

    def add(self, found: Iterable[Finding | NotChecked]) -> None:
        for each in found:
            if isinstance(each, Finding):
                self.findings.append(each)
            else:
                self.not_checked.append(each)

    def without(self, codes: Collection[str]) -> Report:
        """The report without what is ignored, worst first."""
        order = list(CODES)
        found = [each for each in self.findings if each.code not in codes]
        found.sort(key=lambda each: (-each.severity, order.index(each.code), each.rule or ""))
        kept = [each for each in dict.fromkeys(self.not_checked) if each.code not in codes]
        kept.sort(key=lambda each: (order.index(each.code), each.rule or ""))
        return Report(found, kept, self.unreachable)

    def exit_code(self, fail_on: Severity) -> int:
        """0: nothing as bad as ``fail_on``; 1: something; 2: a server could not be asked."""
        if self.unreachable:
            return 2
        return int(any(each.severity >= fail_on for each in self.findings))

    def as_json(self) -> dict[str, Any]:
        """The documented form of ``-o json``."""
        return {
            "findings": [
                each._asdict() | {"severity": str(each.severity)} for each in self.findings
            ],
            "not_checked": [each._asdict() for each in self.not_checked],
            "unreachable": self.unreachable,
        }
