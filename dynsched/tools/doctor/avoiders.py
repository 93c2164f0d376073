"""Which pods react to the mark, by workload: whose node affinity avoids the label, who does not
tolerate the soft taint, and whom the extender scores.

The parts of a pod's specification come as the JSON that they are: most pods of a workload have the
same, which is then read once.
"""

from __future__ import annotations

import json
import re
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
from dynsched.tools.inject.policy import levels_in
from dynsched.util.defaults import AVOIDANCE_WEIGHT
from dynsched.util.errors import ConflictError
from dynsched.util.formatting import as_mapping, as_mappings

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_OF_CRONJOB: Final = re.compile(r"(.+)-[0-9]{8,10}")
_KEPT: Final = 8192
_LEFT_OUT: Final = {"DaemonSet": "pods of DaemonSets", "Node": "static pods"}


class Way(StrEnum):
    PREFERENCE = "soft affinity"
    REQUIREMENT = "required affinity"
    TAINT = "taint"
    EXTENDER = "extender"


class NoEffect(StrEnum):
    """Why a pod does not react although it seems to, or cannot."""

    PINNED = "pinned to a node"
    SCHEDULER = "another scheduler"
    TOLERATES = "tolerates every taint"


@dataclass(slots=True)
class Workload:
    """The pods of one controller, or all. ``requests``: cores and bytes; ``affinity`` and
    ``ordered``: those of a pod that does not react.
    """

    namespace: str = ""
    kind: str = ""
    name: str = ""
    pods: int = 0
    reacting: int = 0
    requests: dict[str, float] = field(default_factory=lambda: {"cpu": 0.0, "memory": 0.0})
    requests_reacting: dict[str, float] = field(default_factory=lambda: {"cpu": 0.0, "memory": 0.0})
    ways: Counter[Way] = field(default_factory=Counter)
    causes: Counter[NoEffect] = field(default_factory=Counter)
    schedulers: set[str] = field(default_factory=set)
    affinity: bytes = b""
    ordered: bool = False

    def count(self, pod: PodShape, *, reacts: bool) -> None:
        self.pods += 1
        self.reacting += reacts
        for resource, much in ("cpu", pod.cpu), ("memory", pod.memory):
            self.requests[resource] += much
            self.requests_reacting[resource] += much * reacts


@dataclass(slots=True)
class Reach:
    """All pods that could react. ``left_out``: how many, by why they are not counted."""

    mark: Mark
    schedulers: frozenset[str] | None
    """Whose pods the extender scores; None: it scores all."""
    left_out: Counter[str] = field(default_factory=Counter)
    workloads: dict[tuple[str, str, str], Workload] = field(default_factory=dict)
    total: Workload = field(default_factory=Workload)

    def add(self, pods: Iterable[PodShape]) -> None:
        for pod in pods:
            if pod.owner and (why := _LEFT_OUT.get(pod.owner.kind)):
                self.left_out[why] += 1
            else:
                self._add(pod)

    def worst_first(self) -> list[Workload]:
        return sorted(
            self.workloads.values(),
            key=lambda each: (
                each.reacting - each.pods,
                each.requests_reacting["cpu"] - each.requests["cpu"],
                each.namespace,
                each.name,
            ),
        )

    def _add(self, pod: PodShape) -> None:
        key = (pod.namespace, *_workload_of(pod))
        workload = self.workloads.setdefault(key, Workload(*key))
        ways, causes = self._reaction(pod)
        reacts = bool(ways) and NoEffect.PINNED not in causes
        workload.count(pod, reacts=reacts)
        self.total.count(pod, reacts=reacts)
        workload.causes.update(causes)
        if pod.scheduler != DEFAULT_SCHEDULER:
            workload.schedulers.add(pod.scheduler)
        if reacts:
            workload.ways.update(ways)
        else:
            workload.affinity, workload.ordered = pod.affinity, pod.ordered

    def _reaction(self, pod: PodShape) -> tuple[tuple[Way, ...], tuple[NoEffect, ...]]:
        ways, causes = [], []
        label, taint = self.mark.label, self.mark.taint
        if label is not None and (way := _avoids(label, pod.affinity)) is not None:
            ways.append(way)
        if taint is not None:
            tolerated = _tolerated(taint, pod.tolerations)
            if tolerated is None:
                ways.append(Way.TAINT)
            elif tolerated:
                causes.append(NoEffect.TOLERATES)
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
    """Of all running pods. ClusterError."""
    found = reach_of(rule_set)
    try:
        await fold_pods(client, found.add)
    except ConflictError:  # the snapshot of a long list expired before its end
        found = reach_of(rule_set)
        await fold_pods(client, found.add)
    return found


def patch_of(workload: Workload, label: LabelMark) -> str | None:
    """The command that gives the workload's pods a soft affinity that avoids the mark, beside the
    preferences that they have of their own; None where its kind has no template that it would be
    written to.
    """
    avoid = {
        "weight": AVOIDANCE_WEIGHT,
        "preference": {
            "matchExpressions": [{"key": label.key, "operator": "NotIn", "values": [label.value]}]
        },
    }
    own = as_mappings(_node_affinity(workload.affinity).get(PREFERRED))
    # The order is of the pod's creation: in the template it would hold for all later pods.
    levels = levels_in(own) if workload.ordered else []
    terms = [*(term for at, term in enumerate(own) if at not in levels), avoid]
    pod: dict[str, Any] = {"spec": {"affinity": {"nodeAffinity": {PREFERRED: terms}}}}
    body: dict[str, Any] = {"spec": {"template": pod}}
    if workload.kind == "CronJob":
        body = {"spec": {"jobTemplate": body}}
    elif workload.kind not in ("Deployment", "StatefulSet", "ReplicaSet"):
        return None
    text = json.dumps(body, separators=(",", ":")).replace("'", "'\\''")
    what = f"{workload.kind.lower()} {workload.name}"
    return f"kubectl -n {workload.namespace} patch {what} --type merge -p '{text}'"


def _workload_of(pod: PodShape) -> tuple[str, str]:
    if pod.owner is None:
        return "Pod", pod.name
    kind, name = pod.owner.kind, pod.owner.name
    if kind == "ReplicaSet" and pod.template_hash and name.endswith(f"-{pod.template_hash}"):
        return "Deployment", name.removesuffix(f"-{pod.template_hash}")
    if kind == "Job" and (match := _OF_CRONJOB.fullmatch(name)) is not None:
        return "CronJob", match[1]
    return kind, name


@lru_cache(maxsize=_KEPT)
def _avoids(label: LabelMark, affinity: bytes) -> Way | None:
    node = _node_affinity(affinity)
    for term in as_mappings(node.get(PREFERRED)):
        if _any_avoids(label, as_mapping(term.get("preference"))) and term.get("weight") != 0:
            return Way.PREFERENCE
    required = list(as_mappings(as_mapping(node.get(_REQUIRED)).get("nodeSelectorTerms")))
    # The terms are alternatives: a pod that one of them lets onto a marked node does not avoid it.
    if required and all(_any_avoids(label, term) for term in required):
        return Way.REQUIREMENT
    return None


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
