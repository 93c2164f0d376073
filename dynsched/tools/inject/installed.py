"""What a cluster has of the admission policies, and a pod of what they give: for `inject --check`,
`order` and the doctor.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import yaml
from rich.console import Console

from dynsched.engine.wording import counted
from dynsched.kube import inspection
from dynsched.kube.client import open_client
from dynsched.kube.inspection import POLICIES, PREFERRED
from dynsched.kube.node_order import NODE_ORDERS, order_left
from dynsched.kube.transport import KubeApi
from dynsched.rules import keys
from dynsched.rules.labels import LabelMark
from dynsched.rules.rule_set import RuleSet
from dynsched.tools.inject.policy import (
    HOME,
    INSTALL,
    MOST_AHEAD,
    Problem,
    differences,
    levels_in,
    order_text,
    policy_objects,
    wanted_by,
)
from dynsched.util.errors import ExpectedError
from dynsched.util.formatting import as_mapping, as_mappings
from dynsched.util.tables import make_table, show

_ADMISSION: Final = "admissionregistration.k8s.io/v1"
_MIRROR: Final = "kubernetes.io/config.mirror"
NOT_SERVED: Final = Problem(
    f"the API server does not serve {POLICIES} in {_ADMISSION}",
    "use Kubernetes 1.36, or what docs/order.md says of older clusters",
)
LABEL_IT: Final = f"kubectl label namespace NAME {keys.AVOID_LABEL}=true"


class Standing(StrEnum):
    AVOIDS = "avoids"
    """It prefers other nodes."""
    EXEMPT = "exempt"
    """It is not to have the preference: a policy leaves it alone, or it has a preference of its own
    about the label."""
    LACKS = "lacks"
    """It would get the preference if it were created now."""


def exemption(pod: Mapping[str, Any]) -> str | None:
    """Why the policies leave a pod as it is, whatever the namespace says."""
    metadata = as_mapping(pod.get("metadata"))
    labels, annotations = (as_mapping(metadata.get(part)) for part in ("labels", "annotations"))
    if "false" in (labels.get(keys.AVOID_LABEL), annotations.get(keys.AVOID_LABEL)):
        return f"it opted out by {keys.AVOID_LABEL}=false"
    if any(o.get("kind") == "DaemonSet" for o in as_mappings(metadata.get("ownerReferences"))):
        return "it belongs to a DaemonSet, which has a pod on every node"
    return "it is a static pod, which has a node already" if _MIRROR in annotations else None


def preferences(pod: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The terms of its soft node affinity."""
    affinity = as_mapping(as_mapping(pod.get("spec")).get("affinity"))
    return as_mappings(as_mapping(affinity.get("nodeAffinity")).get(PREFERRED))


def standing(pod: Mapping[str, Any], mark: LabelMark) -> Standing:
    """What the policy would say of a pod; a test compares the two on a real API server."""
    own = [e for term in preferences(pod) for e in wanted_by(term) if e.get("key") == mark.key]
    if any(e.get("operator") == "NotIn" and mark.value in (e.get("values") or ()) for e in own):
        return Standing.AVOIDS
    return Standing.EXEMPT if own or exemption(pod) else Standing.LACKS


async def order_problems(
    api: KubeApi, policies: Iterable[str] = (keys.HELD_POLICY, keys.ORDER_POLICY)
) -> list[Problem]:
    """Why pods do not get the order by these policies. Raises ClusterError."""
    wanted, found = list(yaml.safe_load_all(order_text())), list[Problem]()
    for name in policies:
        policy, binding = await inspection.mutating_policy(api, name)
        if policy is None and await inspection.is_in_kyverno(api, name):
            continue
        if policy is None and not await _is_served(api):
            return [NOT_SERVED]
        found += differences(wanted, name, policy, binding)
    if NODE_ORDERS not in await inspection.resources(api, keys.ORDER_API):
        what = f"the definition {NODE_ORDERS}.dynsched.io is not installed"
        return [*found, Problem(what, INSTALL)]
    reads = as_mapping(binding["spec"].get("paramRef")) if binding else {}
    namespace = reads.get("namespace", HOME)
    left = await order_left(api, namespace)
    if left is None or not 0 < left <= MOST_AHEAD:
        state = "is not there" if left is None else "has ended"
        if left is not None and left > 0:
            state = "is not by the API server's clock: it would be in force for more than a minute"
        what = f"the object {NODE_ORDERS}/{keys.ORDER_NAME} in namespace {namespace} {state}"
        fix = f"run dynsched with a section order and --lease-namespace {namespace}, or see its log"
        found.append(Problem(what, fix))
    return found


async def _is_served(api: KubeApi) -> bool:
    return POLICIES in await inspection.resources(api, _ADMISSION)


