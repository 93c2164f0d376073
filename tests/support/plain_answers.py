"""What the page and `/metrics` tell of nodes, from one view after the other: the plain form of
`api.page.data` and `api.node_series`, with which what is taken from the columns is compared.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

from dynsched.api.node_series import FAMILIES, NodeSeries
from dynsched.engine.loads import rule_load
from dynsched.engine.model import Alert, AlertState, Quality
from dynsched.engine.nodes.eligibility import NodeKind, kind_of, pool_of
from dynsched.engine.snapshot import COOL, HOT, UNDECIDED, NodeView, Snapshot
from dynsched.rules.rule_set import Rule, RuleSet

STATES: Final = {AlertState.INACTIVE: "i", AlertState.PENDING: "p", AlertState.FIRING: "f"}
QUALITIES: Final = dict(zip(Quality, "omsif", strict=True))


def series_text(snapshot: Snapshot, at_once: int = 500) -> bytes:
    """The series of nodes as they are: from the columns."""
    series, names = NodeSeries(snapshot), sorted(snapshot.nodes)
    for start in range(0, len(names), at_once):
        series.add(names[start : start + at_once])
    return series.encoded()


def plain_series(snapshot: Snapshot) -> bytes:
    """The same, from the views."""
    verdicts, measured, expected, above, unmarked = found = [[] for _ in FAMILIES]
    means = _means(snapshot)
    for view in _views(snapshot):
        node = f'node="{view.verdict.node}"'
        verdicts.append(f"{{{node}}} {_verdict(view, snapshot.rule_set):g}")
        if view.verdict.hot and not view.state.marked:
            why = _why(view, snapshot)
            unmarked.append(f'{{{node},reason="{why[0] if why else "next_tick"}"}} 1')
        for rule, load in _loads(view, snapshot):
            labels = f'{{{node},rule="{rule.name}"}}'
            measured.append(f"{labels} {load:.4g}")
            if rule.name in snapshot.uses:
                added = view.added.get(rule.name)
                expected.append(f"{labels} {load if added is None else added.to(load):.4g}")
            if rule.resource:
                mean = means[_kind(view, snapshot), rule.name]
                above.append(f"{labels} {_clipped(load) - mean:.4g}")
    return "".join(
        f"# HELP {name} {explained}\n# TYPE {name} gauge\n"
        + "".join(f"{name}{line}\n" for line in lines)
        for (name, explained), lines in zip(FAMILIES.items(), found, strict=True)
        if lines
    ).encode()


def _loads(view: NodeView, snapshot: Snapshot) -> Iterator[tuple[Rule, float]]:
    for alert in view.verdict.alerts:
        rule = snapshot.rule_set.by_name[alert.rule]
        if alert.quality is Quality.OK and alert.value is not None:
            load = rule_load(rule, alert.value)
            assert load is not None
            yield rule, load


def _means(snapshot: Snapshot) -> dict[tuple[NodeKind, str], float]:
    found: dict[tuple[NodeKind, str], list[float]] = {}
    for view in snapshot.nodes.values():
        for rule, load in _loads(view, snapshot):
            found.setdefault((_kind(view, snapshot), rule.name), []).append(_clipped(load))
    return {key: sum(loads) / len(loads) for key, loads in found.items()}


def _kind(view: NodeView, snapshot: Snapshot) -> NodeKind:
    return kind_of(snapshot.nodes.inventory.nodes[view.verdict.node], snapshot.rule_set.guard)


def _clipped(load: float) -> float:
    return min(max(load, 0.0), 100.0)


def plain_page(snapshot: Snapshot) -> dict[str, Any]:
    """What the page's data has of nodes, from the views: its last three keys."""
    views = _views(snapshot)
    of_views = [pool_of(view.state.node, snapshot.rule_set.guard) for view in views]
    pools = list(dict.fromkeys(of_views))
    whys = [(index, _why(view, snapshot)) for index, view in enumerate(views)]
    return {
        "pools": pools,
        "nodes": {
            "name": [view.verdict.node for view in views],
            "pool": [pools.index(pool) for pool in of_views],
            "flags": [_flags(view, snapshot) for view in views],
            "since": _sparse(
                {
                    i: int(v.verdict.since)
                    for i, v in enumerate(views)
                    if v.verdict.since is not None
                }
            ),
            "notes": [(index, *why) for index, why in whys if why is not None],
        },
        "columns": [_column(rule, views) for rule in snapshot.rule_set.rules],
    }


def _views(snapshot: Snapshot) -> list[NodeView]:
    return sorted(snapshot.nodes.values(), key=lambda view: view.verdict.node)


def _verdict(view: NodeView, rule_set: RuleSet) -> float:
    if view.state.ineligible is not None or view.state.conflict is not None:
        return UNDECIDED
    rules = rule_set.by_name
    alerts = [a for a in view.verdict.alerts if not rules[a.rule].shadow]
    good = [alert for alert in alerts if alert.quality is Quality.OK]
    if view.state.marked:
        not_cleared = (a.firing and a.keep_firing_since is None for a in good)
        return HOT if view.verdict.hot and any(not_cleared) else UNDECIDED
    is_known = good == alerts != [] and all(a.state is AlertState.INACTIVE for a in alerts)
    return COOL if is_known and not view.verdict.hot else UNDECIDED


def _flags(view: NodeView, snapshot: Snapshot) -> int:
    asked = {rule.name for rule in snapshot.rule_set.asked_rules}
    bits = (
        view.state.marked,
        view.verdict.hot,
        view.state.ineligible is not None,
        view.state.conflict is not None,
        any(
            alert.rule in asked and alert.quality is not Quality.OK for alert in view.verdict.alerts
        ),
    )
    return sum(1 << place for place, is_set in enumerate(bits) if is_set)


def _why(view: NodeView, snapshot: Snapshot) -> tuple[str, str] | None:
    state = view.state
    for kind, text in (
        ("conflict", state.conflict),
        ("ineligible", state.ineligible),
        ("withheld", view.withheld),
    ):
        if text is not None:
            return kind, text
    if view.due is None:
        return None
    if snapshot.dry_run:
        return "dry_run", ""
    if not snapshot.leading:
        return "following", ""
    causes = [failure.cause for failure in snapshot.failures if failure.node == view.verdict.node]
    return ("failed", causes[-1]) if causes else ("next_tick", "")


def _column(rule: Rule, views: list[NodeView]) -> dict[str, Any]:
    alerts = [next((a for a in view.verdict.alerts if a.rule == rule.name), None) for view in views]
    digits = _digits(rule.threshold)
    return {
        "value": [
            None if alert is None or alert.compared is None else round(alert.compared, digits)
            for alert in alerts
        ],
        "state": "".join(map(_state, alerts)),
        "quality": "".join("-" if alert is None else QUALITIES[alert.quality] for alert in alerts),
        "since": _sparse({i: int(a.since) for i, a in enumerate(alerts) if _state(a) not in "-i"}),
        "known": _sparse(
            {
                i: int(a.known_at)
                for i, a in enumerate(alerts)
                if a is not None and a.quality is not Quality.OK
            }
        ),
    }


def _state(alert: Alert | None) -> str:
    if alert is None:
        return "-"
    return STATES[alert.state] if alert.keep_firing_since is None else "h"


def _digits(threshold: float) -> int:
    if threshold == 0:
        return 2
    return 3 - max(-9, min(300, math.ceil(math.log10(abs(threshold)))))


def _sparse(found: Mapping[int, Any]) -> tuple[list[int], list[Any]]:
    return list(found), list(found.values())
