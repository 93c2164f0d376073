"""The checks of what pods do: W1 and W2. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dynsched.engine.avoiders import Cause, Reach, Workload
from dynsched.engine.wording import counted, some
from dynsched.tools.doctor.finding import Finding, Severity
from dynsched.tools.doctor.reach_report import headline

ENOUGH: Final = 0.5
"""The share of pods that react, below which marks move little load."""
FEW_NODES: Final = 3
_SHOWN: Final = 3
_SUMMARIES: Final = {
    Cause.PINNED: (
        "pods are pinned to one node each, so that no mark moves them",
        "remove the nodeSelector or the required affinity by hostname",
    ),
    Cause.SCHEDULER: (
        "pods have another schedulerName, whose scheduler may not read soft preferences",
        "see that scheduler's documentation, or give it a profile in the section extender",
    ),
    Cause.TOLERATES: (
        "pods tolerate every taint, the mark's too",
        "tolerate only the taints that are meant",
    ),
}


def check_reach(reach: Reach, eligible: int) -> Iterator[Finding]:
    """``eligible``: how many nodes may be marked."""
    if reach.pods and reach.reacting < ENOUGH * reach.pods:
        worst = [_name(each) for each in reach.worst_first() if each.reacting < each.pods]
        yield Finding(
            "W1",
            Severity.WARNING if reach.reacting else Severity.ERROR,
            "few pods react to the mark, so that marks move little load"
            if reach.reacting
            else "no pod reacts to the mark: dynsched would change nothing",
            f"{headline(reach)} Worst: {some(worst, _SHOWN)}",
            "see `dynsched reach` for a patch of each workload, inject the affinity, or set "
            "mark.taint",
        )
    for cause, (summary, fix) in _SUMMARIES.items():
        yield from _cancelled(reach, cause, summary, fix)
    spread = [each for each in reach.worst_first() if each.spread_by_default]
    if spread and 0 < eligible <= FEW_NODES:
        yield Finding(
            "W2",
            Severity.INFO,
            "on three nodes or fewer, the scheduler's default spreading has about the weight of "
            "the soft affinity, and places some pods on marked nodes",
            f"{counted(eligible, 'node')} may be marked; {some(list(map(_name, spread)), _SHOWN)}",
            "give the pods a topologySpreadConstraint of their own, or set mark.taint",
        )


def _cancelled(reach: Reach, cause: Cause, summary: str, fix: str) -> Iterator[Finding]:
    found = [each for each in reach.worst_first() if each.causes[cause]]
    count = sum(each.causes[cause] for each in found)
    if count:
        yield Finding(
            "W2",
            Severity.WARNING,
            summary,
            f"{counted(count, 'pod')}: {some(list(map(_name, found)), _SHOWN)}",
            fix,
        )


def _name(workload: Workload) -> str:
    return f"{workload.namespace}/{workload.name}"
