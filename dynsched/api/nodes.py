"""Snapshot -> the JSON of `/nodes` and `/nodes/NAME`. Pure. Times are RFC 3339 in UTC, ages seconds
as of the tick. msgspec writes NaN and infinity as null.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from functools import lru_cache
from typing import Final

import msgspec

from dynsched.api.why import what_clears, why_unwritten
from dynsched.engine.loads import rule_load
from dynsched.engine.model import Action, Alert, AlertState, NodePatch, NodeView, Quality
from dynsched.engine.pod_values import Added
from dynsched.engine.snapshot import Snapshot
from dynsched.engine.wording import changes
from dynsched.rules.rule_set import Rule
from dynsched.util.formatting import format_time

# Most alerts of a tick began at a few distinct times; formatting each anew is a third of the cost.
_time = lru_cache(maxsize=4096)(format_time)

MAX_ON_A_PAGE: Final = 500
"""Each page is made for one caller: without a limit, 48 connections would fill the memory."""

_NOTHING: Final = Added(0.0, 0.0)


class Expected(msgspec.Struct, frozen=True, gc=False):
    """In points: ``load`` is ``measured`` and ``bound``, less ``ended``, and at least 0."""

    load: float
    measured: float
    bound: float
    ended: float


class RuleOnNode(msgspec.Struct, frozen=True, gc=False):
    """``sample_age_seconds``: the last good sample's, when the tick ran."""

    rule: str
    state: AlertState
    value: float | None
    threshold: float
    clear_threshold: float
    sample_age_seconds: float | None
    since: str
    quality: Quality
    op: str
    active_since: str | None
    keep_firing_since: str | None
    adopted: bool
    early_of: str | None
    expected: Expected | None
    shadow: bool


class Due(msgspec.Struct, frozen=True, gc=False):
    """``waits``: why it is not written."""

    action: Action
    changes: list[str]
    reason: str
    waits: str


class NodeAnswer(msgspec.Struct, frozen=True, gc=False):
    """``carries``: what of ours is on it, whatever the mark should be."""

    name: str
    marked: bool
    pressured: bool
    eligible: bool
    since: str | None
    rules: list[RuleOnNode]
    conflict: str | None
    withheld: str | None
    ineligible: str | None
    carries: tuple[str, ...]
    due: Due | None
    early: bool


class NodeDetail(NodeAnswer, frozen=True, gc=False):
    clears: list[str]
    mark: str
    taken_at: str
    dry_run: bool


def encode_each(snapshot: Snapshot, views: Iterable[NodeView]) -> list[msgspec.Raw]:
    expecting, encode = _expecting(snapshot), msgspec.json.Encoder().encode
    return [msgspec.Raw(encode(_answer(view, expecting, snapshot))) for view in views]


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


def node_detail(snapshot: Snapshot, name: str) -> NodeDetail | None:
    view = snapshot.nodes.get(name)
    if view is None:
        return None
    rule_set = snapshot.rule_set
    sentences = (what_clears(rule_set, alert, snapshot.taken_at) for alert in view.alerts)
    return NodeDetail(
        **msgspec.structs.asdict(_answer(view, _expecting(snapshot), snapshot)),
        clears=[sentence for sentence in sentences if sentence],
        mark=str(rule_set.mark),
        taken_at=_time(snapshot.taken_at),
        dry_run=snapshot.dry_run,
    )


def _expecting(snapshot: Snapshot) -> frozenset[str]:
    """The rules with an expected load: where pods are watched, or ``early`` compares loads."""
    rules = snapshot.rule_set.rules
    return frozenset(rule.name for rule in rules if rule.name in snapshot.uses or rule.early)


def _answer(view: NodeView, expecting: Container[str], snapshot: Snapshot) -> NodeAnswer:
    # By position, as RuleOnNode: at 5,000 nodes and three rules this runs 15,000 times.
    now, rules = snapshot.taken_at, snapshot.rule_set.by_name
    return NodeAnswer(
        view.name,
        view.marked,
        view.hot,
        view.eligible,
        _time_or_none(view.since),
        [
            _rule_on_node(
                rules[alert.rule],
                alert,
                now,
                view.added.get(alert.rule, _NOTHING) if alert.rule in expecting else None,
            )
            for alert in view.alerts
        ],
        view.conflict,
        view.withheld,
        view.ineligible,
        view.carries,
        None if view.due is None else _due(view.due, view.withheld, snapshot),
        view.early,
    )


def _due(patch: NodePatch, withheld: str | None, snapshot: Snapshot) -> Due:
    waits = withheld or why_unwritten(snapshot, patch.node)
    return Due(patch.action, list(changes(patch.body)), patch.reason, waits)


def _rule_on_node(rule: Rule, alert: Alert, now: float, added: Added | None) -> RuleOnNode:
    return RuleOnNode(
        alert.rule,
        alert.state,
        alert.value,
        rule.threshold,
        rule.clear_threshold,
        None if alert.sampled_at is None else round(max(0.0, now - alert.sampled_at), 3),
        _time(alert.since),
        alert.quality,
        rule.op,
        _time_or_none(alert.active_since),
        _time_or_none(alert.keep_firing_since),
        alert.adopted,
        rule.early_of,
        None if added is None else _expected(rule, alert, added),
        rule.shadow,
    )


def _expected(rule: Rule, alert: Alert, added: Added) -> Expected | None:
    if alert.value is None or alert.quality is not Quality.OK:
        return None
    measured = rule_load(rule, alert.value)
    if measured is None:
        return None
    load = round(measured, 3)
    bound, ended = round(added.bound, 3), round(added.ended, 3)
    return Expected(round(added.to(measured), 3), load, bound, ended)


def _time_or_none(seconds: float | None) -> str | None:
    return None if seconds is None else _time(seconds)
