"""Tick -> the JSON that the page draws. Pure. Nodes are encoded as columns: with 5,000 nodes, this
is a third of the bytes of one object per node. Times are Unix seconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from dynsched import __version__
from dynsched.core.alerts import Alert, AlertState
from dynsched.core.evaluate import Evaluation
from dynsched.core.health import is_blind
from dynsched.core.marks import MarkState
from dynsched.core.samples import Quality
from dynsched.core.tick import Tick
from dynsched.core.wording import coded
from dynsched.features.order.ranks import Order
from dynsched.features.order.status import place_of
from dynsched.rules.rule_set import Rule
from dynsched.web.node_series import counting_alerts
from dynsched.web.nodes import node_detail, note_of
from dynsched.web.status import rules_answer

MARKED, INELIGIBLE, CONFLICT = 1, 2, 4
"""The bits in the column ``flags``."""

About = Mapping[str, Any]
"""The data that is not in a Tick: see `TickStore`."""


def encoded_page(tick: Tick, about: About) -> bytes:
    """Everything that the page shows of a tick."""
    evaluation, rule_set = tick.evaluation, tick.rule_set
    names = sorted(evaluation.table.entries)
    entries = [evaluation.table.entries[name] for name in names]
    pools = [each.group.pool for each in entries]
    since = {n: evaluation.pressures[name].since for n, name in enumerate(names)}
    notes = {n: note_of(tick, name) for n, name in enumerate(names)}
    return msgspec.json.encode(
        {
            "version": __version__,
            **about,
            "taken_at": tick.taken_at,
            "leading": tick.leadership.leading,
            "leader": about["leader"] or tick.leadership.leader,
            "dry_run": tick.leadership.dry_run,
            "rules_error": tick.rules_status.error,
            "capped": sorted(evaluation.decision.capped),
            "failures": len(tick.writes.failures),
            "disputes": len(tick.disputes),
            "unseen_since": _unseen_since(tick),
            "mark": "" if rule_set.mark.is_none else str(rule_set.mark),
            "max_marked": str(rule_set.guard.max_marked),
            "rules": rules_answer(tick)["rules"],
            "has_order": rule_set.order is not None,
            "nodes": {
                "name": names,
                "pool": pools,
                "flags": [_flags(each.mark) for each in entries],
                "state": "".join(_node_state(evaluation, name) for name in names),
                "since": {n: int(at) for n, at in since.items() if at is not None},
                "notes": {n: note for n, note in notes.items() if note is not None},
            },
            "pools": sorted(set(pools)),
            "columns": [_column(tick, rule, names) for rule in rule_set.rules],
        },
        enc_hook=coded,
    )


def node_on_page(tick: Tick, name: str, order: Order | None) -> dict[str, Any] | None:
    """`node_detail`, plus the machine's properties and the node's place in the order."""
    detail = node_detail(tick, name)
    if detail is None:
        return None
    node = tick.evaluation.table.nodes[name]
    return {
        **detail,
        "zone": node.labels.get("topology.kubernetes.io/zone"),
        "type": node.labels.get("node.kubernetes.io/instance-type"),
        "cpu": node.allocatable.get("cpu"),
        "memory": node.allocatable.get("memory"),
        "order": order and place_of(tick, order, name),
    }


def _unseen_since(tick: Tick) -> float | None:
    """When a rule that may mark nodes last had a value; None if one has a value now."""
    evaluation, marking = tick.evaluation, {rule.name for rule in tick.rule_set.marking_rules}
    known_at = [
        alert.known_at
        for name in evaluation.table.entries
        for alert in evaluation.pressures[name].alerts
        if alert.rule in marking
    ]
    return round(max(known_at)) if is_blind(tick) and known_at else None


def _flags(mark: MarkState) -> int:
    bits = ((MARKED, mark.marked), (INELIGIBLE, mark.ineligible), (CONFLICT, mark.conflict))
    return sum(bit for bit, is_so in bits if is_so)


def _node_state(evaluation: Evaluation, name: str) -> str:
    """A letter: (h)ot, cooling (k), (p)ending, (u)nknown or (c)ool."""
    alerts = counting_alerts(evaluation, name)
    if evaluation.pressures[name].hot:
        fires = any(alert.firing and alert.keep_firing_since is None for alert in alerts)
        return "h" if fires else "k"
    if any(alert.state is AlertState.PENDING for alert in alerts):
        return "p"
    return "u" if alerts and all(a.quality is not Quality.OK for a in alerts) else "c"


def _column(tick: Tick, rule: Rule, names: Sequence[str]) -> dict[str, Any]:
    """One rule on all nodes. By node index: ``since`` is when a state other than inactive began,
    ``known`` is when there last was a value, if it is not current.
    """
    alerts = [tick.evaluation.alerts[name].get(rule.name) for name in names]
    values = [None if alert is None else alert.compared for alert in alerts]
    known = [(n, alert) for n, alert in enumerate(alerts) if alert is not None]
    active = {n: int(a.since) for n, a in known if a.state is not AlertState.INACTIVE}
    unknown = {n: int(a.known_at) for n, a in known if a.quality is not Quality.OK}
    return {
        "value": [value and float(f"{value:.4g}") for value in values],
        "state": "".join(map(_state, alerts)),
        "quality": "".join("-" if alert is None else alert.quality[0] for alert in alerts),
        "since": active,
        "known": unknown,
    }


def _state(alert: Alert | None) -> str:
    """A letter: (i)nactive, (p)ending, (f)iring, (h)eld by ``keep_firing_for``; ``-`` if the rule's
    selector does not select the node.
    """
    if alert is None:
        return "-"
    return "h" if alert.keep_firing_since is not None else alert.state[0]
