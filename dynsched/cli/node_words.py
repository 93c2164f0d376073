"""Why a node is marked or not, and its expected load, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dynsched.engine.model import Quality
from dynsched.engine.wording import UNKNOWN, listed

_LEAST: Final = 0.05
"""Points that are shown as ``0.1`` and not as ``0.0``."""
_DONE: Final = {"mark": "marked", "release": "released", "repair": "brought up to date"}

Part = Mapping[str, Any]


def is_changed_by_pods(rule: Part) -> bool:
    found = rule["expected"]
    return found is not None and (found["bound"] >= _LEAST or found["ended"] >= _LEAST)


def expected_parts(node: Part) -> list[str]:
    """``node-cpu: 61.0 measured, +5.2 by pods that were bound, -1.3 by pods that ended, 64.9
    expected``, for each rule to which pods add something.
    """
    return [
        f"{rule['rule']}: {_parts(rule['expected'])}"
        for rule in node["rules"]
        if is_changed_by_pods(rule)
    ]


def _parts(expected: Mapping[str, float]) -> str:
    bound, ended = expected["bound"], expected["ended"]
    return (
        f"{expected['measured']:.1f} measured, "
        + (f"+{bound:.1f} by pods that were bound, " if bound >= _LEAST else "")
        + (f"-{ended:.1f} by pods that ended, " if ended >= _LEAST else "")
        + f"{expected['load']:.1f} expected"
    )


def verdict(node: Part) -> str:
    firing = _in_state(node, "firing")
    have = "has" if len(firing) == 1 else "have"
    fires = f"{listed(firing)} {have} been firing since {node['since']}"
    marked, carried = f"{node['name']} is marked", f"({listed(node['carries'])})"
    waits = node["due"]["waits"] if node["due"] else "the next tick decides"
    ineligible = node["ineligible"] and f"it is not eligible: {node['ineligible']}"
    if node["marked"]:
        if node["pressured"]:
            return f"{marked} {carried}: {fires}."
        return f"{marked} {carried}, but no rule fires any more: {node['withheld'] or waits}."
    if node["pressured"]:
        unmarked = f"not marked: {ineligible or node['conflict'] or waits}"
        return f"{node['name']} is {node['withheld'] or unmarked}. {fires}."
    why = "; ".join(filter(None, (_why_cool(node), ineligible)))
    return f"{node['name']} is not marked: {why}."


def _why_cool(node: Part) -> str:
    unknown: dict[str, list[str]] = {}
    for rule in node["rules"]:
        if rule["quality"] != Quality.OK:
            unknown.setdefault(UNKNOWN[Quality(rule["quality"])], []).append(rule["rule"])
    gaps = ", ".join(
        f"{listed(rules)} {'has' if len(rules) == 1 else 'have'} no value for it ({why})"
        for why, rules in unknown.items()
    )
    if is_unknown(node):
        return f"nothing is known of it: {gaps}"
    pending = _in_state(node, "pending")
    also = f", pending: {listed(pending)}" if pending else ""
    return f"no rule fires{also}" + (f"; {gaps}" if gaps else "")


def _in_state(node: Part, state: str) -> list[str]:
    """The rules that are in it on the node and may mark it as hot."""
    return [rule["rule"] for rule in node["rules"] if rule["state"] == state and not rule["shadow"]]


def is_unknown(node: Part) -> bool:
    """Whether no rule has a good sample."""
    found = [rule["quality"] for rule in node["rules"]]
    return bool(found) and Quality.OK not in found


def due_in_full(due: Part) -> str:
    """What is to be changed on a marked node, and why it is not yet."""
    why = f"({', '.join(due['changes'])}; {due['reason']})"
    return f"It is to be {_DONE[due['action']]} {why}: {due['waits']}."


def due_in_short(due: Part, *, dry_run: bool) -> str:
    done = _DONE[due["action"]]
    return f"would be {done}" if dry_run else f"is to be {done}: {due['waits']}"
