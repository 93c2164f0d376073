"""Checks of the admission policies that give pods preferences: whether a cluster has them, and what
a pod got from them. For `dynsched order` and the doctor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from dynsched.features.order.resource import NODE_ORDERS, order_left
from dynsched.features.order.webhook import PREFERRED, is_by_name
from dynsched.kube import inspection
from dynsched.kube.inspection import POLICIES
from dynsched.kube.transport import KubeApi
from dynsched.rules import keys
from dynsched.rules.labels import LabelMark
from dynsched.util.errors import ExpectedError
from dynsched.util.formatting import as_mapping, as_mappings

HOME: Final = "dynsched"
"""The namespace in manifests/, in which the order's policy looks for the NodeOrder."""
MOST_AHEAD: Final = 60.0
"""The policy ignores an order that would be in force for more than this many seconds."""
LABEL_IT: Final = f"kubectl label namespace NAME {keys.AVOID_LABEL}=true"
_ADMISSION: Final = "admissionregistration.k8s.io/v1"
_MIRROR: Final = "kubernetes.io/config.mirror"
_COOLEST: Final = 100
"""The weight of an order's first level."""


class Problem(NamedTuple):
    """Why new pods do not get the preferences of a policy, and what to do."""

    what: str
    fix: str


NOT_SERVED: Final = Problem(
    f"the API server does not serve {POLICIES} in {_ADMISSION}",
    "use the component order-webhook (docs/order.md), or Kubernetes 1.36 or newer",
)


def install(part: str) -> str:
    """How to install a part of manifests/."""
    place = "manifests/base" if part == "order" else f"the component manifests/components/{part}"
    return f"apply {place} (in the chart: {part}.enabled)"


async def order_problems(
    api: KubeApi, policies: Iterable[str] = (keys.HELD_POLICY, keys.ORDER_POLICY)
) -> list[Problem]:
    """Why pods do not get the order from these policies, or from the webhook if it is installed.
    Raises ClusterError.
    """
    webhook = await inspection.policy(api, inspection.WEBHOOKS, keys.ORDER_POLICY)
    if webhook is not None:
        return _webhook_problems(webhook)
    found, binding = list[Problem](), None
    for name in policies:
        policy, binding = await inspection.mutating_policy(api, name)
        if policy is None and POLICIES not in await inspection.resources(api, _ADMISSION):
            return [NOT_SERVED]
        found += _not_installed(name, policy, binding, install("order"))
    if NODE_ORDERS not in await inspection.resources(api, keys.ORDER_API):
        what = f"the definition {NODE_ORDERS}.dynsched.io is not installed"
        return [*found, Problem(what, install("order"))]
    reads = as_mapping(binding["spec"].get("paramRef")) if binding else {}
    namespace = reads.get("namespace", HOME)
    left = await order_left(api, namespace)
    if left is None or not 0 < left <= MOST_AHEAD:
        state = "is not there" if left is None else "has ended"
        if left is not None and left > 0:
            state = (
                "is ahead of the API server's clock: it would be in force for more than a minute"
            )
        what = f"the object {NODE_ORDERS}/{keys.ORDER_NAME} in namespace {namespace} {state}"
        fix = f"run dynsched with a section order and --lease-namespace {namespace}, or see its log"
        found.append(Problem(what, fix))
    return found


def _webhook_problems(webhook: Mapping[str, Any]) -> list[Problem]:
    clients = [as_mapping(each.get("clientConfig")) for each in as_mappings(webhook["webhooks"])]
    if all(client.get("caBundle") for client in clients):
        return []
    what = f"the webhook {keys.ORDER_POLICY} has no caBundle, so the API server trusts no answer"
    return [Problem(what, "see docs/order.md#the-certificate")]


async def affinity_problems(api: KubeApi, label: LabelMark | None) -> list[Problem] | None:
    """Why pods do not get the soft affinity that avoids ``label``; None if its policy is not
    installed. Raises ClusterError.
    """
    policy, binding = await inspection.mutating_policy(api, keys.AVOID_POLICY)
    if policy is None:
        return None
    found = _not_installed(keys.AVOID_POLICY, policy, binding, install("inject"))
    variables = as_mappings(as_mapping(policy.get("spec")).get("variables"))
    text = " ".join(str(each.get("expression")) for each in variables)
    if label is not None and not (f"'{label.key}'" in text and f"'{label.value}'" in text):
        what = f"the policy {keys.AVOID_POLICY} does not name mark.label, {label}"
        found.append(Problem(what, "write its key and value into the policy (docs/order.md)"))
    return found


