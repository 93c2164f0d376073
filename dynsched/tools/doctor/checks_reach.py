"""The checks of what pods do: W1 and W2. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dynsched.engine.avoiders import Cause, Workload
from dynsched.engine.guard import is_eligible
from dynsched.engine.wording import counted, some
from dynsched.rules.rule_set import RuleSet
from dynsched.tools.doctor.finding import Told, error, hint, warning
from dynsched.tools.doctor.gathered import ClusterFacts
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


def few_react(facts: ClusterFacts, _: RuleSet) -> Iterator[Told]:
    """W1."""
    reach = facts.reach
    if reach is None or not reach.pods or reach.reacting >= ENOUGH * reach.pods:
        return
    worst = [_name(each) for each in reach.worst_first() if each.reacting < each.pods]
    yield (warning if reach.reacting else error)(
        "few pods react to the mark, so that marks move little load"
        if reach.reacting
        else "no pod reacts to the mark: dynsched would change nothing",
        f"{headline(reach)} Worst: {some(worst, _SHOWN)}",
        "see `dynsched reach` for a patch of each workload, inject the affinity, or set mark.taint",
    )


def cancelled(facts: ClusterFacts, rule_set: RuleSet) -> Iterator[Told]:
    """W2."""
    workloads = facts.reach.worst_first() if facts.reach is not None else []
    for cause, (summary, fix) in _SUMMARIES.items():
        found = [each for each in workloads if each.causes[cause]]
        if found:
            count = counted(sum(each.causes[cause] for each in found), "pod")
            yield warning(summary, f"{count}: {some(list(map(_name, found)), _SHOWN)}", fix)
    spread = [_name(each) for each in workloads if each.spread_by_default]
    eligible = sum(is_eligible(node, rule_set.nodes) for node in facts.nodes.values())
    if spread and 0 < eligible <= FEW_NODES:
        yield hint(
            "on three nodes or fewer, the scheduler's default spreading has about the weight of "
            "the soft affinity, and places some pods on marked nodes",
            f"{counted(eligible, 'node')} may be marked; {some(spread, _SHOWN)}",
            "give the pods a topologySpreadConstraint of their own, or set mark.taint",
        )


def _name(workload: Workload) -> str:
    return f"{workload.namespace}/{workload.name}"
