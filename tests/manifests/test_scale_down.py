"""manifests/components/scale-down on a real API server: what dynsched may write to a pod.

RBAC is the component's own, so that what is refused is refused by its policy.
"""

from collections.abc import AsyncIterator, Iterator
from typing import Any, NamedTuple

import pytest
from cluster import JSON_PATCH, MERGE, STRATEGIC, Answer, EnvtestCluster
from envtest import Envtest
from manifest_support import BASE, COMPONENTS, Doc, Kubectl, beside, overlay
from operator_support import until
from pods_support import PODS, create, pod

from dynsched.rules.keys import COST_ANNOTATION, DELETION_COST
from dynsched_sim.apiserver.objects import merge_patch

pytestmark = pytest.mark.slow

ACCOUNT = "system:serviceaccount:dynsched:dynsched"
JANITOR = "system:serviceaccount:dynsched:dynsched-janitor"
PATH = f"{PODS}/p"
DENIED = "ValidatingAdmissionPolicy 'dynsched-scale-down' with binding 'dynsched-scale-down' denied"
OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u", "controller": True}
HELD = {"finalizers": ["example.com/x"], "ownerReferences": [OWNER]}


def notes(cost: str | None = None, own: str | None = None, **more: str | None) -> Doc:
    return {"metadata": {"annotations": {DELETION_COST: cost, COST_ANNOTATION: own, **more}}}


def given(spec: Doc | None = None, **metadata: Any) -> Doc:
    """A cost, and more that is wrong: one bad part is enough."""
    return {"metadata": notes("-5", "-5")["metadata"] | metadata, "spec": spec or {}}


class Case(NamedTuple):
    """``before``: a merge patch on the usual pod, made by somebody else before it is created."""

    patch: Any
    before: Doc = {}  # noqa: RUF012 - never changed
    content_type: str = MERGE


NO_NOTE = "dynsched may change no annotation of a pod but its deletion cost"
FOREIGN = "dynsched may not change a deletion cost that somebody else set"
NO_COST = "dynsched may set no deletion cost but -1 to -999, and says that it did"
NO_METADATA = "dynsched may change no metadata of a pod but its deletion cost"
NO_SPEC = "dynsched may change nothing in the spec of a pod"
ESCAPED = DELETION_COST.replace("/", "~1")
THEIRS = {"metadata": {"annotations": {DELETION_COST: "7"}}}
CHANGED = notes("7", "-5")
ALLOWED = [
    Case({}),
    Case(notes("-5", "-5")),
    Case(notes("-5", "-5"), content_type=STRATEGIC),
    Case(notes(), notes("-5", "-5")),
    Case({"metadata": {"annotations": {COST_ANNOTATION: None}}}, CHANGED),
]
REFUSED: dict[str, list[Case]] = {
    NO_NOTE: [
        Case(notes("-5", "-5", team="b")), Case(notes("-5", "-5", team=None)),
        Case(notes("-5", "-5", other="x")), Case({"metadata": {"annotations": None}}),
        Case({"metadata": {"annotations": {"dynsched.io/order": "x"}}})],
    FOREIGN: [
        Case(notes("-5", "-5"), THEIRS), Case(notes(), THEIRS), Case(notes(), CHANGED),
        Case([{"op": "remove", "path": f"/metadata/annotations/{ESCAPED}"}], THEIRS, JSON_PATCH)],
    NO_COST: [Case(notes("5", "5")), Case(notes("-5", "-6")), Case(notes("-5")),
              Case(notes("-1000", "-1000")), Case(notes("-05", "-05"))],
    NO_METADATA: [
        Case(given(labels={"a": "b"})), Case(given(labels=None)),
        *(Case(given(**{key: value})) for key, value in HELD.items()),
        *(Case(given(**{key: None}), {"metadata": {key: HELD[key]}}) for key in HELD)],
    NO_SPEC: [
        Case(given(spec={"activeDeadlineSeconds": 5})),
        Case([{"op": "add", "path": "/spec/tolerations/-", "value": {"operator": "Exists"}}],
             content_type=JSON_PATCH),
        Case([{"op": "replace", "path": "/spec/containers/0/image", "value": "x"}],
             content_type=JSON_PATCH)],
}  # fmt: skip


