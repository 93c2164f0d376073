"""Why a hot node has no mark or a cool one has, and what would clear a firing alert. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from dynsched.core.alerts import Alert
from dynsched.core.samples import Quality
from dynsched.core.tick import Tick
from dynsched.core.wording import Reason
from dynsched.rules.rule_set import CLEAR_OP, RuleSet
from dynsched.util.durations import format_duration
from dynsched.util.formatting import format_threshold, format_value


class Kind(StrEnum):
    """Values of a label in `/metrics`: they do not change."""

    CONFLICT = "conflict"  # somebody else set the mark's label or taint
    INELIGIBLE = "ineligible"  # it must not be marked at all
    WITHHELD = "withheld"  # the guard
    FOLLOWING = "following"  # another replica writes
    FAILED = "failed"  # the API server did not take the patch
    NEXT_TICK = "next_tick"


class Note(NamedTuple):
    """Why a node does not carry what it should. ``reason`` is empty where ``kind`` says it all."""

    kind: Kind
    reason: str


def note_of(tick: Tick, name: str) -> Note | None:
    """The first that applies, in the order of `Kind`; None where nothing is due."""
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


def why_unwritten(tick: Tick, node: str) -> str:
    """Why a patch that is due is not written, in words."""
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
    """For each alert that fires, except by shadow rules:

    ``node-cpu must be <= 60 (is 72.4), then stay there for 1m``
    """
    firing = [alert for alert in alerts if alert.firing]
    return [_clears(rule_set, a, now) for a in firing if not rule_set.by_name[a.rule].shadow]


def _clears(rule_set: RuleSet, alert: Alert, now: float) -> Reason:
    rule = rule_set.by_name[alert.rule]
    where = f"{CLEAR_OP[rule.op]} {format_threshold(rule.clear_threshold)}"
    if alert.quality is not Quality.OK:
        unknown = (rule.name, where, Reason(alert.quality))
        if rule.on_stale == "hold":
            return Reason("good_sample_alone", *unknown)
        rest = rule.stale_after - (now - alert.known_at)
        return Reason("good_sample", *unknown, _rest(rest))
    known = (rule.name, where, format_value(alert.compared))
    if alert.keep_firing_since is not None:
        rest = rule.keep_firing_for - (now - alert.keep_firing_since)
        return Reason("stays", *known, _rest(rest))
    if rule.keep_firing_for:
        return Reason("clears_for", *known, format_duration(rule.keep_firing_for))
    return Reason("clears", *known)


def _rest(seconds: float) -> str:
    # To the second, and never "0s more": the next tick decides.
    return format_duration(max(1, round(seconds)))
