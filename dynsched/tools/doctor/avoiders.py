"""Which pods react to load: those whose node affinity avoids the label, those that do not tolerate
the soft taint, those that got the order, and those that the extender scores.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from dynsched.kube.client import KubeClient
from dynsched.kube.inspection import PREFERRED, Pod, placed_pods
from dynsched.rules.labels import LabelMark, TaintMark
from dynsched.rules.rule_set import RuleSet
from dynsched.util.formatting import as_mapping, as_mappings

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_NOT_COUNTED: Final = ("DaemonSet", "Node")
"""Owners of pods that no mark moves: each node has one of them."""


class Way(StrEnum):
    """How a pod reacts."""

    AFFINITY = "affinity"
    TAINT = "taint"
    ORDER = "order"
    EXTENDER = "extender"


@dataclass(slots=True)
class Reach:
    """The number of pods, and of those that react, by namespace; and by how they react."""

    pods: Counter[str] = field(default_factory=Counter)
    reacting: Counter[str] = field(default_factory=Counter)
    ways: Counter[Way] = field(default_factory=Counter)

    def add(self, pod: Pod, rule_set: RuleSet) -> None:
        metadata, ways = pod.metadata, list(_ways(pod, rule_set))
        if not any(each.controller and each.kind in _NOT_COUNTED for each in metadata.owners or ()):
            self.pods[metadata.namespace] += 1
            self.reacting[metadata.namespace] += bool(ways)
            self.ways.update(ways)


async def count_pods(client: KubeClient, rule_set: RuleSet) -> Reach:
    """Count all running pods. ClusterError."""
    reach = Reach()
    async for pod in placed_pods(client):
        reach.add(pod, rule_set)
    return reach


def _ways(pod: Pod, rule_set: RuleSet) -> Iterator[Way]:
    mark, spec, annotations = rule_set.mark, pod.spec, pod.metadata.annotations
    if mark.label is not None and _avoids(mark.label, spec.affinity):
        yield Way.AFFINITY
    if mark.taint is not None and not _tolerates(mark.taint, spec.tolerations):
        yield Way.TAINT
    if annotations is not None and annotations.order:
        yield Way.ORDER
    # A profile `default` scores the pods of all schedulers.
    profiles = rule_set.extender.profiles if rule_set.has_extender else {}
    if "default" in profiles or spec.scheduler in profiles:
        yield Way.EXTENDER


def _avoids(label: LabelMark, affinity: Any) -> bool:
    node = as_mapping(as_mapping(affinity).get("nodeAffinity"))
    for term in as_mappings(node.get(PREFERRED)):
        if _any_avoids(label, as_mapping(term.get("preference"))) and term.get("weight") != 0:
            return True
    required = as_mappings(as_mapping(node.get(_REQUIRED)).get("nodeSelectorTerms"))
    # The terms are alternatives: a pod that one of them lets onto a marked node does not avoid it.
    return bool(required) and all(_any_avoids(label, term) for term in required)


def _any_avoids(label: LabelMark, term: Mapping[str, Any]) -> bool:
    ours = (e for e in as_mappings(term.get("matchExpressions")) if e.get("key") == label.key)
    return any(
        each.get("operator") == "DoesNotExist"
        or (each.get("operator") == "NotIn" and label.value in (each.get("values") or ()))
        for each in ours
    )


def _tolerates(taint: TaintMark, tolerations: Any) -> bool:
    for each in as_mappings(tolerations):
        exists = each.get("operator") == "Exists"
        same_key = each.get("key") == taint.key or (exists and not each.get("key"))
        same_value = exists or (each.get("value") or "") == taint.value
        if same_key and same_value and each.get("effect") in (None, "", taint.effect):
            return True
    return False