def _not_installed(name: str, policy: Any, binding: Any, fix: str) -> list[Problem]:
    if policy is None:
        return [Problem(f"the policy {name} is not installed", fix)]
    if binding is None:
        return [Problem(f"the policy {name} has no binding, so it applies to nothing", fix)]
    return []


def _exemption(pod: Mapping[str, Any]) -> str | None:
    """Why the policies never change this pod, whatever its namespace; None if they may."""
    metadata = as_mapping(pod.get("metadata"))
    labels, annotations = (as_mapping(metadata.get(part)) for part in ("labels", "annotations"))
    if "false" in (labels.get(keys.AVOID_LABEL), annotations.get(keys.AVOID_LABEL)):
        return f"it opted out with {keys.AVOID_LABEL}=false"
    if any(o.get("kind") == "DaemonSet" for o in as_mappings(metadata.get("ownerReferences"))):
        return "it belongs to a DaemonSet, which has a pod on every node"
    return "it is a static pod, which has a node already" if _MIRROR in annotations else None


async def pod_order(api: KubeApi, namespace: str, name: str) -> dict[str, Any]:
    """The order that a pod got, as JSON. ``level``: the number of the level that has the pod's
    node; ``why_not``: why the pod got no order.

    Raises ClusterError, and ExpectedError if there is no such pod.
    """
    pod = await inspection.core(api, "pods", name, namespace)
    if pod is None:
        raise ExpectedError(f"namespace {namespace} has no pod {name}; set its namespace with -n")
    if not all(as_mapping(as_mapping(pod).get(part)) for part in ("metadata", "spec")):
        raise ExpectedError(
            f"{api.config.server} answered something that is not a Pod; check its URL"
        )
    until = as_mapping(pod["metadata"].get("annotations")).get(keys.ORDER_ANNOTATION)
    node, levels = pod["spec"].get("nodeName"), _levels_of(pod) if until else []
    return {
        "namespace": namespace,
        "pod": name,
        "until": until,
        "levels": levels,
        "node": node,
        "level": next((n for n, each in enumerate(levels, 1) if _prefers(each, node)), None),
        "why_not": None if until else await _why_not(api, pod),
    }


def _prefers(level: Mapping[str, Any], node: str | None) -> bool:
    return node is not None and (node in level["nodes"]) != level["all_but"]


def _levels_of(pod: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The preferences that the order's policy appended to the pod's own."""
    affinity = as_mapping(as_mapping(pod["spec"].get("affinity")).get("nodeAffinity"))
    found: list[dict[str, Any]] = []
    for term in as_mappings(affinity.get(PREFERRED)):
        wanted = as_mappings(as_mapping(term.get("preference")).get("matchExpressions"))
        if is_by_name(wanted):
            level = {
                "weight": term["weight"],
                "nodes": wanted[0].get("values") or [],
                "all_but": wanted[0]["operator"] == "NotIn",
            }
            found = [level] if level["weight"] == _COOLEST else [*found, level]
    return found


async def _why_not(api: KubeApi, pod: Mapping[str, Any]) -> str:
    if why := _exemption(pod):
        return why
    metadata = pod["metadata"]
    namespace = await inspection.core(api, "namespaces", metadata["namespace"])
    labels = as_mapping(as_mapping(namespace).get("metadata")).get("labels")
    asks = as_mapping(labels).get(keys.AVOID_LABEL)
    if asks != "true":
        return f"its namespace lacks the label: {LABEL_IT.replace('NAME', metadata['namespace'])}"
    if pod["spec"].get("schedulingGates"):
        return "it is held by scheduling gates, and gets the order when the last one is removed"
    for what, fix in await order_problems(api, [keys.ORDER_POLICY]):
        return f"{what}: {fix}"
    return (
        f"when it was created ({metadata.get('creationTimestamp')}) or its last scheduling gate "
        "was removed, no order was in force, or all nodes were equally good, or its namespace did "
        "not have the label yet, or it already had a node"
    )
