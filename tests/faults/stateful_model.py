"""The simplest possible model of what marks should be."""

import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from dynsched.core.nodes import Node
from dynsched.rules.labels import Mark
from dynsched.rules.rule_set import RuleSet
from dynsched.rules.sections import GuardRules

RECORD = "dynsched.io/pressure"
CONTROL_PLANE = "node-role.kubernetes.io/control-plane"
IGNORE = "dynsched.io/ignore"


def label_text(key: str, value: str) -> str:
    return f"{key}={value}"


def taint_text(taint: Mapping[str, Any]) -> str:
    return f"{taint['key']}={taint.get('value', '')}:{taint['effect']}"


@lru_cache(1000)
def _read(text: str) -> Mapping[str, Any]:
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


def record_of(node: Node) -> Mapping[str, Any]:
    """The node's mark record; empty if it is missing or unreadable."""
    return _read(node.annotations.get(RECORD, ""))


def texts_on(node: Node) -> set[str]:
    """All labels and taints as texts."""
    labels = {label_text(key, value) for key, value in node.labels.items()}
    return labels | {taint_text(taint) for taint in node.taints}


@lru_cache
def texts_of(mark: Mark) -> frozenset[str]:
    return frozenset(str(part) for part in (mark.label, mark.taint) if part is not None)


def _meant(node: Node, mark: Mark) -> frozenset[str]:
    return _meant_by(node.annotations.get(RECORD, ""), mark)


@lru_cache(10_000)  # called many times per node and tick
def _meant_by(record: str, mark: Mark) -> frozenset[str]:
    recorded = _read(record)
    label, taint = recorded.get("label"), recorded.get("taint")
    found = (label if label == "status=presure" else None, taint)
    return texts_of(mark) | {text for text in found if isinstance(text, str)}


def marks_on(node: Node, mark: Mark) -> frozenset[str]:
    """Our labels and taints on the node: of the current mark, or of an older, recorded one."""
    return _meant(node, mark) & texts_on(node)


def conflict_on(node: Node, mark: Mark) -> bool:
    """Whether another owner's label or taint is in the place of our mark."""
    meant = _meant(node, mark)
    places = []
    if mark.label is not None and mark.label.key in node.labels:
        places.append(label_text(mark.label.key, node.labels[mark.label.key]))
    if mark.taint is not None:
        places += [
            taint_text(taint)
            for taint in node.taints
            if (taint["key"], taint["effect"]) == (mark.taint.key, mark.taint.effect)
        ]
    return any(text not in meant for text in places)


def is_eligible(node: Node, rule_set: RuleSet) -> bool:
    labels = node.labels
    if labels.get(IGNORE) == "true":
        return False
    if CONTROL_PLANE in labels and not rule_set.nodes.include_control_plane:
        return False
    return rule_set.nodes.selector.matches(labels)


def pools_of(nodes: Iterable[Node], rule_set: RuleSet) -> dict[str, set[str]]:
    """Names of the nodes that may be marked, by pool."""
    pools: dict[str, set[str]] = {}
    for node in nodes:
        if is_eligible(node, rule_set) and not conflict_on(node, rule_set.mark):
            pools.setdefault(pool_of(node, rule_set.guard), set()).add(node.name)
    return pools


def pool_of(node: Node, guard: GuardRules) -> str:
    return node.labels.get(guard.pool_label, "") if guard.pool_label else ""
