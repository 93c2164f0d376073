"""Short ways to the core's values. A rule set is always parsed, as a user's file is."""

from collections.abc import Iterable, Mapping
from typing import Any

from dynsched.engine.model import Node, NodePatch, QueryResult, Sample
from dynsched.rules.file import parse_rules
from dynsched.rules.keys import ANNOTATION_PREFIX, EVIDENCE_ANNOTATION
from dynsched.rules.rule_set import RuleSet
from dynsched_sim.apiserver.objects import merge_patch

Body = dict[str, Any]

NOON = 1_700_000_000.0
"""The time at which most tests begin."""


def rule(name: str = "cpu", **options: Any) -> Body:
    """One rule as in the file; ``for_`` stands for ``for``."""
    if "for_" in options:
        options["for"] = options.pop("for_")
    return {"name": name, "expr": f"load:{name}", "threshold": 80, **options}


def rule_set(*rules: Body, **sections: Any) -> RuleSet:
    """A whole file; one plain rule where none is given."""
    return parse_rules({"rules": list(rules) or [rule()], **sections})


def unlimited(*rules: Body, **sections: Any) -> RuleSet:
    """A file whose guard never binds."""
    guard = {"max_marked": "100%", "max_releases": "100%"}
    return rule_set(*rules, **{"guard": guard, **sections})


def soft(key: str = "dynsched.io/pressure", value: str = "true") -> Body:
    """A taint that could be ours."""
    return {"key": key, "value": value, "effect": "PreferNoSchedule"}


def body(
    name: str = "n1",
    *,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    taints: Iterable[Body] = (),
) -> Body:
    """A raw Node, cut to what is looked at; empty parts are not there, as on a real one."""
    metadata: Body = {"name": name, "resourceVersion": "1"}
    if labels:
        metadata["labels"] = dict(labels)
    if annotations:
        metadata["annotations"] = dict(annotations)
    taints = list(taints)
    return {"metadata": metadata, "spec": {"taints": taints} if taints else {}}


def project(raw: Body) -> Node:
    """The Node that is kept of a raw one."""
    metadata = raw["metadata"]
    annotations = metadata.get("annotations", {})
    return Node(
        name=metadata["name"],
        resource_version=metadata["resourceVersion"],
        labels=metadata.get("labels", {}),
        annotations={k: v for k, v in annotations.items() if k.startswith(ANNOTATION_PREFIX)},
        taints=tuple(raw["spec"].get("taints") or ()),
        owned=frozenset(raw.get("owned", ())),
    )


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


def apply(raw: Body, patch: NodePatch) -> Body:
    """What the API server makes of a patch: checks the version, merges, counts the version up.

    ``owned`` stands for its record of the labels that we wrote.
    """
    metadata = raw["metadata"]
    assert patch.node == metadata["name"]
    assert patch.body["metadata"]["resourceVersion"] == metadata["resourceVersion"]
    merged = merge_patch(raw, patch.body)
    merged["metadata"]["resourceVersion"] = str(int(metadata["resourceVersion"]) + 1)
    labels = patch.body["metadata"].get("labels", {})
    owned = {*raw.get("owned", ()), *labels} & merged["metadata"].get("labels", {}).keys()
    merged.pop("owned", None)
    if owned:
        merged["owned"] = sorted(owned)
    for key in ("labels", "annotations"):
        if merged["metadata"].get(key) == {}:
            del merged["metadata"][key]
    return merged


def answer(values: Mapping[str, float], at: float = NOON, label: str = "node") -> QueryResult:
    """A good answer: one sample for each node, by name."""
    return QueryResult(
        tuple(Sample({label: name}, float(value), at) for name, value in values.items())
    )


FAILED = QueryResult(error="connection refused")
