"""What `dynsched reach` shows: which pods react to the mark, as a table and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from rich.console import Console

from dynsched.engine.wording import counted, listed, some
from dynsched.tools.doctor.avoiders import NoEffect, Reach, Way, Workload, patch_of
from dynsched.util.defaults import MAX_ROWS
from dynsched.util.tables import make_table, show

_GIB: Final = 2**30
_PATCHES: Final = 5
"""Commands that the table shows; the JSON has one for each workload."""


def as_json(reach: Reach) -> dict[str, Any]:
    """The documented form of ``-o json``; those workloads first of which most pods do not react."""
    return {
        "mark": str(reach.mark),
        **_counts(reach.total),
        "left_out": dict(reach.left_out),
        "workloads": [_workload(reach, each) for each in reach.worst_first()],
    }


def render_reach(reach: Reach, console: Console, *, every: bool = False) -> None:
    workloads = reach.worst_first()
    shown = workloads if every else workloads[:MAX_ROWS]
    titles = ("NAMESPACE", "WORKLOAD", "REACTING", "CPU", "MEMORY", "BY", "NOTE")
    show(console, headline(reach), make_table(titles, map(_row, shown)))
    if len(shown) < len(workloads):
        show(console, f"{len(workloads) - len(shown)} more workloads: --all shows them.")
    show(console, *_remedies(reach, workloads))


def headline(reach: Reach) -> str:
    """The share of pods and of requests that react, and which pods are not counted."""
    total = reach.total
    text = (
        f"{total.reacting} of {counted(total.pods, 'running pod')} "
        f"react{'s' if 1 in (total.reacting, total.pods) else ''} to the mark ({reach.mark}): "
        f"{_percent(total.reacting, total.pods)}"
    )
    if total.pods:
        cpu, memory = (
            _percent(total.requests_reacting[each], total.requests[each])
            for each in ("cpu", "memory")
        )
        text += f"; of the requested CPU {cpu}, of the memory {memory}"
    if reach.left_out:
        out = [f"{count} {why}" for why, count in sorted(reach.left_out.items())]
        text += f". Not counted: {listed(out)}"
    return text + "."


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "-"


def _said(workload: Workload) -> list[str]:
    by_schedulers = f"scheduled by {some(sorted(workload.schedulers), 2)}"
    return [
        f"{count} {by_schedulers if cause is NoEffect.SCHEDULER else cause}"
        for cause, count in sorted(workload.causes.items())
        if count
    ]


def _note(reach: Reach, workload: Workload, patch: str | None) -> str:
    """Why pods do not react, or what to do where no command helps; empty where all react."""
    if workload.causes.total() or workload.reacting == workload.pods:
        return "; ".join(_said(workload))
    if reach.mark.is_none:
        return "no node is marked"
    if reach.mark.label is None:
        return f"tolerate the taint {reach.mark.taint}: remove the toleration"
    if patch is None:
        return f"set the affinity where this {workload.kind} is made, or inject it"
    return "no soft affinity on the label"


def _patch(reach: Reach, workload: Workload) -> str | None:
    """The command that mends it; None where it needs none, or none would."""
    label = reach.mark.label
    if label is None or workload.reacting == workload.pods or workload.causes[NoEffect.PINNED]:
        return None
    return patch_of(workload, label)


def _workload(reach: Reach, workload: Workload) -> dict[str, Any]:
    patch = _patch(reach, workload)
    return {
        "namespace": workload.namespace,
        "workload": workload.name,
        "kind": workload.kind,
        **_counts(workload),
        "by": {str(way): count for way, count in sorted(workload.ways.items())},
        "causes": {str(cause): count for cause, count in sorted(workload.causes.items())},
        "note": _note(reach, workload, patch),
        "patch": patch,
    }


def _counts(workload: Workload) -> dict[str, Any]:
    asked, reacting = workload.requests, workload.requests_reacting
    return {
        "pods": workload.pods,
        "reacting": workload.reacting,
        "requests": {"cpu": round(asked["cpu"], 3), "memory": round(asked["memory"])},
        "requests_reacting": {
            "cpu": round(reacting["cpu"], 3),
            "memory": round(reacting["memory"]),
        },
    }


def _row(workload: Workload) -> tuple[str, ...]:
    return (
        workload.namespace,
        f"{workload.kind.lower()}/{workload.name}",
        f"{workload.reacting}/{workload.pods}",
        f"{workload.requests['cpu']:.4g}",
        f"{workload.requests['memory'] / _GIB:.3g} GiB",
        ", ".join(sorted(workload.ways)) or "-",
        ", ".join(_said(workload)),
    )


def _remedies(reach: Reach, workloads: list[Workload]) -> Iterator[str]:
    patches = [command for each in workloads if (command := _patch(reach, each)) is not None]
    if patches:
        yield ""
        yield "A soft affinity for the worst of them (it restarts their pods):"
        yield from (f"  {each}" for each in patches[:_PATCHES])
    if len(patches) > _PATCHES:
        yield f"  and {len(patches) - _PATCHES} more: -o json has them all"
    if any(Way.EXTENDER in each.ways for each in workloads):
        yield (
            "By the extender: pods whose schedulerName has a profile in rules.yaml react if their "
            "scheduler is configured to ask it (`dynsched doctor`, K3)."
        )
