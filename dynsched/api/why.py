"""Why a hot node has no mark or a cool one has, and what would clear a firing alert. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from dynsched.engine.model import Alert, Quality
from dynsched.engine.snapshot import Snapshot
from dynsched.engine.wording import UNKNOWN
from dynsched.rules.rule_set import Rule, RuleSet
from dynsched.util.durations import format_duration
from dynsched.util.formatting import format_threshold, format_value


class Reason(StrEnum):
    """Values of a label in `/metrics`: they do not change."""

    CONFLICT = "conflict"  # somebody else set the mark's label or taint
    INELIGIBLE = "ineligible"  # it must not be marked at all
    WITHHELD = "withheld"  # the guard
    DRY_RUN = "dry_run"
    FOLLOWING = "following"  # another replica writes
    FAILED = "failed"  # the API server did not take the patch
    NEXT_TICK = "next_tick"


class Why(NamedTuple):
    reason: Reason
    text: str


def reasons(snapshot: Snapshot, names: Sequence[str]) -> dict[str, Why]:
    """By node, the first that applies, as `Reason` has them."""
    nodes, due = snapshot.nodes, snapshot.nodes.due_of(names)
    if snapshot.dry_run or not snapshot.leading:
        kind = Reason.DRY_RUN if snapshot.dry_run else Reason.FOLLOWING
        found = dict.fromkeys(due, Why(kind, ""))
    else:
        found = dict.fromkeys(due, Why(Reason.NEXT_TICK, ""))
        failed = {failure.node: Why(Reason.FAILED, failure.cause) for failure in snapshot.failures}
        found |= {name: failed[name] for name in found.keys() & failed.keys()}
    for reason, texts in (
        (Reason.WITHHELD, nodes.withheld),
        (Reason.INELIGIBLE, nodes.ineligible),
        (Reason.CONFLICT, nodes.conflicts),
    ):
        found |= {name: Why(reason, texts[name]) for name in names if name in texts}
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


_CLEARED: Final[Mapping[str, tuple[str, str]]] = {
    ">": ("fall to {0} or below", "at {0} or below"),
    ">=": ("fall below {0}", "below {0}"),
    "<": ("rise to {0} or above", "at {0} or above"),
    "<=": ("rise above {0}", "above {0}"),
}
"""By the rule's op: how a value leaves the band in which an alert goes on firing, and where to."""


def what_clears(rule_set: RuleSet, alert: Alert, now: float) -> str | None:
    """One line for a firing alert; None for one that does not fire, and by shadow rules.

    ``node-cpu must fall to 60 or below (is 72.4), then stay there for 1m``
    """
    rule = rule_set.by_name[alert.rule]
    if not alert.firing or rule.shadow:
        return None
    if alert.quality is not Quality.OK:
        return _when_unknown(rule_set, rule, alert, now)
    limit, value = format_threshold(rule.clear_threshold), format_value(alert.compared)
    move, where = (text.format(limit) for text in _CLEARED[rule.op])
    if alert.keep_firing_since is not None:
        rest = rule.keep_firing_for - (now - alert.keep_firing_since)
        return f"{rule.name} must stay {where} (is {value}) for {_more(rest)}"
    stay = f", then stay there for {format_duration(rule.keep_firing_for)}"
    return f"{rule.name} must {move} (is {value}){stay if rule.keep_firing_for else ''}"


def _when_unknown(rule_set: RuleSet, rule: Rule, alert: Alert, now: float) -> str:
    where = _CLEARED[rule.op][1].format(format_threshold(rule.clear_threshold))
    good = f"{rule.name} needs a good sample {where}"
    why = f"no current value: {UNKNOWN[alert.quality]}"
    if rule_set.holds_stale(rule):
        return f"{good} ({why}; on_stale: hold)"
    rest = rule_set.stale_after_of(rule) - (now - alert.known_at)
    return f"{good} ({why}), or no good sample for {_more(rest)}"


def _more(seconds: float) -> str:
    # To the second, and never "0s more": the next tick decides.
    return f"{format_duration(max(1, round(seconds)))} more"
