"""Whether the last tick can be trusted, and the rules; what `/status` and the log say."""

from __future__ import annotations

from typing import Final

from dynsched.core.durations import format_duration
from dynsched.core.model import Snapshot, Unmatched
from dynsched.core.rules import BIND_BURST
from dynsched.core.wording import by_reason, named_rules, some

OVERDUE_INTERVALS: Final = 3
"""After so many intervals without a finished tick, the loop counts as stuck."""
OVERDUE_AT_LEAST: Final = 30.0
"""Seconds; below this no loop is stuck, however short its interval: a query may take its time."""


def why_unhealthy(snapshot: Snapshot | None, age: float, interval: float) -> str | None:
    """One line with the reason why `/status` is not ok; None when it is.

    ``age`` is of the Snapshot, in seconds, by a clock that is never set.
    """
    if snapshot is None:
        return "no tick has finished yet"
    if age > max(OVERDUE_AT_LEAST, OVERDUE_INTERVALS * interval):
        return f"the last tick finished {format_duration(round(age))} ago"
    return snapshot.error


def why_incomplete(snapshot: Snapshot) -> tuple[str, ...]:
    """What a single pass could not do, one line each; none when it did all. Unlike a tick, which
    the next one follows, a pass fails when one rule of several could not be queried.
    """
    # The rule that counts bound pods asks nobody: only a process that stays can count them.
    asked = [health for health in snapshot.rules if health.rule.name != BIND_BURST]
    failed = {health.rule.name: health.error for health in asked if health.error is not None}
    reasons = by_reason(failed)
    if len(failed) == len(asked) and len(reasons) == 1:
        reasons = {}  # the Snapshot's error says it
    lines = [
        f"{named_rules(names)} could not be queried: {reason}" for reason, names in reasons.items()
    ]
    if snapshot.error is not None and not (lines and len(failed) == len(asked)):
        lines.append(snapshot.error)
    left = [view.name for view in snapshot.nodes.values() if view.due is not None]
    if left and not (snapshot.dry_run or snapshot.failures):
        lines.append(f"due and not written: {some(left)}; run it again")
    return tuple(lines)


def blindness(snapshot: Snapshot) -> dict[str, str | None]:
    """Of each rule whose query answers: why it says nothing of any node (a misspelled metric, or an
    aggregation that lost the node's name), in one line; None where it does say something.
    """
    first = {found.rule: found for found in reversed(snapshot.unmatched)}
    return {
        health.rule.name: (
            _why_blind(first.get(health.rule.name)) if health.samples == health.unmatched else None
        )
        for health in snapshot.rules
        if health.error is None and snapshot.nodes
    }


def _why_blind(unmatched: Unmatched | None) -> str:
    if unmatched is None:
        return "its query has no result; does its metric exist?"
    if not unmatched.value:
        return f"{unmatched.reason}; aggregate by it, or set node_label"
    return f"{unmatched.value!r}: {unmatched.reason}"
