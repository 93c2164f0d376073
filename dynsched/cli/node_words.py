"""Why a node is marked, early or not at all, and its expected load, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dynsched.engine.model import Quality
from dynsched.engine.wording import UNKNOWN, beside_the_line, listed
from dynsched.util.formatting import format_threshold

_LEAST: Final = 0.05
"""Points that are shown as ``0.1`` and not as ``0.0``."""
_DONE: Final = {"mark": "marked", "release": "released", "repair": "brought up to date"}

Part = Mapping[str, Any]


def is_early_rule(rule: Part) -> bool:
    return rule["early_of"] is not None


def is_changed_by_pods(rule: Part) -> bool:
    found = rule["expected"]
    return found is not None and (found["bound"] >= _LEAST or found["ended"] >= _LEAST)


def how_early(node: Part) -> str:
    """Of each rule by which a node is marked early: ``its expected load is 6.2 points above its
    early line (marked above -4, released at -12)``.
    """
    found = [rule for rule in node["rules"] if is_early_rule(rule) and rule["state"] == "firing"]
    told = []
    for rule in found:
        by = f" by {rule['early_of']}" if len(found) > 1 else ""
        where = "is not known yet"
        if rule["value"] is not None:
            is_known = rule["quality"] == Quality.OK
            where = f"{'is' if is_known else 'is not known now, and was last'} "
            where += beside_the_line(rule["value"])
        marked, released = map(format_threshold, (rule["threshold"], rule["clear_threshold"]))
        told.append(
            f"its expected load{by} {where} (marked above {marked}, released at {released})"
        )
    return "; ".join(told)


def expected_parts(node: Part) -> list[str]:
    """``node-cpu: 61.0 measured, +5.2 by pods that were bound, -1.3 by pods that ended, 64.9
    expected``, for each rule to which pods add something, or by which nodes are marked early.
    """
    compared = {rule["early_of"] for rule in node["rules"]}
    return [
        f"{rule['rule']}: {_parts(rule['expected'])}"
        for rule in node["rules"]
        if is_changed_by_pods(rule) or (rule["expected"] and rule["rule"] in compared)
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
        if node["early"]:
            return f"{marked} early {carried}: {how_early(node)}."
        return f"{marked} {carried}, but no rule fires any more: {node['withheld'] or waits}."
    if node["pressured"] or node["early"]:
        unmarked = f"not marked: {ineligible or node['conflict'] or waits}"
        wanted = fires if node["pressured"] else f"It is to be marked early: {how_early(node)}"
        return f"{node['name']} is {node['withheld'] or unmarked}. {wanted}."
    why = "; ".join(filter(None, (_why_cool(node), ineligible)))
    return f"{node['name']} is not marked: {why}."


def _why_cool(node: Part) -> str:
    unknown: dict[str, list[str]] = {}
    for rule in node["rules"]:
        if rule["quality"] != Quality.OK and not is_early_rule(rule):
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
    return [
        rule["rule"]
        for rule in node["rules"]
        if rule["state"] == state and not is_early_rule(rule) and not rule["shadow"]
    ]


def is_unknown(node: Part) -> bool:
    """Whether no rule has a good sample; a rule of early marks has none of its own."""
    asked = [rule["quality"] for rule in node["rules"] if not is_early_rule(rule)]
    return bool(asked) and Quality.OK not in asked


def due_in_full(due: Part) -> str:
    """What is to be changed on a marked node, and why it is not yet."""
    why = f"({', '.join(due['changes'])}; {due['reason']})"
    return f"It is to be {_DONE[due['action']]} {why}: {due['waits']}."


def due_in_short(due: Part, *, dry_run: bool) -> str:
    done = _DONE[due["action"]]
    return f"would be {done}" if dry_run else f"is to be {done}: {due['waits']}"
