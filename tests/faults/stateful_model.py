"""What marks should be, in the simplest way that comes to mind."""

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
        said = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}


def record_of(node: Node) -> Mapping[str, Any]:
    """What the record says; nothing where there is none, or none that can be read."""
    return _read(node.annotations.get(RECORD, ""))


def texts_on(node: Node) -> set[str]:
    """All labels and taints."""
    labels = {label_text(key, value) for key, value in node.labels.items()}
    return labels | {taint_text(taint) for taint in node.taints}


@lru_cache
def texts_of(mark: Mark) -> frozenset[str]:
    return frozenset(str(part) for part in (mark.label, mark.taint) if part is not None)


def _meant(node: Node, mark: Mark) -> frozenset[str]:
    return _meant_by(node.annotations.get(RECORD, ""), mark)


@lru_cache(10_000)  # each node is asked about many times in a tick
def _meant_by(record: str, mark: Mark) -> frozenset[str]:
    said = _read(record)
    label, taint = said.get("label"), said.get("taint")
    found = (label if label == "status=presure" else None, taint)
    return texts_of(mark) | {text for text in found if isinstance(text, str)}


def marks_on(node: Node, mark: Mark) -> frozenset[str]:
    """What of ours is on it: of the present mark, or of an older one as the record tells."""
    return _meant(node, mark) & texts_on(node)


def conflict_on(node: Node, mark: Mark) -> bool:
    """Whether something of another owner stands where our mark should."""
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
    """The names of the nodes that may be marked, by pool."""
    pools: dict[str, set[str]] = {}
    for node in nodes:
        if is_eligible(node, rule_set) and not conflict_on(node, rule_set.mark):
            pools.setdefault(pool_of(node, rule_set.guard), set()).add(node.name)
    return pools


def pool_of(node: Node, guard: GuardRules) -> str:
    return node.labels.get(guard.pool_label, "") if guard.pool_label else ""
