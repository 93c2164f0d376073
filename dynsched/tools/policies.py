"""The admission policies that give pods preferences: whether a cluster has those of this version,
and what a pod got from them. For `dynsched order` and the doctor.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from importlib import resources
from typing import Any, Final, NamedTuple

import yaml

from dynsched.features.order.resource import NODE_ORDERS, order_left
from dynsched.features.order.webhook import is_by_name
from dynsched.kube import inspection
from dynsched.kube.inspection import POLICIES, PREFERRED
from dynsched.kube.transport import KubeApi
from dynsched.rules import keys
from dynsched.rules.labels import LabelMark
from dynsched.util.errors import ExpectedError
from dynsched.util.formatting import as_mapping, as_mappings

HOME: Final = "dynsched"
"""The namespace of manifests/, where the policy of the order looks for its object."""
MOST_AHEAD: Final = 60.0
"""Seconds for which the policy takes an order to be in force."""
LABEL_IT: Final = f"kubectl label namespace NAME {keys.AVOID_LABEL}=true"
_ADMISSION: Final = "admissionregistration.k8s.io/v1"
_KIND: Final = "MutatingAdmissionPolicy"
_MIRROR: Final = "kubernetes.io/config.mirror"
_COOLEST: Final = 100
"""The weight with which an order begins."""
_SHIPPED_LABEL: Final = re.compile("'(status|presure)'")
_DEFAULTS: Final = {"matchPolicy": "Equivalent", "scope": "*"}
"""Values that the API server adds, apart from empty objects."""
_WEIGHT: Final = re.compile(r"dyn\(\d+\)")
"""The operator's own choice."""


class Problem(NamedTuple):
    """Why new pods do not get what a policy is to give them, and what to do."""

    what: str
    fix: str


NOT_SERVED: Final = Problem(
    f"the API server does not serve {POLICIES} in {_ADMISSION}",
    "use the component order-webhook (docs/order.md), or Kubernetes 1.36 or newer",
)


def install(part: str) -> str:
    """How a part of manifests/ is installed."""
    place = "manifests/base" if part == "order" else f"the component manifests/components/{part}"
    return f"apply {place} of this version (in the chart: {part}.enabled)"


async def order_problems(
    api: KubeApi, policies: Iterable[str] = (keys.HELD_POLICY, keys.ORDER_POLICY)
) -> list[Problem]:
    """Why pods do not get the order by these policies, or by the webhook where it is installed.
    Raises ClusterError.
    """
    webhook = await inspection.policy(api, inspection.WEBHOOKS, keys.ORDER_POLICY)
    if webhook is not None:
        return _webhook_problems(webhook)
    wanted, found, binding = _component("order"), list[Problem](), None
    for name in policies:
        policy, binding = await inspection.mutating_policy(api, name)
        if policy is None and POLICIES not in await inspection.resources(api, _ADMISSION):
            return [NOT_SERVED]
        found += _differences(wanted, name, policy, binding, install("order"))
    if NODE_ORDERS not in await inspection.resources(api, keys.ORDER_API):
        what = f"the definition {NODE_ORDERS}.dynsched.io is not installed"
        return [*found, Problem(what, install("order"))]
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


def _webhook_problems(webhook: Mapping[str, Any]) -> list[Problem]:
    clients = [as_mapping(each.get("clientConfig")) for each in as_mappings(webhook["webhooks"])]
    if all(client.get("caBundle") for client in clients):
        return []
    what = f"the webhook {keys.ORDER_POLICY} has no caBundle, so the API server trusts no answer"
    return [Problem(what, "see docs/order.md#the-certificate")]


async def affinity_problems(api: KubeApi, label: LabelMark | None) -> list[Problem] | None:
    """Why pods do not get the soft affinity that avoids ``label``; None where its policy is not
    installed. Raises ClusterError.
    """
    policy, binding = await inspection.mutating_policy(api, keys.AVOID_POLICY)
    if policy is None:
        return None
    if label is None:
        return []
    wanted = _component("inject", label)
    return _differences(wanted, keys.AVOID_POLICY, policy, binding, install("inject"))


