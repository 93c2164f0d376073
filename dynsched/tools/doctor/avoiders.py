"""Which pods react to load: those whose node affinity avoids the label, those that do not tolerate
the soft taint, those that got the order, and those that the extender scores.

The parts of a pod's specification come as the JSON that they are: most pods of a workload have the
same, which is then read once.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from itertools import chain
from typing import Any, Final

from dynsched.kube.client import KubeClient
from dynsched.kube.inspection import DEFAULT_SCHEDULER, PREFERRED, PodShape, fold_pods
from dynsched.rules import keys
from dynsched.rules.labels import LabelMark, Mark, TaintMark
from dynsched.rules.rule_set import RuleSet
from dynsched.util.errors import ConflictError
from dynsched.util.formatting import as_mapping, as_mappings

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_KEPT: Final = 8192
_NOT_COUNTED: Final = ("DaemonSet", "Node")
"""Owners of pods that no mark moves: each node has one of them."""


class Way(StrEnum):
    """How a pod reacts."""

    AFFINITY = "affinity"
    TAINT = "taint"
    ORDER = "order"
    EXTENDER = "extender"


class NoEffect(StrEnum):
    """Why a pod does not react although it seems to, or cannot."""

    PINNED = "pinned to a node"
    SCHEDULER = "another scheduler"
    TOLERATES = "tolerates every taint"


@dataclass(slots=True)
class Workload:
    """The pods of one controller, as ``namespace/kind/name``."""

    namespace: str
    name: str
    pods: int = 0
    reacting: int = 0
    causes: Counter[NoEffect] = field(default_factory=Counter)


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
            if pod.owner is None or pod.owner.kind not in _NOT_COUNTED:
                self._add(pod)

    def worst_first(self) -> list[Workload]:
        """Those with the most pods that do not react come first."""
        workloads = self.workloads.values()
        return sorted(workloads, key=lambda w: (w.reacting - w.pods, w.namespace, w.name))

    def _add(self, pod: PodShape) -> None:
        key = pod.namespace, _workload_of(pod)
        workload = self.workloads.setdefault(key, Workload(*key))
        ways, causes = self._reaction(pod)
        reacts = bool(ways) and NoEffect.PINNED not in causes
        workload.pods += 1
        workload.reacting += reacts
        workload.causes.update(causes)
        if reacts:
            self.ways.update(ways)

    def _reaction(self, pod: PodShape) -> tuple[tuple[Way, ...], tuple[NoEffect, ...]]:
        ways, causes = [], []
        label, taint = self.mark.label, self.mark.taint
        if label is not None and _avoids(label, pod.affinity):
            ways.append(Way.AFFINITY)
        if taint is not None:
            tolerated = _tolerated(taint, pod.tolerations)
            if tolerated is None:
                ways.append(Way.TAINT)
            elif tolerated:
                causes.append(NoEffect.TOLERATES)
        if pod.has_order:
            ways.append(Way.ORDER)
        if self.schedulers is None or pod.scheduler in self.schedulers:
            ways.append(Way.EXTENDER)
        elif pod.scheduler != DEFAULT_SCHEDULER:
            causes.append(NoEffect.SCHEDULER)
        if _pinned(pod.affinity, pod.selector):
            causes.append(NoEffect.PINNED)
        return tuple(ways), tuple(causes)


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


def _workload_of(pod: PodShape) -> str:
    """``replicaset/web-5d9c7b9d4f``: the owner that the pod names, not what owns that."""
    if pod.owner is None:
        return f"pod/{pod.name}"
    return f"{pod.owner.kind.lower()}/{pod.owner.name}"


@lru_cache(maxsize=_KEPT)
def _avoids(label: LabelMark, affinity: bytes) -> bool:
    node = _node_affinity(affinity)
    for term in as_mappings(node.get(PREFERRED)):
        if _any_avoids(label, as_mapping(term.get("preference"))) and term.get("weight") != 0:
            return True
    required = list(as_mappings(as_mapping(node.get(_REQUIRED)).get("nodeSelectorTerms")))
    # The terms are alternatives: a pod that one of them lets onto a marked node does not avoid it.
    return bool(required) and all(_any_avoids(label, term) for term in required)


def _any_avoids(label: LabelMark, term: Mapping[str, Any]) -> bool:
    ours = (e for e in as_mappings(term.get("matchExpressions")) if e.get("key") == label.key)
    return any(
        each.get("operator") == "DoesNotExist"
        or (each.get("operator") == "NotIn" and label.value in (each.get("values") or ()))
        for each in ours
    )


@lru_cache(maxsize=_KEPT)
def _tolerated(taint: TaintMark, tolerations: bytes) -> bool | None:
    """None: the taint is not tolerated. True: by a toleration of all taints."""
    for each in as_mappings(_json(tolerations)):
        if each.get("effect") not in (None, "", taint.effect):
            continue
        exists = each.get("operator") == "Exists"
        if exists and not each.get("key"):
            return True
        if each.get("key") == taint.key and (exists or (each.get("value") or "") == taint.value):
            return False
    return None


@lru_cache(maxsize=_KEPT)
def _pinned(affinity: bytes, selector: bytes) -> bool:
    if keys.HOSTNAME_LABEL in as_mapping(_json(selector)):
        return True
    required = as_mapping(_node_affinity(affinity).get(_REQUIRED))
    terms = list(as_mappings(required.get("nodeSelectorTerms")))
    return bool(terms) and all(map(_names_one, terms))


def _names_one(term: Mapping[str, Any]) -> bool:
    parts = (as_mappings(term.get(part)) for part in ("matchExpressions", "matchFields"))
    return any(
        each.get("key") in (keys.HOSTNAME_LABEL, "metadata.name")
        and each.get("operator") == "In"
        and len(each.get("values") or ()) == 1
        for each in chain.from_iterable(parts)
    )


def _node_affinity(affinity: bytes) -> Mapping[str, Any]:
    return as_mapping(as_mapping(_json(affinity)).get("nodeAffinity"))


def _json(text: bytes) -> Any:
    return json.loads(text) if text else None
