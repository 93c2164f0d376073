"""Snapshot -> the JSON of `/status` and `/rules`. Pure. Times are RFC 3339 in UTC, measured
durations seconds, configured ones as in rules.yaml.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from dynsched import __version__
from dynsched.engine.health import unmatched_rules
from dynsched.engine.load.expected import NO_PODS
from dynsched.engine.loads import full_at
from dynsched.engine.model import AlertState, RuleHealth
from dynsched.engine.snapshot import Snapshot
from dynsched.rules.rule_set import RuleSet
from dynsched.util.durations import format_duration
from dynsched.util.formatting import format_time

MAX_LISTED: Final = 20
"""The most conflicts, unmatched samples and failures that `/status` lists; it counts all."""

_BEFORE_THE_FIRST_TICK: Final[Mapping[str, None]] = dict.fromkeys(
    (
        *("leading", "dry_run", "rules_error", "tick", "nodes", "pods", "rules", "conflicts"),
        *("disputes", "unmatched_samples", "capped_pools", "patch_failures", "delayed_writes"),
    )
)


def status_answer(
    snapshot: Snapshot | None,
    *,
    error: str | None,
    source: str,
    leader: str | None,
) -> dict[str, Any]:
    """Before the first tick all that comes from one is null."""
    return {
        "ok": error is None,
        "error": error,
        "version": __version__,
        "source": source,
        "leader": leader,
        **(_BEFORE_THE_FIRST_TICK if snapshot is None else _of_a_tick(snapshot)),
    }


def rules_answer(snapshot: Snapshot) -> dict[str, Any]:
    rule_set, blind = snapshot.rule_set, unmatched_rules(snapshot)
    sections = {"mark_rules", "nodes", "guard", "extender", "order"}
    return {
        **rule_set.model_dump(by_alias=True, include=sections),
        "rules": [_rule(health, rule_set, blind) for health in snapshot.rules],
    }


def _of_a_tick(snapshot: Snapshot) -> dict[str, Any]:
    nodes, blind = snapshot.nodes, unmatched_rules(snapshot)
    conflicts = [{"node": name, "conflict": text} for name, text in sorted(nodes.conflicts.items())]
    unmatched = list(map(asdict, snapshot.unmatched[:MAX_LISTED]))
    return {
        "leading": snapshot.leading,
        "dry_run": snapshot.dry_run,
        "rules_error": snapshot.rules_error,
        "tick": {"number": snapshot.tick, "at": format_time(snapshot.taken_at)},
        "nodes": {
            "total": len(nodes),
            "eligible": len(nodes) - len(nodes.ineligible),
            "marked": len(nodes.marked),
            "pressured": len(nodes.hot),
        },
        "pods": {"watched": snapshot.pods is not NO_PODS, "error": snapshot.pods.error},
        "rules": [
            {
                "rule": health.rule.name,
                "health": "ok" if health.ok else "err",
                "last_error": health.error,
                "blind": blind.get(health.rule.name),
            }
            for health in snapshot.rules
        ],
        "conflicts": first_of(conflicts),
        "disputes": first_of(
            [{"node": name, "dispute": text} for name, text in sorted(snapshot.disputes.items())]
        ),
        "unmatched_samples": first_of(unmatched, sum(rule.unmatched for rule in snapshot.rules)),
        "capped_pools": sorted(snapshot.capped),
        "patch_failures": first_of([str(failure) for failure in snapshot.failures]),
        "delayed_writes": snapshot.delayed,
    }


def first_of(items: Sequence[Any], count: int | None = None) -> dict[str, Any]:
    return {"count": len(items) if count is None else count, "first": list(items[:MAX_LISTED])}


def _rule(health: RuleHealth, rule_set: RuleSet, blind: Mapping[str, str | None]) -> dict[str, Any]:
    rule, several = health.rule, health.several
    return {
        **rule.model_dump(by_alias=True),
        "full_at": full_at(rule) if rule.rises else None,
        "stale_after": format_duration(rule_set.stale_after_of(rule)),
        "on_stale": "hold" if rule_set.holds_stale(rule) else "release",
        "health": "ok" if health.ok else "err",
        "last_error": health.error,
        "warnings": health.warnings,
        "blind": blind.get(rule.name),
        "past_error": health.past_error,
        "last_success": None if health.last_success is None else format_time(health.last_success),
        "query_duration_seconds": health.duration,
        "samples": health.samples,
        "unmatched_samples": health.unmatched,
        "several_series": several
        and {"nodes": several.nodes, "example": several.example, "differ_in": list(several.labels)},
        "states": {state.value: health.states.get(state, 0) for state in AlertState},
    }
