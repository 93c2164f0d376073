"""Tick -> the JSON of `/nodes` and `/nodes/NAME`: alerts, why a mark is missing, and what would
clear an alert. Pure. Times are RFC 3339 in UTC, ages are in seconds at the time of the tick.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec

from dynsched.core.alerts import Alert
from dynsched.core.load.expected import ExpectedLoad
from dynsched.core.load.pods import Added
from dynsched.core.marks import NodePatch, carried_parts
from dynsched.core.percent import load_percent
from dynsched.core.samples import Quality
from dynsched.core.tick import Tick
from dynsched.core.wording import Reason, changes
from dynsched.rules.rule_set import CLEAR_OP, Rule, RuleSet
from dynsched.util.durations import format_duration
from dynsched.util.formatting import format_threshold, format_time, format_value

# Most alerts of a tick began at a few distinct times. Formatting them all is a third of the cost.
_time = lru_cache(maxsize=4096)(format_time)

_NOTHING: Final = Added(0.0, 0.0)


def nodes_answer(tick: Tick, order_error: str | None = None) -> dict[str, Any]:
    """The body of `/nodes`. ``counts`` is what ``num`` counts: nodes with this part of the mark (as
    in ``carries``), or with ``mark: none`` hot nodes.
    """
    mark, evaluation = tick.rule_set.mark, tick.evaluation
    table = evaluation.table
    if mark.is_none:
        part, counted = "hot", sorted(evaluation.hot)
    else:
        part = f"label {mark.label}" if mark.label else f"taint {mark.taint}"
        counted = [
            name
            for name in sorted(table.marked)
            if part in carried_parts(table.entries[name].mark, mark)
        ]
    # Encoded one by one, which takes a tenth of the memory of objects.
    encode = msgspec.json.Encoder(enc_hook=str).encode
    return {
        # The first three keys and their order are those of dynamicScheduler.
        "type": f"{part[0].upper()}{part[1:]} Nodes",
        "num": len(counted),
        "node_names": counted,
        "nodes": [msgspec.Raw(encode(_answer(tick, name))) for name in sorted(table.entries)],
        "taken_at": _time(tick.taken_at),
        "dry_run": tick.leadership.dry_run,
        "rules_error": tick.rules_status.error,
        "order_error": order_error,
        "failed_rules": _failed_rules(tick),
        "counts": part,
        "mark": str(mark),
    }


def node_detail(tick: Tick, name: str) -> dict[str, Any] | None:
    """The body of `/nodes/NAME`; None if there is no such node. ``clears``: what would clear each
    alert that fires.
    """
    if name not in tick.evaluation.table.entries:
        return None
    alerts = tick.evaluation.pressures[name].alerts
    return {
        **_answer(tick, name),
        "clears": what_clears(tick.rule_set, alerts, tick.taken_at),
        "failed_rules": _failed_rules(tick),
        "taken_at": _time(tick.taken_at),
        "mark": str(tick.rule_set.mark),
    }


def _failed_rules(tick: Tick) -> dict[str, str]:
    """Why queries failed, by rule."""
    return {each.rule.name: each.error for each in tick.rules if each.error is not None}


def _answer(tick: Tick, name: str) -> dict[str, Any]:
    """One node in `/nodes`. ``carries``: the parts of our marks on it, even if not in the rules."""
    evaluation, rules = tick.evaluation, tick.rule_set.by_name
    mark, pressure = evaluation.table.entries[name].mark, evaluation.pressures[name]
    limited, due = evaluation.decision.limited.get(name), evaluation.patch_for(name)
    return {
        "name": name,
        "marked": mark.marked,
        "pressured": pressure.hot,
        "since": _time_or_none(pressure.since),
        "rules": [
            _rule_on_node(
                rules[alert.rule], alert, tick.taken_at, evaluation.expected.get(alert.rule)
            )
            for alert in pressure.alerts
        ],
        "conflict": mark.conflict,
        "withheld": limited,
        "ineligible": mark.ineligible,
        "carries": carried_parts(mark, tick.rule_set.mark),
        "due": None if due is None else _due(tick, due, limited),
    }


def _due(tick: Tick, patch: NodePatch, limited: str | None) -> dict[str, Any]:
    """A patch that is due. ``waits``: why it is not written yet."""
    return {
        "action": patch.action,
        "changes": list(changes(patch.body)),
        "reason": patch.reason,
        "waits": limited or _why_unwritten(tick, patch.node),
    }


def _rule_on_node(
    rule: Rule, alert: Alert, now: float, expected: ExpectedLoad | None
) -> dict[str, Any]:
    """``sample_age_seconds``: age of the last good sample at the time of the tick.
    ``expected_value``: compared with the threshold instead of ``value``, which is measured.
    """
    sampled_at = alert.sampled_at
    return {
        "rule": alert.rule,
        "state": alert.state,
        "value": alert.value,
        "threshold": rule.threshold,
        "clear_threshold": rule.clear_threshold,
        "sample_age_seconds": None if sampled_at is None else round(max(0.0, now - sampled_at), 3),
        "since": _time(alert.since),
        "quality": alert.quality,
        "op": rule.op,
        "active_since": _time_or_none(alert.active_since),
        "keep_firing_since": _time_or_none(alert.keep_firing_since),
        "adopted": alert.adopted,
        "by": rule.by,
        "expected_value": alert.compared if rule.by == "expected" else None,
        "expected": None if expected is None else _expected(rule, alert, expected),
        "shadow": rule.shadow,
    }


def _expected(rule: Rule, alert: Alert, expected: ExpectedLoad) -> dict[str, float] | None:
    """In percent: ``load`` is ``measured`` minus ``ended`` (at least 0) plus ``bound``."""
    if alert.good_value is None:
        return None
    measured = load_percent(rule, alert.good_value)
    added = expected.added.get(alert.node, _NOTHING)
    return {
        "load": round(added.to(measured), 3),
        "measured": round(measured, 3),
        "bound": round(added.bound, 3),
        "ended": round(added.ended, 3),
    }


def _time_or_none(seconds: float | None) -> str | None:
    return None if seconds is None else _time(seconds)


class Kind(StrEnum):
    """Values of the label ``reason`` in `/metrics`, which must not change."""

    CONFLICT = "conflict"  # someone else set the mark's label or taint
    INELIGIBLE = "ineligible"  # the node is never marked
    WITHHELD = "withheld"  # by the guard or `mark: none`
    FOLLOWING = "following"  # this replica does not write
    FAILED = "failed"  # the API server rejected the patch
    NEXT_TICK = "next_tick"


class Note(NamedTuple):
    """Why a node's mark is not as it should be. ``reason`` is empty if ``kind`` says it all."""

    kind: Kind
    reason: str


