"""How many pods were placed onto a node that was over its threshold at that moment."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from dynsched.engine.pod_values import workload_of
from dynsched.tools.backtest.pod_placements import Placements
from dynsched.tools.backtest.replaying import Record
from dynsched.util.formatting import format_time

Json = dict[str, Any]


def regret(placements: Placements, record: Record) -> Json:
    """The JSON of it (docs/backtest.md)."""
    room, known, unknown = placements.room, record.any_known, 0
    # By kind and name: pods that were placed, on a hot node, and while another one had room.
    sums: defaultdict[str, defaultdict[str, Counter[str]]] = defaultdict(
        lambda: defaultdict(Counter)
    )
    may = known & record.counted & ~record.over & ~record.played.marked
    for pod in placements.pods:
        row = record.window.row(pod.at)
        hot = bool(record.over[row, pod.place])
        unknown += not known[row, pod.place]
        others = may[row]
        had_room = hot and bool((room.has(pod, others) if room else others).any())
        for kind, name in (
            ("total", ""),
            ("day", format_time(pod.at)[:10]),
            ("namespace", pod.namespace),
            ("workload", workload_of(pod.namespace, pod.pod)),
        ):
            sums[kind][name].update(placed=1, hot=int(hot), room=int(had_room))
    limits = list(placements.limits)
    if unknown:
        limits.append(f"Of {unknown:,} pods the load of the node was not known; they are not hot.")
    return {
        **_numbers(sums["total"][""]),
        "pods_of_unknown_load": unknown,
        **placements.told,
        "days": [{"day": day, **_numbers(each)} for day, each in sorted(sums["day"].items())],
        "namespaces": _worst(sums["namespace"], "namespace"),
        "workloads": _worst(sums["workload"], "workload"),
        "limits": limits,
    }


def _numbers(each: Counter[str]) -> Json:
    return {
        "pods_placed": each["placed"],
        "pods_on_hot": each["hot"],
        "share_on_hot": round(each["hot"] / each["placed"], 6) if each["placed"] else None,
        "pods_with_room": each["room"],
    }


def _worst(found: dict[str, Counter[str]], name: str) -> list[Json]:
    entries = [{name: key, **_numbers(each)} for key, each in found.items()]
    return sorted(entries, key=lambda one: (-one["pods_on_hot"], -one["pods_placed"], one[name]))
