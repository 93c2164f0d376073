"""Pods and the preferences that the order gives them, the same from policies and webhook."""

from collections.abc import Mapping
from typing import Any

from cluster import Cluster
from operator_support import until
from scheduling_support import make_pod

from dynsched.features.order.ranks import Order
from dynsched.features.order.tiers import NodeList, PreferenceTier
from dynsched.rules import keys

SET = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u"}
OWNED = {"ownerReferences": [SET | {"kind": "ReplicaSet"}]}
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def _to(*nodes: str) -> tuple[NodeList, ...]:
    """Lists of one tier with one node each."""
    return tuple((PreferenceTier(100, (node,)),) for node in nodes)


POOLS = Order(
    {"": _to("n0"), "a": _to("n1"), "b": _to("n2")},
    {"": _to("n3", "n4"), "b": _to("n5")},
    "pool",
)
LEVELS = Order({"": ((PreferenceTier(100, ("n0",)), PreferenceTier(4, ("n1",))),)})
EQUAL = Order({"": ((),)})
"""All nodes are equally good, so pods get no preference."""
ALL_BUT = Order({"": ((PreferenceTier(100, ("n0", "n1"), True), PreferenceTier(62, ("n1",))),)})
MINE = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["mine"]}
OWN = {PREFERRED: [{"weight": 1, "preference": {"matchExpressions": [MINE]}}]}
SAYS_NO = {keys.AVOID_LABEL: "false"}
GETS: dict[str, tuple[dict[str, Any], dict[str, Any], list[str] | None]] = {
    # Metadata and spec of a ReplicaSet's pod, and the nodes of its levels according to POOLS.
    "any": ({}, {}, ["n0"]),
    "its pool": ({}, {"nodeSelector": {"pool": "a"}}, ["n1"]),
    "a pool without a list": ({}, {"nodeSelector": {"pool": "c"}}, ["n0"]),
    "an affinity of its own": ({}, {"affinity": {"nodeAffinity": OWN}}, ["mine", "n0"]),
    "annotations of its own": ({"annotations": {"a": "b"}}, {}, ["n0"]),
    "opted out by the label": ({"labels": SAYS_NO}, {}, None),
    "by the annotation": ({"annotations": SAYS_NO}, {}, None),
    "of a DaemonSet": ({"ownerReferences": [SET]}, {}, None),
    "of a StatefulSet": ({"ownerReferences": [SET | {"kind": "StatefulSet"}]}, {}, ["n0"]),
    "with a node": ({}, {"nodeName": "n1"}, None),
    "held by a gate": ({}, {"schedulingGates": [{"name": "example.com/quota"}]}, None),
    "of a group of Kueue's": ({"labels": {"kueue.x-k8s.io/pod-group-name": "g"}}, {}, None),
}
SPREAD = {"whenUnsatisfiable": "ScheduleAnyway", "maxSkew": 1, "labelSelector": {}}
BY_HOST = {"topologySpreadConstraints": [SPREAD | {"topologyKey": "kubernetes.io/hostname"}]}
BY_ZONE = {"topologySpreadConstraints": [SPREAD | {"topologyKey": "zone"}]}
JOB = {"ownerReferences": [SET | {"apiVersion": "batch/v1", "kind": "Job"}]}
OF_KUBEVIRT = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance"}
VM = {"ownerReferences": [SET | OF_KUBEVIRT | {"controller": True}]}
BURSTS: list[tuple[dict[str, Any], dict[str, Any], set[str]]] = [
    # Metadata and spec, and the nodes of which each pod gets one at random, according to POOLS.
    ({"ownerReferences": []}, {}, {"n0", "n3", "n4"}),
    (JOB, {}, {"n0", "n3", "n4"}),
    (JOB, BY_HOST, {"n0"}),
    (JOB, BY_ZONE, {"n0", "n3", "n4"}),
    (VM, {}, {"n0", "n3", "n4"}),
    (OWNED, {}, {"n0"}),
    (OWNED, BY_ZONE, {"n0", "n3", "n4"}),
    (JOB, {"nodeSelector": {"pool": "a"}}, {"n1"}),
    (JOB, {"nodeSelector": {"pool": "b"}}, {"n2", "n5"}),
    (JOB, {"nodeSelector": {"pool": "c"}}, {"n0", "n3", "n4"}),
]


def term(weight: int, key: str, *values: str) -> dict[str, Any]:
    wanted = {"key": key, "operator": "In", "values": [*values]}
    return {"weight": weight, "preference": {"matchExpressions": [wanted]}}


GATES = [{"name": "example.com/quota"}, {"name": "example.com/licence"}]
HOST = keys.HOSTNAME_LABEL
BEFORE = [term(3, HOST, "mine"), term(100, HOST, "mine"), term(7, "zone", "a")]
OLD = [term(100, HOST, "old", "older"), term(52, HOST, "oldest")]
AFTER = [term(9, "disk", "ssd")]
NEW = [term(100, HOST, "n0"), term(4, HOST, "n1")]
GOT = {"annotations": {keys.ORDER_ANNOTATION: "2026-11-23T05:00:28Z"}}
"""The annotation of a pod that got the order before another webhook added gates to it."""
RELEASED: dict[str, tuple[dict[str, Any], list[dict[str, Any]], list[dict[str, Any]]]] = {
    # Metadata and preferences of a gated pod, and its preferences after release, with LEVELS.
    "no-order": ({}, [], NEW),
    "own-terms": ({}, BEFORE + OLD, BEFORE + OLD + NEW),
    "an-old-order": (GOT, OLD, NEW),
    "both": (GOT, BEFORE + OLD + AFTER, BEFORE + AFTER + NEW),
    "annotated": (GOT, [term(7, HOST, "mine")], [term(7, HOST, "mine"), *NEW]),
    "opted-out": (GOT | {"labels": SAYS_NO}, BEFORE + OLD, BEFORE + OLD),
}


def preferring(name: str, metadata: Any, terms: list[Any], **more: Any) -> dict[str, Any]:
    pod = make_pod(name, **more)
    pod["metadata"] |= metadata
    pod["spec"] |= {"affinity": {"nodeAffinity": {PREFERRED: terms}}} if terms else {}
    return pod


def own_and_order(pod: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The pod's preferences, without the soft affinity."""
    terms = pod["spec"].get("affinity", {}).get("nodeAffinity", {}).get(PREFERRED, ())
    return [each for each in terms if "'status'" not in str(each)]


async def told(cluster: Cluster, namespace: str = "default") -> list[list[str]] | None:
    """The nodes per level that a new pod of a ReplicaSet would get; None if it is unchanged."""
    pod = make_pod("probe")
    pod["metadata"] |= OWNED
    path = f"/api/v1/namespaces/{namespace}/pods"
    made = (await cluster.post(path, pod, dryRun="All")).ok
    levels = [each["preference"]["matchExpressions"][0]["values"] for each in own_and_order(made)]
    assert (keys.ORDER_ANNOTATION in made["metadata"].get("annotations", {})) is bool(levels)
    return levels or None


async def until_told(
    cluster: Cluster, want: list[list[str]] | None, why: str, namespace: str = "default"
) -> None:
    """Wait until new pods get these nodes per level."""

    async def matches() -> bool:
        return await told(cluster, namespace) == want

    await until(matches, why)
