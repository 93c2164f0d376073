"""Which nodes may be marked at all, and which can take the same pods."""

from __future__ import annotations

from typing import Final, NamedTuple

from dynsched.engine.model import Node
from dynsched.engine.wording import Reason
from dynsched.rules import keys
from dynsched.rules.sections import GuardRules, NodeRules

_HARD_EFFECTS: Final = ("NoSchedule", "NoExecute")


class NodeKind(NamedTuple):
    """What nodes have in common that can take the same pods."""

    pool: str
    taints: frozenset[tuple[str, str, str]]
    """Key, value and effect of those that keep pods off; a cordoned node has one too."""


def is_eligible(node: Node, rules: NodeRules) -> bool:
    """Whether the rules' section ``nodes`` allows a mark on the node."""
    return why_ineligible(node, rules) is None


def why_ineligible(node: Node, rules: NodeRules) -> str | None:
    """The first reason against a mark, in one line; None when it is allowed."""
    if node.labels.get(keys.IGNORE_LABEL) == "true":
        return Reason("ignored", f"{keys.IGNORE_LABEL}=true")
    if not rules.include_control_plane:
        for label in keys.CONTROL_PLANE_LABELS:
            if label in node.labels:
                return Reason("control_plane", label)
    unmet = rules.selector.unmet(node.labels)
    return None if unmet is None else Reason("not_selected", str(unmet))


def pool_of(node: Node, guard: GuardRules) -> str:
    """The value of ``guard.pool_label``; "" where that is not set."""
    return node.labels.get(guard.pool_label, "") if guard.pool_label else ""


def hard_taints(node: Node) -> frozenset[tuple[str, str, str]]:
    """Key, value and effect of those that keep pods away which do not tolerate them."""
    taints = [taint for taint in node.taints if taint.get("effect") in _HARD_EFFECTS]
    return frozenset((str(t.get("key")), str(t.get("value")), str(t["effect"])) for t in taints)


def kind_of(node: Node, guard: GuardRules) -> NodeKind:
    """Nodes of the same kind take the same pods."""
    return NodeKind(pool_of(node, guard), hard_taints(node))
