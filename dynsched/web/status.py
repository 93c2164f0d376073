"""Tick -> the JSON of `/status` and `/rules`. Pure. Times are RFC 3339 in UTC. Measured durations
are in seconds, configured ones are written as in rules.yaml.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from dynsched import __version__
from dynsched.core.alerts import AlertState
from dynsched.core.health import unmatched_rules
from dynsched.core.load.expected import NO_PODS
from dynsched.core.percent import full_at
from dynsched.core.samples import Matched, Quality
from dynsched.core.tick import RuleHealth, Tick
from dynsched.util.formatting import format_time, format_value

MAX_LISTED: Final = 20
"""Maximum entries in the lists of conflicts, samples and failures in `/status`; it counts all."""


def status_answer(
    tick: Tick | None,
    *,
    error: str | None,
    source: str,
    leader: str | None,
    rules_error: str | None,
) -> dict[str, Any]:
    """``rules_error``: why there is no tick. A tick has its own ``rules_error``."""
    return {
        "ok": error is None,
        "error": error,
        "version": __version__,
        "source": source,
        "leader": leader,
        "rules_error": rules_error,
        **({} if tick is None else _of_a_tick(tick)),
    }


def rules_answer(tick: Tick) -> dict[str, Any]:
    """The sections of the rules file, and the health of each rule."""
    blind = unmatched_rules(tick)
    sections = {"mark_rules", "nodes", "guard", "extender", "order"}
    return {
        **tick.rule_set.model_dump(by_alias=True, include=sections),
        "rules": [_rule(health, blind.get(health.rule.name)) for health in tick.rules],
    }


def _of_a_tick(tick: Tick) -> dict[str, Any]:
    evaluation, blind = tick.evaluation, unmatched_rules(tick)
    table = evaluation.table
    eligible = [entry for entry in table.entries.values() if entry.mark.ineligible is None]
    conflicts = [{"node": name, "conflict": text} for name, text in sorted(table.conflicts.items())]
    disputes = [{"node": name, "dispute": text} for name, text in sorted(tick.disputes.items())]
    unmatched = [each for found in evaluation.matched.values() for each in found.unmatched]
    return {
        "leading": tick.leadership.leading,
        "dry_run": tick.leadership.dry_run,
        "rules_error": tick.rules_status.error,
        "tick": {"number": tick.number, "at": format_time(tick.taken_at)},
        "nodes": {
            "total": len(table.entries),
            "eligible": len(eligible),
            "marked": len(table.marked),
            "pressured": len(evaluation.hot),
        },
        "pods": {"watched": tick.pods is not NO_PODS, "error": tick.pods.error},
        "rules": [
            {
                "rule": health.rule.name,
                "health": "ok" if health.ok else "err",
                "last_error": health.error,
                "blind": blind.get(health.rule.name),
            }
            for health in tick.rules
        ],
        "conflicts": _first_of(conflicts),
        "disputes": _first_of(disputes),
        "unmatched_samples": _first_of(unmatched),
        "invalid_samples": _first_of(list(_invalid(evaluation.matched))),
        "capped_pools": sorted(evaluation.decision.capped),
        "patch_failures": _first_of([str(failure) for failure in tick.writes.failures]),
        "delayed_writes": tick.delayed,
    }


def _invalid(matched: Mapping[str, Matched]) -> Iterator[dict[str, str]]:
    """The samples whose values are no load. Values are text, because JSON has no NaN."""
    for rule, found in matched.items():
        for node, reading in sorted(found.readings.items()):
            if reading.quality is Quality.INVALID:
                yield {"rule": rule, "node": node, "value": format_value(reading.value)}


def _first_of(items: Sequence[Any]) -> dict[str, Any]:
    """The first items, and the number of all items."""
    return {"count": len(items), "first": list(items[:MAX_LISTED])}


def _rule(health: RuleHealth, blind: str | None) -> dict[str, Any]:
    rule, several = health.rule, health.several
    return {
        **rule.model_dump(by_alias=True),
        "full_at": full_at(rule) if rule.higher_is_worse else None,
        "health": "ok" if health.ok else "err",
        "last_error": health.error,
        "warnings": health.warnings,
        "blind": blind,
        "past_error": health.past_error,
        "last_success": None if health.last_success is None else format_time(health.last_success),
        "query_duration_seconds": health.duration,
        "samples": health.samples,
        "unmatched_samples": health.unmatched,
        "several_series": several
        and {"nodes": several.nodes, "example": several.example, "differ_in": list(several.labels)},
        "states": {state.value: health.states.get(state, 0) for state in AlertState},
    }
