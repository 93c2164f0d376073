"""Why a hot node has no mark or a cool one has, and what would clear a firing alert. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from dynsched.engine.model import Alert, Quality
from dynsched.engine.snapshot import Snapshot
from dynsched.engine.wording import Reason
from dynsched.rules.rule_set import CLEAR_OP, RuleSet
from dynsched.util.durations import format_duration
from dynsched.util.formatting import format_threshold, format_value


class Kind(StrEnum):
    """Values of a label in `/metrics`: they do not change."""

    CONFLICT = "conflict"  # somebody else set the mark's label or taint
    INELIGIBLE = "ineligible"  # it must not be marked at all
    WITHHELD = "withheld"  # the guard
    DRY_RUN = "dry_run"
    FOLLOWING = "following"  # another replica writes
    FAILED = "failed"  # the API server did not take the patch
    NEXT_TICK = "next_tick"


class Note(NamedTuple):
    """Why a node does not carry what it should. ``reason`` is empty where ``kind`` says it all."""

    kind: Kind
    reason: str


def notes(snapshot: Snapshot, names: Sequence[str]) -> dict[str, Note]:
    """By node, the first that applies, as `Kind` has them."""
    nodes, due = snapshot.nodes, snapshot.nodes.due_of(names)
    if snapshot.dry_run or not snapshot.leading:
        kind = Kind.DRY_RUN if snapshot.dry_run else Kind.FOLLOWING
        found = dict.fromkeys(due, Note(kind, ""))
    else:
        found = dict.fromkeys(due, Note(Kind.NEXT_TICK, ""))
        failed = {failure.node: Note(Kind.FAILED, failure.cause) for failure in snapshot.failures}
        found |= {name: failed[name] for name in found.keys() & failed.keys()}
    for kind, reasons in (
        (Kind.WITHHELD, nodes.withheld),
        (Kind.INELIGIBLE, nodes.ineligible),
        (Kind.CONFLICT, nodes.conflicts),
    ):
        found |= {name: Note(kind, reasons[name]) for name in names if name in reasons}
    return found


def why_unwritten(snapshot: Snapshot, node: str) -> str:
    if snapshot.dry_run:
        return "nothing is written in a dry run"
    if not snapshot.leading:
        if snapshot.leader is None:
            return "no replica leads, so nothing is written"
        return f"{snapshot.leader} leads, and has not written it yet"
    for failure in snapshot.failures:
        if failure.node == node:
            return f"the write failed: {failure.cause}"
    if snapshot.failures:
        return f"it was not tried, because other writes failed, the first: {snapshot.failures[0]}"
    return "the next tick writes it"


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
        if rule_set.holds_stale(rule):
            return Reason("good_sample_alone", *unknown)
        rest = rule_set.stale_after_of(rule) - (now - alert.known_at)
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