@pytest.fixture(scope="module")
def policy(envtest: Envtest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    folder = tmp_path_factory.mktemp("scale-down")
    kubectl = Kubectl(envtest.kubeconfig(folder / "kubeconfig"))
    folder /= "overlay"
    parts = {"resources": beside(folder, BASE)}
    parts |= {"components": beside(folder, COMPONENTS / "scale-down")}
    kubectl("apply", "-k", overlay(folder, **parts))
    yield kubectl
    kubectl("delete", "-f", COMPONENTS / "scale-down/policy.yaml")


@pytest.fixture
async def cluster(policy, envtest, tmp_path) -> AsyncIterator[EnvtestCluster]:
    async with EnvtestCluster(envtest, tmp_path) as form:
        await make(form)
        await until(lambda: _refuses(form), "the policy is in force")
        await remove(form)
        yield form


async def _refuses(cluster: EnvtestCluster) -> bool:
    probe = Case({"metadata": {"labels": {"a": "b"}}})
    return DENIED in (await patch(cluster, probe, dryRun="All")).text


async def make(cluster: EnvtestCluster, before: Doc | None = None) -> Doc:
    usual = merge_patch(
        pod("p"), {"metadata": {"labels": {"app": "p"}, "annotations": {"team": "a"}}}
    )
    return await create(cluster, merge_patch(usual, before or {}))


async def remove(cluster: EnvtestCluster) -> None:
    await cluster.patch(PATH, {"metadata": {"finalizers": None}})
    _ = (await cluster.delete(PATH, gracePeriodSeconds=0)).ok


async def patch(cluster: EnvtestCluster, case: Case, user: str = ACCOUNT, **params: str) -> Answer:
    more = {"content_type": case.content_type, "headers": {"Impersonate-User": user}}
    return await cluster.request("PATCH", PATH, case.patch, **more, **params)


async def test_its_own_cost_it_may_write(cluster: EnvtestCluster) -> None:
    for case in ALLOWED:
        for user in (ACCOUNT, JANITOR):
            before = await make(cluster, case.before)
            answer = await patch(cluster, case, user)
            assert answer.status == 200, (case, answer.text)
            assert answer.ok["spec"] == before["spec"]
            assert answer.ok["metadata"]["annotations"]["team"] == "a"
            await remove(cluster)


async def test_anything_else_it_may_not(cluster: EnvtestCluster) -> None:
    for told, case in ((told, case) for told, cases in REFUSED.items() for case in cases):
        before = await make(cluster, case.before)
        answer = await patch(cluster, case)
        assert (answer.status, DENIED in answer.text) == (403, True), (case, answer.text)
        assert told in answer.body["message"], case
        assert (await cluster.get(PATH)).ok == before, case
        await remove(cluster)


async def test_no_other_right_comes_with_it(cluster: EnvtestCluster) -> None:
    found = await make(cluster)
    headers = {"Impersonate-User": ACCOUNT}
    for method, path, body in (
        ("PUT", PATH, found),
        ("DELETE", PATH, None),
        ("PATCH", f"{PATH}/status", {"status": {"phase": "Failed"}}),
        ("POST", f"{PATH}/eviction", {"metadata": {"name": "p"}}),
    ):
        answer = await cluster.request(method, path, body, headers=headers)
        assert answer.status == 403, (method, path)
    assert (await cluster.get(PATH)).ok == found


async def test_nobody_else_is_held_to_anything(cluster: EnvtestCluster) -> None:
    await make(cluster, notes("-5", "-5"))
    assert (await cluster.patch(PATH, notes("5", "-5", team="b"))).status == 200


async def test_the_largest_pods_are_within_the_cost_limit(cluster: EnvtestCluster) -> None:
    """The API server gives an expression a budget of steps, and refuses what goes over it."""
    container = pod("p")["spec"]["containers"][0]
    large = {
        "metadata": {
            "labels": {f"example.com/label-{n}": "x" * 63 for n in range(200)},
            "annotations": {f"example.com/note-{n}": "x" * 2_000 for n in range(100)},
        },
        "spec": {
            "containers": [
                container
                | {
                    "name": f"c{n}",
                    "env": [{"name": f"E{m}", "value": "x" * 100} for m in range(100)],
                }
                for n in range(50)
            ]
        },
    }
    await make(cluster, large)
    answer = await patch(cluster, Case(notes("-5", "-5")))
    assert answer.status == 200, answer.text
    answer = await patch(cluster, Case({"spec": {"activeDeadlineSeconds": 5}}))
    assert NO_SPEC in answer.body["message"]