def note_of(tick: Tick, name: str) -> Note | None:
    """The first note that applies, in the order of `Kind`; None if none does."""
    evaluation = tick.evaluation
    mark = evaluation.table.entries[name].mark
    for kind, reason in (
        (Kind.CONFLICT, mark.conflict),
        (Kind.INELIGIBLE, mark.ineligible),
        (Kind.WITHHELD, evaluation.decision.limited.get(name)),
    ):
        if reason is not None:
            return Note(kind, reason)
    if evaluation.patch_for(name) is None:
        return None
    if not tick.leadership.leading:
        return Note(Kind.FOLLOWING, "")
    cause = _why_failed(tick, name)
    return Note(Kind.NEXT_TICK, "") if cause is None else Note(Kind.FAILED, cause)


def _why_unwritten(tick: Tick, node: str) -> str:
    """Why a patch that is due is not written yet."""
    if not tick.leadership.leading:
        leader = tick.leadership.leader
        return f"{leader} leads, and has not written it yet" if leader else "no replica leads"
    cause = _why_failed(tick, node)
    if cause is not None:
        return f"the write failed: {cause}"
    return "not tried: other writes failed" if tick.writes.failures else "the next tick writes it"


def _why_failed(tick: Tick, node: str) -> str | None:
    return next((each.cause for each in tick.writes.failures if each.node == node), None)


def what_clears(rule_set: RuleSet, alerts: Sequence[Alert], now: float) -> list[Reason]:
    """What would clear each alert that fires, without those of shadow rules:

    ``node-cpu must be <= 60 (is 72.4), then stay there for 1m``
    """
    firing = [alert for alert in alerts if alert.firing]
    return [_clears(rule_set, a, now) for a in firing if not rule_set.by_name[a.rule].shadow]


def _clears(rule_set: RuleSet, alert: Alert, now: float) -> Reason:
    rule = rule_set.by_name[alert.rule]
    target = f"{CLEAR_OP[rule.op]} {format_threshold(rule.clear_threshold)}"
    if alert.quality is not Quality.OK:
        unknown = (rule.name, target, Reason(alert.quality))
        if rule.on_stale == "hold":
            return Reason("good_sample_alone", *unknown)
        rest = rule.stale_after - (now - alert.known_at)
        return Reason("good_sample", *unknown, _rest(rest))
    known = (rule.name, target, format_value(alert.compared))
    if alert.keep_firing_since is not None:
        rest = rule.keep_firing_for - (now - alert.keep_firing_since)
        return Reason("stays", *known, _rest(rest))
    if rule.keep_firing_for:
        return Reason("clears_for", *known, format_duration(rule.keep_firing_for))
    return Reason("clears", *known)


def _rest(seconds: float) -> str:
    # At least one second: "0s more" would be wrong, because the next tick decides.
    return format_duration(max(1, round(seconds)))
