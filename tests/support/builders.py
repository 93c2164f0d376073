"""Shortcuts to build the core's values. Rule sets are always parsed, like a user's file."""

from collections.abc import Iterable, Mapping
from typing import Any

from dynsched.core.nodes import Node
from dynsched.core.samples import QueryResult, Sample
from dynsched.rules.keys import EVIDENCE_ANNOTATION
from dynsched.rules.parse import parse_rules
from dynsched.rules.rule_set import RuleSet

Body = dict[str, Any]

NOON = 1_700_000_000.0
"""The time at which most tests start."""


def rule(name: str = "cpu", **options: Any) -> Body:
    """One rule as in the rules file; ``for_`` stands for ``for``."""
    if "for_" in options:
        options["for"] = options.pop("for_")
    return {"name": name, "expr": f"load:{name}", "threshold": 80, **options}


def rule_set(*rules: Body, **sections: Any) -> RuleSet:
    """The rules of a whole file; by default one plain rule."""
    return parse_rules({"rules": list(rules) or [rule()], **sections})


def unlimited(*rules: Body, **sections: Any) -> RuleSet:
    """The rules of a file whose guard has no limits."""
    guard = {"max_marked": "100%", "max_releases": "100%"}
    return rule_set(*rules, **{"guard": guard, **sections})


def soft(key: str = "dynsched.io/pressure", value: str = "true") -> Body:
    """A taint like the one that dynsched sets."""
    return {"key": key, "value": value, "effect": "PreferNoSchedule"}


def node(
    name: str = "n1",
    *,
    labels: Mapping[str, str] | None = None,
    evidence: str | None = None,
    taints: Iterable[Body] = (),
    addresses: Mapping[str, str] | None = None,
) -> Node:
    return Node(
        name=name,
        resource_version="1",
        labels=labels or {},
        annotations={} if evidence is None else {EVIDENCE_ANNOTATION: evidence},
        taints=tuple(taints),
        addresses=tuple((addresses or {}).items()),
    )


def named(*names: str, uid: str = "") -> dict[str, Node]:
    return {name: Node(name, uid=uid and f"{uid}-{name}") for name in names}


def answer(values: Mapping[str, float], at: float = NOON, label: str = "node") -> QueryResult:
    """A successful result with one sample per node."""
    return QueryResult(
        tuple(Sample({label: name}, float(value), at) for name, value in values.items())
    )


FAILED = QueryResult(error="connection refused")