def _component(name: str, label: LabelMark | None = None) -> list[Mapping[str, Any]]:
    """The objects of a component of manifests/, to which components/ has links; its policy avoids
    ``label``.
    """
    folder = resources.files(__package__).joinpath("components", name)
    names = yaml.safe_load(folder.joinpath("kustomization.yaml").read_bytes())["resources"]
    texts = (folder.joinpath(each).read_text(encoding="utf-8") for each in names)
    text = "---\n".join(texts)
    if label is not None:  # keys and values of labels have no quotes in them
        ours = {"status": label.key, "presure": label.value}
        text = _SHIPPED_LABEL.sub(lambda place: f"'{ours[place[1]]}'", text)
    return list(yaml.safe_load_all(text))


def _differences(
    wanted: Iterable[Mapping[str, Any]], name: str, policy: Any, binding: Any, fix: str
) -> list[Problem]:
    """Why the policy ``name`` does not do what the one in ``wanted`` would. ``policy``,
    ``binding``: as stored, or None. What the API server adds to them does not count, nor do the
    weight, and the namespace of the order.
    """
    ours = {each["kind"]: each for each in wanted if each["metadata"]["name"] == name}
    if policy is None:
        return [Problem(f"the policy {name} is not installed", fix)]
    found = []
    for stored, kind in ((policy, _KIND), (binding, f"{_KIND}Binding")):
        if stored is None:
            what = f"the policy {name} has no binding, so it applies to nothing"
            found.append(Problem(what, fix))
            continue
        if parts := _differing(ours[kind]["spec"], as_mapping(stored.get("spec"))):
            what = f"the {kind} {name} is not that of this version; it differs in "
            found.append(Problem(f"{what}{', '.join(parts)}", fix))
    return found


def _differing(wanted: Mapping[str, Any], stored: Mapping[str, Any]) -> list[str]:
    """The keys with another value than the API server makes of ``wanted``."""
    return [
        key
        for key in {**wanted, **stored}
        if key != "namespace"
        and not (
            _is_same(wanted[key], stored.get(key))
            if key in wanted
            else not stored[key] or stored[key] == _DEFAULTS.get(key)
        )
    ]


def _is_same(wanted: Any, stored: Any) -> bool:
    if isinstance(wanted, Mapping):
        return isinstance(stored, Mapping) and not _differing(wanted, stored)
    if isinstance(wanted, list):
        return (
            isinstance(stored, list)
            and len(stored) == len(wanted)
            and all(map(_is_same, wanted, stored))
        )
    return _words(wanted) == _words(stored)


def _words(value: Any) -> str:
    return _WEIGHT.sub("dyn()", " ".join(str(value).split()))


def _exemption(pod: Mapping[str, Any]) -> str | None:
    """Why the policies leave a pod as it is, whatever the namespace says."""
    metadata = as_mapping(pod.get("metadata"))
    labels, annotations = (as_mapping(metadata.get(part)) for part in ("labels", "annotations"))
    if "false" in (labels.get(keys.AVOID_LABEL), annotations.get(keys.AVOID_LABEL)):
        return f"it opted out by {keys.AVOID_LABEL}=false"
    if any(o.get("kind") == "DaemonSet" for o in as_mappings(metadata.get("ownerReferences"))):
        return "it belongs to a DaemonSet, which has a pod on every node"
    return "it is a static pod, which has a node already" if _MIRROR in annotations else None


async def pod_order(api: KubeApi, namespace: str, name: str) -> dict[str, Any]:
    """``level``: the number of the one that has the pod's node; ``why_not``: no order was given.
    Raises ClusterError, and ExpectedError where there is no such pod.
    """
    pod = await inspection.core(api, "pods", name, namespace)
    if pod is None:
        raise ExpectedError(f"there is no pod {name} in namespace {namespace}; choose it with -n")
    if not all(as_mapping(as_mapping(pod).get(part)) for part in ("metadata", "spec")):
        raise ExpectedError(f"{api.config.server} answered something that is no Pod; check its URL")
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
        return f"its namespace does not ask: {LABEL_IT.replace('NAME', metadata['namespace'])}"
    if pod["spec"].get("schedulingGates"):
        return "it is held by scheduling gates, and gets the order when the last of them goes"
    for what, fix in await order_problems(api, [keys.ORDER_POLICY]):
        return f"{what}: {fix}"
    return (
        f"when it was created ({metadata.get('creationTimestamp')}), or its last scheduling gate "
        "went, no order was in force, or all nodes were equally good, or its namespace did not ask "
        "yet, or it had a node from the start"
    )
