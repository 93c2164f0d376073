"""Which pods react to load: those whose node affinity avoids the label, those that do not tolerate
the soft taint, those that got the order, and those that the extender scores.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from dynsched.kube.client import KubeClient
from dynsched.kube.inspection import PREFERRED, PodShape, fold_pods
from dynsched.rules.labels import LabelMark, Mark, TaintMark
from dynsched.rules.rule_set import RuleSet
from dynsched.util.errors import ConflictError
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
class Workload:
    """The pods of one controller. ``name`` is ``replicaset/web-5d9c7b9d4f``: the owner that the pod
    names, not what owns that.
    """

    namespace: str
    name: str
    pods: int = 0
    reacting: int = 0


@dataclass(slots=True)
class Reach:
    """All pods that could react. ``schedulers``: whose pods the extender scores; None: all."""

    mark: Mark
    schedulers: frozenset[str] | None
    ways: Counter[Way] = field(default_factory=Counter)
    workloads: dict[tuple[str, str], Workload] = field(default_factory=dict)

    @property
    def pods(self) -> int:
        """How many were counted."""
        return sum(each.pods for each in self.workloads.values())

    @property
    def reacting(self) -> int:
        """How many of them react."""
        return sum(each.reacting for each in self.workloads.values())

    def add(self, pods: Iterable[PodShape]) -> None:
        """Count these pods."""
        for pod in pods:
            if pod.owner is not None and pod.owner.kind in _NOT_COUNTED:
                continue
            owner = f"{pod.owner.kind.lower()}/{pod.owner.name}" if pod.owner else f"pod/{pod.name}"
            key = pod.namespace, owner
            workload = self.workloads.setdefault(key, Workload(*key))
            ways = list(self._ways(pod))
            workload.pods += 1
            workload.reacting += bool(ways)
            self.ways.update(ways)

    def worst_first(self) -> list[Workload]:
        """Those with the most pods that do not react come first."""
        workloads = self.workloads.values()
        return sorted(workloads, key=lambda w: (w.reacting - w.pods, w.namespace, w.name))

    def _ways(self, pod: PodShape) -> Iterator[Way]:
        if self.mark.label is not None and _avoids(self.mark.label, pod.affinity):
            yield Way.AFFINITY
        if self.mark.taint is not None and not _tolerates(self.mark.taint, pod.tolerations):
            yield Way.TAINT
        if pod.has_order:
            yield Way.ORDER
        if self.schedulers is None or pod.scheduler in self.schedulers:
            yield Way.EXTENDER


def reach_of(rule_set: RuleSet) -> Reach:
    """To be filled with pods. A profile ``default`` of the extender scores the pods of all."""
    profiles = rule_set.extender.profiles if rule_set.has_extender else {}
    return Reach(rule_set.mark, None if "default" in profiles else frozenset(profiles))


async def count_pods(client: KubeClient, rule_set: RuleSet) -> Reach:
    """Count all running pods. ClusterError."""
    found = reach_of(rule_set)
    try:
        await fold_pods(client, found.add)
    except ConflictError:  # the snapshot of a long list expired before its end
        found = reach_of(rule_set)
        await fold_pods(client, found.add)
    return found


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