async def pod_told(api: KubeApi, namespace: str, name: str) -> dict[str, Any]:
    """``level``: the number of the one that has the pod's node; ``why_not``: no order was given.
    Raises ClusterError, and ExpectedError where there is no such pod.
    """
    pod = await inspection.core(api, "pods", name, namespace)
    if pod is None:
        raise ExpectedError(f"there is no pod {name} in namespace {namespace}; choose it with -n")
    until = as_mapping(pod["metadata"].get("annotations")).get(keys.ORDER_ANNOTATION)
    node, terms = pod["spec"].get("nodeName"), preferences(pod) if until else []
    levels = [
        {"weight": terms[at]["weight"], "nodes": wanted_by(terms[at])[0].get("values") or []}
        for at in levels_in(terms)
    ]
    return {
        "namespace": namespace,
        "pod": name,
        "until": until,
        "levels": levels,
        "node": node,
        "level": next((n for n, level in enumerate(levels, 1) if node in level["nodes"]), None),
        "why_not": None if until else await _why_not(api, pod),
    }


async def _why_not(api: KubeApi, pod: Mapping[str, Any]) -> str:
    if why := exemption(pod):
        return why
    metadata = pod["metadata"]
    namespace = await inspection.core(api, "namespaces", metadata["namespace"])
    asks = as_mapping(namespace["metadata"].get("labels")).get(keys.AVOID_LABEL)
    if asks != "true":
        return f"its namespace does not ask: {LABEL_IT.replace('NAME', metadata['namespace'])}"
    if pod["spec"].get("schedulingGates"):
        return "it is held by scheduling gates, and gets the order when the last of them goes"
    for what, fix in await order_problems(api, [keys.ORDER_POLICY]):
        return f"{what}: {fix}"
    return (
        f"when it was created ({metadata.get('creationTimestamp')}), or its last scheduling gate "
        "went, no order was in force, or its namespace did not ask yet, or it had a node from the "
        "start"
    )


def render_told(told: Mapping[str, Any], console: Console) -> None:
    name, node = f"{told['namespace']}/{told['pod']}", told["node"]
    if told["why_not"]:
        show(console, f"{name} did not get the order: {told['why_not']}")
        return
    went = f"it went to {node}, which is in no level" if node else "it has no node yet"
    if told["level"]:
        went = f"it went to {node}, of level {told['level']}"
    show(console, f"{name} got the order that was in force until {told['until']}; {went}.")
    rows = (
        (str(number), str(level["weight"]), ", ".join(level["nodes"]))
        for number, level in enumerate(told["levels"], 1)
    )
    show(console, make_table(("LEVEL", "WEIGHT", "NODE"), rows))


async def _avoided(api: KubeApi, rule_set: RuleSet) -> tuple[LabelMark | None, Iterable[Problem]]:
    """The label that new pods are to avoid by the soft affinity, and why they do not; None: none.
    Raises ClusterError.
    """
    label = rule_set.mark.label
    if label is None:
        return None, ()
    policy, binding = await inspection.mutating_policy(api, keys.AVOID_POLICY)
    if policy is None and await inspection.is_in_kyverno(api, keys.AVOID_POLICY):
        return label, ()
    if policy is None and rule_set.order is not None:
        return None, ()  # the order alone is as good
    if policy is None and not await _is_served(api):
        return label, [NOT_SERVED]
    return label, differences(policy_objects(label), keys.AVOID_POLICY, policy, binding)


async def check_policies(
    rule_set: RuleSet, kubeconfig: Path | None, context: str | None
) -> dict[str, Any]:
    """What `inject --check` finds."""
    namespaces = []
    async with open_client(kubeconfig, context) as api:
        found = [] if rule_set.order is None else await order_problems(api)
        label, of_label = await _avoided(api, rule_set)
        if label is not None:
            for name in await inspection.namespaces_that_ask(api):
                pods = inspection.running_pods(api, name)
                count = Counter([standing(pod, label) async for pod in pods])
                namespaces.append({"name": name} | {str(each): count[each] for each in Standing})
    problems = [f"{what}: {fix}" for what, fix in (*found, *of_label)]
    return {
        "label": label and str(label),
        "policy": {"ok": not problems, "problems": problems},
        "namespaces": namespaces,
    }


def render_check(told: Mapping[str, Any], console: Console) -> None:
    """Without its problems."""
    if told["label"] is None:
        if told["policy"]["ok"]:
            show(console, "new pods get the order, and no soft affinity against the mark")
        return
    if not told["namespaces"]:
        show(console, f"no namespace asks for it: {LABEL_IT}")
    titles = ("NAMESPACE", f"AVOID {told['label']}", "EXEMPT", "LACK IT")
    show(console, make_table(titles, (map(str, each.values()) for each in told["namespaces"])))
    if lacking := sum(each[Standing.LACKS] for each in told["namespaces"]):
        rest = f"{counted(lacking, 'running pod')} lack{'s' if lacking == 1 else ''} it"
        again = "until created anew: kubectl -n NAMESPACE rollout restart deployment"
        show(console, f"{rest} {again}")
