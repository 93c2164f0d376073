"""The checks of a cluster: metrics-server, Karpenter and policies (P0, K2, K4)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

from dynsched.core.wording import counted, some
from dynsched.kube import inspection
from dynsched.kube.client import KubeClient, list_node_metrics
from dynsched.rules import keys
from dynsched.rules.rule_set import RuleSet
from dynsched.tools.doctor.findings import Chain, Finding, error, hint, warning
from dynsched.tools.policies import (
    LABEL_IT,
    affinity_problems,
    order_problems,
)
from dynsched.util.errors import ClusterError

NODE_POOLS: Final = "karpenter.sh/v1"
_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class ClusterContext:
    """The input of the cluster checks."""

    client: KubeClient
    rule_set: RuleSet


async def metrics_server(cluster: ClusterContext) -> AsyncIterator[Finding]:
    if all(rule.source != "metrics-server" for rule in cluster.rule_set.rules):
        return
    try:
        await list_node_metrics(cluster.client)
    except ClusterError as failed:
        yield error(
            "metrics-server does not answer, so its rules know nothing of any node",
            str(failed),
            "make `kubectl top nodes` work, or write rules of source prometheus",
        )


async def policies(cluster: ClusterContext) -> AsyncIterator[Finding]:
    """Why new pods do not get the order or the soft affinity that rules or labels ask for."""
    client, rule_set = cluster.client, cluster.rule_set
    of_affinity = await affinity_problems(client, rule_set.mark.label)
    for what, fix in of_affinity or ():
        yield warning("pods do not avoid marked nodes as the policy intends", what, fix)
    asking = await inspection.namespaces_that_ask(client)
    label = f"label {keys.AVOID_LABEL}=true"
    who = f"{counted(len(asking), 'namespace')} with the {label}: {some(asking, _SHOWN) or 'none'}"
    of_order = await order_problems(client) if rule_set.order or asking else []
    if rule_set.order is not None:
        for what, fix in of_order:
            yield warning(f"new pods are not getting the order: {what}", who, fix)
        if not asking:
            yield hint("no namespace asks for the order, so no pod gets it", who, LABEL_IT)
    elif of_affinity is None and of_order:
        yield warning(
            "namespaces ask that their pods avoid hot nodes, but no policy answers",
            f"{who}; rules.yaml has no section order, and the soft affinity is not injected",
            of_order[0].fix,
        )


async def karpenter_and_taint(cluster: ClusterContext) -> AsyncIterator[Finding]:
    """Karpenter is recognized by NODE_POOLS, because some clouds run it outside the cluster."""
    taint = cluster.rule_set.mark.taint
    if taint and await inspection.resources(cluster.client, NODE_POOLS):
        yield warning(
            "Karpenter treats a PreferNoSchedule taint as a hard one for pods that do not tolerate "
            "it: while nodes are marked, it keeps nodes that it could remove, and adds others",
            f"the API server serves {NODE_POOLS}; mark.taint is {taint}, which PREFERENCE_POLICY "
            "does not change",
            "write mark.taint: null, mark with the label, and set PREFERENCE_POLICY=Ignore",
        )


CLUSTER_CHECKS: Final[Chain[ClusterContext]] = (
    ("P0", metrics_server),
    ("K2", karpenter_and_taint),
    ("K4", policies),
)
