"""manifests/components/inject on a real API server: what a pod gets, and what stays unchanged."""

import asyncio
import copy
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any, NamedTuple

import pytest
from api_support import api_of
from cluster import Answer, EnvtestCluster
from envtest import Envtest
from manifest_support import COMPONENTS, Doc, Kubectl, make_namespace
from operator_support import until

from dynsched.rules.labels import parse_label
from dynsched.tools.policies import affinity_problems
from dynsched_sim.apiserver.objects import merge_patch

pytestmark = pytest.mark.slow

ASKING, OTHER = "inject-asking", "inject-other"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
KEY = "dynsched.io/avoid-pressure"


def term(key: str, operator: str, *values: str, weight: int = 100) -> Doc:
    expression = {"key": key, "operator": operator} | ({"values": list(values)} if values else {})
    return {"weight": weight, "preference": {"matchExpressions": [expression]}}


OURS = term("status", "NotIn", "presure")
SSD = term("disk", "In", "ssd", weight=7)
NAMED = [{"key": "metadata.name", "operator": "In", "values": ["status"]}]
FIELDS = {"weight": 3, "preference": {"matchFields": NAMED}}
NEEDED = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "status", "operator": "Exists"}]}]}
AWAY = {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "kubernetes.io/hostname"}
APART = {PREFERRED: [{"weight": 50, "podAffinityTerm": AWAY}]}
POD: Doc = {
    "metadata": {"name": "probe", "labels": {"app": "x", "status": "presure"},
                 "annotations": {"example.com/note": "a 'quoted' text"}},
    "spec": {
        "containers": [{
            "name": "c",
            "image": "example.com/image:1",
            "resources": {"requests": {"cpu": "0.5", "memory": "64Mi"}},
            "volumeMounts": [{"name": "v", "mountPath": "/v"}],
        }],
        "volumes": [{"name": "v", "emptyDir": {}}],
        "tolerations": [{"key": "a", "operator": "Exists", "effect": "NoSchedule"}],
    },
}  # fmt: skip


DAEMON_SET: Doc = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "o", "uid": "u"}
DAEMON_SET |= {"controller": True}


def affinity(**parts: Any) -> Doc:
    return {"spec": {"affinity": parts}}


def preferring(*terms: Doc) -> Doc:
    return affinity(nodeAffinity={PREFERRED: list(terms)})


class Case(NamedTuple):
    name: str
    pod: Doc
    """A merge patch of POD."""
    want: Doc | None = None
    """The affinity that the pod gets; None if it stays unchanged."""


ADDED = {"nodeAffinity": {PREFERRED: [OURS]}}
SEVERAL = [SSD, FIELDS, term("zone", "Exists")]
STATE = term("state", "NotIn", "presure")
OTHERS = {"podAntiAffinity": APART, "podAffinity": APART}
GIVEN = [
    Case("no affinity", {}, ADDED),
    Case("an empty affinity", affinity(), ADDED),
    Case("no node affinity", affinity(podAntiAffinity=APART), {"podAntiAffinity": APART, **ADDED}),
    Case("an empty node affinity", affinity(nodeAffinity={}), ADDED),
    Case("a required part alone", affinity(nodeAffinity={REQUIRED: NEEDED}),
         {"nodeAffinity": {REQUIRED: NEEDED, PREFERRED: [OURS]}}),
    Case("an empty list", preferring(), ADDED),
    Case("a list of several", preferring(*SEVERAL),
         {"nodeAffinity": {PREFERRED: [*SEVERAL, OURS]}}),
    Case("all kinds", affinity(**OTHERS, nodeAffinity={REQUIRED: NEEDED, PREFERRED: [SSD]}),
         {**OTHERS, "nodeAffinity": {REQUIRED: NEEDED, PREFERRED: [SSD, OURS]}}),
    Case("the label says true", {"metadata": {"labels": {KEY: "true"}}}, ADDED),
    Case("no labels or annotations", {"metadata": {"labels": None, "annotations": None}}, ADDED),
    Case("the value of the mark at another key", preferring(STATE),
         {"nodeAffinity": {PREFERRED: [STATE, OURS]}}),
]  # fmt: skip
BOTH_KEYS = term("zone", "Exists", weight=1)
AND = term("status", "NotIn", "a", "presure")["preference"]
BOTH_KEYS["preference"]["matchExpressions"] += AND["matchExpressions"]
SAYS_NO: Doc = {"metadata": {"annotations": {KEY: "false"}}}
LEFT_ALONE = [
    Case("opted out by the label", {"metadata": {"labels": {KEY: "false"}}}),
    Case("opted out by the annotation", SAYS_NO),
    Case("a pod of a DaemonSet", {"metadata": {"ownerReferences": [DAEMON_SET]}}),
    Case("the preference itself", preferring(OURS)),
    Case("another preference about the key", preferring(term("status", "In", "presure"))),
    Case("one that needs the key absent", preferring(term("status", "DoesNotExist"))),
    Case("the key in the second expression of a term", preferring(BOTH_KEYS)),
    Case("a pod that has a node", {"spec": {"nodeName": "n"}}),  # created with a node, not running
]


