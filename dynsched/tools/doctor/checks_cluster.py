"""The checks of metrics-server, the Lease, rights, policies and Karpenter (P0, K1, K2, K4), and the
chain of all checks of a cluster.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from dynsched.core.wording import counted, listed, some
from dynsched.features.order.resource import NODE_ORDERS
from dynsched.kube import inspection
from dynsched.kube.client import EVENT_NAMESPACE, list_node_metrics
from dynsched.kube.failures import OURS
from dynsched.kube.inspection import Right
from dynsched.kube.leader import LEASE_NAME
from dynsched.rules import keys
from dynsched.tools.doctor.checks_nodes import (
    SHOWN,
    ClusterContext,
    few_react,
    foreign_marks,
    no_mark_allowed,
    orphaned_marks,
)
from dynsched.tools.doctor.findings import Chain, Finding, NotChecked, error, hint, run, warning
from dynsched.tools.policies import (
    LABEL_IT,
    NOT_SERVED,
    affinity_problems,
    install,
    order_problems,
)
from dynsched.util.errors import ClusterError

NODE_POOLS: Final = "karpenter.sh/v1"
IN_THE_POD: Final = (
    "kubectl -n dynsched exec deploy/dynsched -- dynsched doctor --rules rules/rules.yaml"
)
"""The rules of the shipped Deployment, below the image's working directory."""


async def metrics_server(cluster: ClusterContext) -> AsyncIterator[Finding]:
    if not cluster.asks_metrics_server:
        return
    try:
        await list_node_metrics(cluster.client)
    except ClusterError as failed:
        yield error(
            "metrics-server does not answer, so its rules know nothing of any node",
            str(failed),
            "make `kubectl top nodes` work, or write rules of source prometheus",
        )


async def two_writers(cluster: ClusterContext) -> AsyncIterator[Finding]:
    holders = await cluster.holders()
    if len(holders) > 1:
        yield error(
            "more than one dynsched holds a Lease in this cluster: they write the same nodes",
            listed(holders),
            "stop all but one, or give them the same --lease-namespace",
        )


async def rights(cluster: ClusterContext) -> AsyncIterator[Finding]:
    """An error for each resource, or a warning where the account is a person's."""
    needed = await _needed_rights(cluster)
    refused = [r for r in needed if not await inspection.is_allowed(cluster.client, r)]
    account = await inspection.whoami(cluster.client) if refused else None
    if account and not OURS.fullmatch(account):
        lacking = [f"{verb} {resource}" for verb, resource, *_ in refused]
        yield warning(
            f"dynsched's own rights are not known: the account in use, {account}, lacks some",
            f"it may not {listed(lacking)}",
            f"`{IN_THE_POD}` looks at dynsched's own",
        )
        return
    by_resource: dict[Right, list[str]] = {}
    for right in refused:
        by_resource.setdefault(right._replace(verb="", group=""), []).append(right.verb)
    for (_, resource, _, namespace, name), verbs in by_resource.items():
        where = f" in namespace {namespace}" if namespace else ""
        what = f"{resource}{f' {name}' if name else ''}{where}"
        yield error(
            f"the account in use may not {listed(verbs)} {what}",
            "the API server's review of each right (SelfSubjectAccessReview)",
            "apply manifests/base of this version, or upgrade the chart: both bring the roles",
        )


async def _needed_rights(cluster: ClusterContext) -> list[Right]:
    """The rights that dynsched needs for these rules, as the roles in manifests/base grant them."""
    leases, home, rule_set = "coordination.k8s.io", cluster.home, cluster.rule_set
    found = [
        *(Right(verb, "nodes") for verb in ("get", "list", "watch")),
        *(
            Right(verb, "events", namespace=where)  # about nodes, and about dynsched itself
            for where in dict.fromkeys((EVENT_NAMESPACE, home))
            for verb in ("create", "patch")
        ),
        Right("create", "leases", leases, home),
        *(Right(verb, "leases", leases, home, LEASE_NAME) for verb in ("get", "update")),
    ]
    if not rule_set.mark.is_none:
        found.append(Right("patch", "nodes"))
    if rule_set.uses_expected_load:
        found += [Right(verb, "pods") for verb in ("list", "watch")]
    webhooks = inspection.WEBHOOKS
    if cluster.has_order and not await inspection.policy(
        cluster.client, webhooks, keys.ORDER_POLICY
    ):
        group, verbs = keys.ORDER_API.partition("/")[0], ("create", "patch", "delete")
        found += [Right(verb, NODE_ORDERS, group, home, keys.ORDER_NAME) for verb in verbs]
    if cluster.asks_metrics_server:
        found.append(Right("list", "nodes", "metrics.k8s.io"))
    return found


async def affinity(cluster: ClusterContext) -> AsyncIterator[Finding]:
    """Why the installed policy of the soft affinity does not do what it is for."""
    for what, fix in await affinity_problems(cluster.client, cluster.rule_set.mark.label) or ():
        yield warning("pods do not avoid marked nodes as the policy intends", what, fix)


async def order(cluster: ClusterContext) -> AsyncIterator[Finding]:
    """Why new pods do not get the order, or those that ask for it get nothing."""
    asking = await inspection.namespaces_that_ask(cluster.client)
    label = f"label {keys.AVOID_LABEL}=true"
    who = f"{counted(len(asking), 'namespace')} with the {label}: {some(asking, SHOWN) or 'none'}"
    if cluster.has_order:
        for what, fix in await order_problems(cluster.client):
            yield warning(f"new pods are not getting the order: {what}", who, fix)
        if not asking:
            yield hint("no namespace asks for the order, so that no pod gets it", who, LABEL_IT)
    elif (
        asking
        and await affinity_problems(cluster.client, None) is None
        and (problems := await order_problems(cluster.client))
    ):
        yield warning(
            "namespaces ask that their pods avoid hot nodes, and no policy answers",
            f"{who}; rules.yaml has no section order, and the soft affinity is not injected",
            NOT_SERVED.fix if NOT_SERVED in problems else install("order"),
        )


async def karpenter_and_taint(cluster: ClusterContext) -> AsyncIterator[Finding]:
    """Where NODE_POOLS is served: also by clouds that run Karpenter out of sight."""
    taint = cluster.rule_set.mark.taint
    if taint and await inspection.resources(cluster.client, NODE_POOLS):
        yield warning(
            "Karpenter takes a node with a PreferNoSchedule taint for closed to pods that do not "
            "tolerate it: while nodes are marked it keeps nodes that it could remove, and adds "
            "some",
            f"the API server serves {NODE_POOLS}; mark.taint is {taint}, which PREFERENCE_POLICY "
            "does not change",
            "write mark.taint: null, mark by the label, and set PREFERENCE_POLICY=Ignore",
        )


_CHECKS: Final[Chain[ClusterContext]] = (
    ("P0", metrics_server),
    ("N2", foreign_marks),  # nodes that somebody else's value keeps from being marked
    ("N2", orphaned_marks),  # marks that nobody will release
    ("N2", no_mark_allowed),  # a selector or a cap that allows none
    ("W1", few_react),
    ("K1", two_writers),
    ("K1", rights),
    ("K2", karpenter_and_taint),
    ("K4", affinity),
    ("K4", order),
)


async def check_cluster(context: ClusterContext) -> list[Finding | NotChecked]:
    """Raises nothing for what the server does: what fails is not checked, and the rest goes on."""
    return await run(_CHECKS, context)
