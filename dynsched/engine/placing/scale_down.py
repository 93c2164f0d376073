"""Which pods a scale-down takes first: those on hot nodes, and of these the ones that use most.

The ReplicaSet controller reads one annotation for it (docs/scale-down.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from dynsched.engine.pod_values import BoundPod, PodUse, workload_of
from dynsched.engine.snapshot import Snapshot
from dynsched.rules.keys import COST_ANNOTATION, DELETION_COST


class CostedPod(NamedTuple):
    """``cost``: its deletion cost, whoever set it; ``ours``: the one that dynsched set. ``node`` is
    empty where that is not known.
    """

    namespace: str
    name: str
    version: str
    node: str = ""
    cost: str | None = None
    ours: str | None = None

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    def patch(self, cost: int | None) -> Mapping[str, Any]:
        """The merge patch that gives it this cost; with None what is ours goes, and a cost that
        somebody else set meanwhile stays.
        """
        value = None if cost is None else str(cost)
        changes = {COST_ANNOTATION: value}
        if cost is not None or self.cost == self.ours:
            changes[DELETION_COST] = value
        return {"metadata": {"resourceVersion": self.version, "annotations": changes}}


def arrivals(snapshot: Snapshot) -> dict[str, set[str]]:
    """The nodes whose pods are to have a cost, and of each the uids of those bound of late."""
    nodes, is_on = snapshot.nodes, snapshot.rule_set.scale_down
    found = {node: set[str]() for node in nodes.hot.difference(nodes.ineligible) if is_on}
    for pod, bound, ended in snapshot.pods.recent if found else ():
        if bound is not None and ended is None and pod.node in found and not pod.assumed:
            found[pod.node].add(pod.uid)
    return found


def due_on(snapshot: Snapshot, node: str, pods: Iterable[CostedPod]) -> list[tuple[CostedPod, int]]:
    """Of the ``pods`` on a hot node, those without a cost, and which one each gets; the lowest
    first. It goes by the share of the node that a pod uses, since the ReplicaSet controller
    compares pods of several nodes.
    """
    rules = snapshot.rule_set.by_name
    firing = [rules[alert.rule] for alert in snapshot.nodes[node].verdict.alerts if alert.firing]
    found = {rule.resource for rule in firing if rule.early_of is None and not rule.shadow}
    uses = [
        PodUse(
            resource,
            of_workload=snapshot.pods.use_of_workloads.get(resource, {}),
            of_pod=snapshot.pods.use_of_pods.get(resource, {}),
        )
        for resource in found - {None} or {"cpu"}
        if resource is not None
    ]
    allocatable = snapshot.nodes.inventory.nodes[node].allocatable
    due = []
    for pod in pods:
        if pod.cost is None and pod.ours is None:
            known = BoundPod("", node, name=str(pod), workload=workload_of(pod.namespace, pod.name))
            due.append((pod, -1 - round(max(use.points(known, allocatable) or 0 for use in uses))))
    return sorted(due, key=lambda each: each[1])