@pytest.fixture(scope="module")
def policy(envtest: Envtest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    folder = tmp_path_factory.mktemp("inject")
    with Kubectl(envtest.kubeconfig(folder / "kubeconfig")) as kubectl:
        kubectl.apply(docs=[make_namespace(ASKING, **{KEY: "true"}), make_namespace(OTHER)])
        kubectl.apply("-k", COMPONENTS / "inject")
        yield kubectl


@pytest.fixture
async def cluster(policy, envtest, tmp_path) -> AsyncIterator[EnvtestCluster]:
    async with EnvtestCluster(envtest, tmp_path) as form:
        await until(lambda: _applies(form), "the policy is in force")
        yield form


async def _applies(cluster: EnvtestCluster) -> bool:
    """The API server needs a moment to load a new policy and a namespace's label."""
    return "affinity" in (await create(cluster, POD)).ok["spec"]


async def create(
    cluster: EnvtestCluster, pod: Doc, namespace: str = ASKING, **params: str
) -> Answer:
    params = {"dryRun": "All", "fieldValidation": "Strict"} | params
    return await cluster.post(f"/api/v1/namespaces/{namespace}/pods", pod, **params)


def comparable(pod: Doc) -> str:
    """The pod as text, without its identity and managedFields."""
    rest = copy.deepcopy(pod)
    for key in ("uid", "creationTimestamp", "namespace", "managedFields", "resourceVersion"):
        rest["metadata"].pop(key, None)
    return json.dumps(rest, sort_keys=True)


async def test_a_pod_gets_the_preference_and_everything_else_stays(cluster: EnvtestCluster) -> None:
    for case in (*GIVEN, *LEFT_ALONE):
        pod = merge_patch(POD, case.pod)
        want = (await create(cluster, pod, OTHER)).ok  # in a namespace without the label
        if case.want is not None:
            want["spec"]["affinity"] = case.want
        assert comparable((await create(cluster, pod)).ok) == comparable(want), case.name


async def test_an_update_of_a_pod_is_not_changed(cluster: EnvtestCluster) -> None:
    path = f"/api/v1/namespaces/{ASKING}/pods"
    before = (await cluster.post(path, merge_patch(POD, SAYS_NO))).ok
    patch = {"metadata": {"annotations": {KEY: None}}}
    assert (await cluster.patch(f"{path}/probe", patch)).ok["spec"] == before["spec"]
    await cluster.delete(f"{path}/probe", gracePeriodSeconds=0)


async def test_doctor_finds_a_policy_with_another_label_or_without_a_binding(
    cluster: EnvtestCluster, policy: Kubectl
) -> None:
    async def parts(label: str = "status=presure") -> list[str]:
        async with api_of(cluster.kubeconfig) as api:
            found = await affinity_problems(api, parse_label(label))
        assert found is not None
        return [what.rpartition(" ")[2] for what, _ in found]

    assert await parts() == []
    assert await parts("status=hot") == ["status=hot"]
    policy("delete", "mutatingadmissionpolicybinding", "dynsched-avoid-pressure")
    try:
        assert await parts() == ["nothing"]
    finally:
        await asyncio.to_thread(policy, "apply", "-k", COMPONENTS / "inject")
