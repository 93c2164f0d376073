"""Snapshot -> the JSON of `/nodes` and `/nodes/NAME`. Pure. Times are RFC 3339 in UTC, ages seconds
as of the tick. msgspec writes NaN and infinity as null.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

import msgspec

from dynsched.api.why import what_clears, why_unwritten
from dynsched.engine.loads import rule_load
from dynsched.engine.model import Alert, NodePatch, Quality
from dynsched.engine.nodes.mark_state import carried
from dynsched.engine.pod_values import Added
from dynsched.engine.snapshot import NodeView, Snapshot
from dynsched.engine.wording import changes
from dynsched.rules.rule_set import Rule
from dynsched.util.formatting import format_time

# Most alerts of a tick began at a few distinct times; formatting each anew is a third of the cost.
_time = lru_cache(maxsize=4096)(format_time)

MAX_ON_A_PAGE: Final = 500
"""Each page is made for one caller; the list of all nodes is made once for all."""

_NOTHING: Final = Added(0.0, 0.0)


def encode_each(snapshot: Snapshot, views: Iterable[NodeView]) -> list[msgspec.Raw]:
    encode = msgspec.json.Encoder(enc_hook=str).encode
    return [msgspec.Raw(encode(_answer(view, snapshot))) for view in views]


def around_nodes(snapshot: Snapshot, more: str | None = None) -> tuple[bytes, bytes]:
    """The body of `/nodes` before the nodes and after them. ``more``: the last of them, where
    others follow. ``counts``: what ``num`` counts: a part of the mark, as in ``carries``, or with
    ``mark: none`` hot nodes.
    """
    mark = snapshot.rule_set.mark
    part = f"label {mark.label}" if mark.label else f"taint {mark.taint}"
    named = sorted(snapshot.nodes.hot if mark.is_none else snapshot.nodes.carrying(part))
    part = "hot" if mark.is_none else part
    # The first three keys, their names and their order are dynamicScheduler's.
    before = {"type": f"{part[0].upper()}{part[1:]} Nodes", "num": len(named), "node_names": named}
    behind = {
        "taken_at": _time(snapshot.taken_at),
        "dry_run": snapshot.dry_run,
        "rules_error": snapshot.rules_error,
        "order_error": snapshot.order_error,
        "counts": part,
        "mark": str(mark),
        **({} if more is None else {"continue": more}),
    }
    encode = msgspec.json.encode
    return encode(before)[:-1] + b',"nodes":[', b"]," + encode(behind)[1:]


def node_detail(snapshot: Snapshot, name: str) -> dict[str, Any] | None:
    """``clears``: for each rule that fires, what would end that."""
    view = snapshot.nodes.get(name)
    if view is None:
        return None
    return {
        **_answer(view, snapshot),
        "clears": what_clears(snapshot.rule_set, view.verdict.alerts, snapshot.taken_at),
        "taken_at": _time(snapshot.taken_at),
    }


def _answer(view: NodeView, snapshot: Snapshot) -> dict[str, Any]:
    """``carries``: what of ours is on it, whatever the mark should be."""
    state, verdict, due = view.state, view.verdict, view.due
    now, rules, uses = snapshot.taken_at, snapshot.rule_set.by_name, snapshot.nodes.expected
    return {
        "name": verdict.node,
        "marked": state.marked,
        "pressured": verdict.hot,
        "since": _time_or_none(verdict.since),
        "rules": [
            _rule_on_node(
                rules[alert.rule],
                alert,
                now,
                view.added.get(alert.rule, _NOTHING) if alert.rule in uses else None,
            )
            for alert in verdict.alerts
        ],
        "conflict": state.conflict,
        "withheld": view.withheld,
        "ineligible": state.ineligible,
        "carries": carried(state, snapshot.rule_set.mark),
        "due": None if due is None else _due(due, view.withheld, snapshot),
    }


def _due(patch: NodePatch, withheld: str | None, snapshot: Snapshot) -> dict[str, Any]:
    """``waits``: why it is not written."""
    return {
        "action": patch.action,
        "changes": list(changes(patch.body)),
        "reason": patch.reason,
        "waits": withheld or why_unwritten(snapshot, patch.node),
    }


def _rule_on_node(rule: Rule, alert: Alert, now: float, added: Added | None) -> dict[str, Any]:
    """``sample_age_seconds``: the last good sample's, when the tick ran. ``expected_value``: what
    is compared with the threshold in place of ``value``, which is the measured one.
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
        "expected": None if added is None else _expected(rule, alert, added),
        "shadow": rule.shadow,
    }


def _expected(rule: Rule, alert: Alert, added: Added) -> dict[str, float] | None:
    """In points: ``load`` is ``measured`` and ``bound``, less ``ended``, and at least 0."""
    if alert.value is None or alert.quality is not Quality.OK:
        return None
    measured = rule_load(rule, alert.value)
    if measured is None:
        return None
    return {
        "load": round(added.to(measured), 3),
        "measured": round(measured, 3),
        "bound": round(added.bound, 3),
        "ended": round(added.ended, 3),
    }


def _time_or_none(seconds: float | None) -> str | None:
    return None if seconds is None else _time(seconds)
