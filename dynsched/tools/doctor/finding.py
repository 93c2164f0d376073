"""What the doctor finds, and how bad it is."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final

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
    """How bad a finding is."""

    INFO = 1
    WARNING = 2
    ERROR = 3

    def __str__(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong."""

    code: str
    """A key of CODES."""
    severity: Severity
    summary: str
    """What is wrong, in one sentence."""
    evidence: str
    """What shows it: figures, names, a part of an expression."""
    fix: str
    """What to do, in one line."""
    rule: str | None = None
    """The name of the rule that it is about; None where it is about none."""


@dataclass(frozen=True, slots=True)
class NotChecked:
    """A check that could not be made, and why."""

    code: str
    reason: str
    rule: str | None = None


@dataclass(slots=True)
class Report:
    """What one run of the doctor came to. ``unreachable``: one line for each server that did not
    answer at all, so that its checks could not be made.
    """

    findings: list[Finding] = field(default_factory=list)
    not_checked: list[NotChecked] = field(default_factory=list)
    unreachable: list[str] = field(default_factory=list)

    def add(self, found: Iterable[Finding | NotChecked]) -> None:
        """Put each where it belongs."""
        for each in found:
            if isinstance(each, Finding):
                self.findings.append(each)
            else:
                self.not_checked.append(each)

    def without(self, codes: Collection[str]) -> Report:
        """The report without what is ignored, worst first."""
        order = list(CODES)
        findings = [each for each in self.findings if each.code not in codes]
        findings.sort(key=lambda each: (-each.severity, order.index(each.code), each.rule or ""))
        kept = [each for each in self.not_checked if each.code not in codes]
        kept.sort(key=lambda each: (order.index(each.code), each.rule or ""))
        return Report(findings, list(dict.fromkeys(kept)), self.unreachable)

    def exit_code(self, fail_on: Severity) -> int:
        """0: nothing as bad as ``fail_on``; 1: something; 2: a server could not be asked."""
        if self.unreachable:
            return 2
        return int(any(each.severity >= fail_on for each in self.findings))

    def as_json(self) -> dict[str, Any]:
        """The documented form of ``-o json``."""
        return {
            "findings": [
                {
                    "code": each.code,
                    "severity": str(each.severity),
                    "rule": each.rule,
                    "summary": each.summary,
                    "evidence": each.evidence,
                    "fix": each.fix,
                }
                for each in self.findings
            ],
            "not_checked": [
                {"code": each.code, "rule": each.rule, "reason": each.reason}
                for each in self.not_checked
            ],
            "unreachable": list(self.unreachable),
        }
