"""In words, from the answers of `/nodes` and `/nodes/NAME`: why a node is marked early, and what
its expected load is made of. An older dynsched's answers have none of this.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dynsched.engine.model import Quality
from dynsched.engine.wording import beside_the_line
from dynsched.util.formatting import format_threshold

_LEAST = 0.05
"""Points that are shown as ``0.1`` and not as ``0.0``."""


def is_early(node: Mapping[str, Any]) -> bool:
    """Whether a node is not hot, and to be avoided by its expected load."""
    return bool(node.get("early"))


def is_early_rule(rule: Mapping[str, Any]) -> bool:
    """Whether it stands for ``early`` of another rule."""
    return rule.get("early_of") is not None


def is_changed_by_pods(rule: Mapping[str, Any]) -> bool:
    """Whether the expected load is another than the measured one."""
    found = rule.get("expected")
    return found is not None and (found["bound"] >= _LEAST or found["ended"] >= _LEAST)


def how_early(node: Mapping[str, Any]) -> str:
    """Of each rule by which a node is marked early: ``its expected load is 6.2 points above its
    early line (marked above -4, released at -12)``.
    """
    found = [rule for rule in node["rules"] if is_early_rule(rule) and rule["state"] == "firing"]
    several = len(found) > 1
    return "; ".join(_why(rule, f" by {rule['early_of']}" if several else "") for rule in found)


def _why(rule: Mapping[str, Any], by: str) -> str:
    marked, released = (format_threshold(rule[key]) for key in ("threshold", "clear_threshold"))
    where = f"its expected load{by} {_is_where(rule)}"
    return f"{where} (marked above {marked}, released at {released})"


def _is_where(rule: Mapping[str, Any]) -> str:
    if rule["value"] is None:
        return "is not known yet"
    when = "is" if rule["quality"] == Quality.OK else "is not known now, and was last"
    return f"{when} {beside_the_line(rule['value'])}"


def expected_parts(node: Mapping[str, Any]) -> list[str]:
    """``node-cpu: 61.0 measured, +5.2 by pods that were bound, -1.3 by pods that ended, 64.9
    expected``, for each rule to which pods add something, or by which nodes are marked early.
    """
    compared = {rule["early_of"] for rule in node["rules"] if is_early_rule(rule)}
    return [
        f"{rule['rule']}: {', '.join(_parts(rule['expected']))}"
        for rule in node["rules"]
        if is_changed_by_pods(rule) or (rule.get("expected") and rule["rule"] in compared)
    ]


def _parts(expected: Mapping[str, float]) -> list[str]:
    parts = [f"{expected['measured']:.1f} measured"]
    if expected["bound"] >= _LEAST:
        parts.append(f"+{expected['bound']:.1f} by pods that were bound")
    if expected["ended"] >= _LEAST:
        parts.append(f"-{expected['ended']:.1f} by pods that ended")
    return [*parts, f"{expected['load']:.1f} expected"]
