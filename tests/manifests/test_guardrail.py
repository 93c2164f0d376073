"""manifests/components/guardrail on a real API server: what dynsched may write to a Node.

RBAC grants everything here, so that every refusal comes from the policy.
"""

import asyncio
import copy
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from cluster import JSON_PATCH, MERGE, NODES, STRATEGIC, Answer, EnvtestCluster
from envtest import Envtest
from manifest_support import OVERLAYS, Doc, Kubectl
from operator_support import until, write_rules
from programs import run
from replica_support import is_marked, replica

from dynsched.rules import keys
from dynsched_sim.apiserver.objects import merge_patch
from dynsched_sim.examples import make_node

pytestmark = pytest.mark.slow

ACCOUNT = "system:serviceaccount:dynsched:dynsched"
JANITOR = "system:serviceaccount:dynsched:dynsched-janitor"
OTHERS = ("system:serviceaccount:dynsched:another", "system:serviceaccount:other:dynsched", "ann")
DENIED = "ValidatingAdmissionPolicy 'dynsched-guardrail' with binding 'dynsched-guardrail' denied"
APPLY = "application/apply-patch+yaml"

NODE = "n"
PATH = f"{NODES}/{NODE}"
SOFT = {"key": "dynsched.io/pressure", "value": "true", "effect": "PreferNoSchedule"}
TEAM = {"key": "example.com/team", "value": "red", "effect": "NoSchedule"}
GONE = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
GONE |= {"timeAdded": "2026-01-01T00:00:00Z"}
MILD = {"key": "example.com/mild", "value": "1", "effect": "PreferNoSchedule"}
FOREIGN = [TEAM, GONE, MILD]
HARD, ELSE = SOFT | {"effect": "NoSchedule"}, MILD | {"key": "example.com/x"}
NO_TAINTS: Doc = {"spec": {"taints": None}}
CORDONED: Doc = {"spec": {"unschedulable": True}}
OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}
HELD = {"finalizers": ["example.com/x"], "ownerReferences": [OWNER]}
EVIDENCE = {"dynsched.io/pressure": "{}"}
NEARLY = "dynsched.io.example.com/a"

NO_LABEL = "dynsched may change no label of a node but its own mark: "
NO_ANNOTATION = "dynsched may change no annotation of a node but its own: "
NO_TAINT = "dynsched may change no taint of a node but its own soft ones"
NO_METADATA = "dynsched may change no metadata of a node but its mark: "
NO_SPEC = "dynsched may change nothing in the spec of a node but its taint: "
TOO_MUCH = "dynsched may write no more than its mark and a short evidence to a node: at most 16384"
NO_OTHER = "dynsched may only change its mark on a node: not create, delete or connect to nodes"


def labels(**changes: str | None) -> Doc:
    return {"metadata": {"labels": changes}}


def annotations(changes: dict[str, str | None]) -> Doc:
    return {"metadata": {"annotations": changes}}


def taints(*wanted: Doc) -> Doc:
    return {"spec": {"taints": list(wanted)}}


def both(*patches: Doc) -> Doc:
    whole: Doc = {}
    for patch in patches:
        whole = merge_patch(whole, patch)
    return whole


MARKED = both(labels(status="presure"), annotations(EVIDENCE), taints(*FOREIGN, SOFT))


class Case(NamedTuple):
    """``before``: a merge patch of the usual node, applied before its creation."""

    patch: Any
    before: Doc = {}  # noqa: RUF012 - never changed
    content_type: str = MERGE


APPLIED = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}}
ALLOWED = [
    Case(MARKED),
    Case(both(labels(status=None), annotations(dict.fromkeys(EVIDENCE)), taints(*FOREIGN)), MARKED),
    Case(annotations({"dynsched.io/note": "x" * 16_000})),
    Case(taints(SOFT, *FOREIGN)),
    Case(taints(SOFT), NO_TAINTS),
    Case(taints(*FOREIGN, SOFT | {"value": "2"}), MARKED),
    Case(NO_TAINTS, taints(SOFT)),
    Case(both(labels(status="presure"), taints(*FOREIGN, SOFT)), content_type=STRATEGIC),
    Case(both(APPLIED, labels(status="presure")), content_type=APPLY),
    # The API server ignores status here; writes to /status are refused.
    Case({"status": {"phase": "Running"}}),
]
REFUSED: dict[str, list[Case]] = {
    NO_LABEL + "status": [
        Case(labels(status="hot")), Case(labels(status="cool"), MARKED),
        Case(labels(status="presure"), labels(status="maintenance")),
        Case(labels(status="presure"), labels(status="")),
        Case(labels(status=None), labels(status="maintenance"))],
    NO_LABEL + "team": [
        Case(both(MARKED, labels(team="red"))),  # one bad part is enough
        Case(both(APPLIED, labels(team="red")), content_type=APPLY)],
    NO_LABEL + "zone": [Case(labels(zone="b", status="presure"), labels(zone="a")),
                        Case(labels(zone=None), labels(zone="a"))],
    NO_LABEL + "dynsched.io/ignore": [Case(labels(**{"dynsched.io/ignore": "true"}))],
    NO_LABEL: [Case({"metadata": {"labels": None}})],
    NO_ANNOTATION + "a": [Case(annotations({"a": "1"})),
                          Case(annotations({"a": "2"}), annotations({"a": "1"})),
                          Case(annotations({"a": None}), annotations({"a": "1"}))],
    NO_ANNOTATION + NEARLY: [Case(annotations({NEARLY: "1"}))],
    NO_TAINT: [
        # our key with a hard effect: added, in place of the soft one, and taken away
        Case(taints(*FOREIGN, HARD)), Case(taints(*FOREIGN, HARD), MARKED),
        Case(taints(*FOREIGN), taints(*FOREIGN, HARD)),
        # others' taints: added, dropped, replaced, changed, in another order
        Case(taints(*FOREIGN, ELSE)), Case(taints(TEAM, GONE)), Case(NO_TAINTS),
        Case(both(MARKED, taints(TEAM, GONE, SOFT))), Case(taints(TEAM, GONE, ELSE)),
        Case(taints(SOFT), content_type=STRATEGIC),  # it replaces the list
        Case([{"op": "remove", "path": "/spec/taints/0"}], content_type=JSON_PATCH),
        Case(taints(TEAM | {"value": "blue"}, GONE, MILD)),
        Case(taints(TEAM | {"effect": "NoExecute"}, GONE, MILD)),
        Case(taints(TEAM, GONE | {"timeAdded": None}, MILD)),
        Case(taints(GONE, TEAM, MILD))],
    NO_SPEC + "unschedulable": [Case(both(MARKED, CORDONED)),
                                Case({"spec": {"unschedulable": None}}, CORDONED)],
    NO_SPEC + "providerID": [Case({"spec": {"providerID": "a://b"}})],
    TOO_MUCH: [
        Case(annotations({f"dynsched.io/{n}": "x" * 160 for n in range(110)})),
        Case(taints(*FOREIGN, *(SOFT | {"key": f"dynsched.io/{n}"} for n in range(5))))],
    **{NO_METADATA + key: [Case({"metadata": {key: value}})] for key, value in HELD.items()},
}  # fmt: skip


def usual(before: Doc | None = None) -> Doc:
    found: Doc = merge_patch(make_node(NODE), {"spec": {"taints": FOREIGN}})
    return merge_patch(found, before or {})


RBAC = "rbac.authorization.k8s.io"
META = {"apiVersion": f"{RBAC}/v1", "metadata": {"name": "guardrail-test"}}
RULE = {"apiGroups": [""], "resources": ["nodes", "nodes/status", "nodes/proxy"], "verbs": ["*"]}
USERS = [{"apiGroup": RBAC, "kind": "User", "name": user} for user in (ACCOUNT, JANITOR, *OTHERS)]
ROLE = {"apiGroup": RBAC, "kind": "ClusterRole", "name": "guardrail-test"}
WIDE = [
    META | {"kind": "ClusterRole", "rules": [RULE]},
    META | {"kind": "ClusterRoleBinding", "roleRef": ROLE, "subjects": USERS},
]


@pytest.fixture(scope="module")
def policy(envtest: Envtest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    folder = tmp_path_factory.mktemp("guardrail")
    with Kubectl(envtest.kubeconfig(folder / "kubeconfig")) as kubectl:
        kubectl.apply("-k", OVERLAYS / "guardrail")
        kubectl.apply(docs=WIDE)
        yield kubectl


@pytest.fixture
async def cluster(policy, envtest, tmp_path) -> AsyncIterator[EnvtestCluster]:
    async with EnvtestCluster(envtest, tmp_path) as form:
        await until(lambda: _refuses(form), "the policy is in force")
        yield form


async def _refuses(cluster: EnvtestCluster) -> bool:
    """The API server needs a moment to load a new policy."""
    answer = await ask(cluster, "POST", NODES, make_node("probe"), dryRun="All")
    return answer.status == 403 and DENIED in answer.text


async def ask(
    cluster: EnvtestCluster, method: str, path: str, body: Any = None, *, user: str = ACCOUNT,
    **params: Any,
) -> Answer:  # fmt: skip
    headers = {"Impersonate-User": user}
    return await cluster.request(method, path, body, headers=headers, **params)


async def patch(cluster: EnvtestCluster, case: Case) -> Answer:
    more = {"force": "true"} if case.content_type == APPLY else {}
    more |= {"content_type": case.content_type, "fieldManager": "dynsched"}
    return await ask(cluster, "PATCH", PATH, case.patch, **more)


def without_ours(node: Doc) -> Doc:
    """A node without the parts that dynsched may write and those that every write changes."""
    rest = copy.deepcopy(node)
    meta, spec = rest["metadata"], rest["spec"]
    del meta["resourceVersion"], meta["managedFields"]
    if meta["labels"].get("status") == "presure":
        del meta["labels"]["status"]
    notes = meta.get("annotations", {}).items()
    meta["annotations"] = {k: text for k, text in notes if not k.startswith("dynsched.io/")}
    spec["taints"] = [taint for taint in spec.get("taints", []) if taint["key"] != SOFT["key"]]
    return rest


async def test_dynsched_may_write_its_own_mark(cluster: EnvtestCluster) -> None:
    for case in ALLOWED:
        before = await cluster.create_node(usual(case.before))
        answer = await patch(cluster, case)
        assert answer.status == 200, (case, answer.text)
        assert without_ours(await cluster.get_node(NODE)) == without_ours(before), case
        if case.content_type == MERGE and case.patch and "status" not in case.patch:
            wanted = merge_patch(before, case.patch)
            for part in ("metadata", "spec"):
                for key in case.patch.get(part, {}):
                    assert answer.body[part].get(key) == wanted[part].get(key), case
        await cluster.delete_node(NODE)


async def test_dynsched_must_not_write_anything_else(cluster: EnvtestCluster) -> None:
    for reason, case in ((reason, case) for reason, cases in REFUSED.items() for case in cases):
        before = await cluster.create_node(usual(case.before))
        answer = await patch(cluster, case)
        assert (answer.status, DENIED in answer.text) == (403, True), case
        assert reason in answer.body["message"], case
        assert await cluster.get_node(NODE) == before, case
        await cluster.delete_node(NODE)


async def test_dynsched_must_not_write_status_or_create_or_delete_nodes(
    cluster: EnvtestCluster,
) -> None:
    node = await cluster.create_node(usual())
    for method, path, body in (
        ("PATCH", f"{PATH}/status", {"status": {"phase": "Running"}}),
        ("PATCH", f"{PATH}/status", labels(status="presure")),
        ("PUT", f"{PATH}/status", node),
        ("POST", NODES, make_node("new")),
        ("DELETE", PATH, None),
        ("DELETE", NODES, None),
        ("GET", f"{PATH}/proxy/metrics", None),
    ):
        answer = await ask(cluster, method, path, body)
        assert (answer.status, NO_OTHER in answer.text) == (403, True), answer.text
    assert [item["metadata"]["name"] for item in await cluster.list_nodes()] == [NODE]
    assert await cluster.get_node(NODE) == node


async def test_the_policy_applies_to_updates_and_the_janitor_too(cluster: EnvtestCluster) -> None:
    node = await cluster.create_node(usual())
    for method, body, user, reason in (
        ("PUT", merge_patch(node, both(MARKED, labels(team="red"))), ACCOUNT, NO_LABEL + "team"),
        ("PUT", merge_patch(node, MARKED), ACCOUNT, ""),
        ("PATCH", {"spec": {"unschedulable": True}}, JANITOR, NO_SPEC),
        ("PATCH", labels(status=None), JANITOR, ""),
    ):
        answer = await ask(cluster, method, PATH, body, user=user)
        assert answer.status == (403 if reason else 200)
        assert reason in answer.body.get("message", "")


@pytest.mark.parametrize("user", OTHERS)
async def test_the_policy_applies_to_nobody_else(cluster: EnvtestCluster, user: str) -> None:
    await cluster.create_node(usual())
    change = both(labels(status="hot", team="red"), {"spec": {"unschedulable": True}}, taints(TEAM))
    status = {"status": {"phase": "Running"}}
    for method, path, body in ("PATCH", PATH, change), ("PATCH", f"{PATH}/status", status):
        assert (await ask(cluster, method, path, body, user=user)).status == 200
    assert (await ask(cluster, "DELETE", PATH, user=user)).status == 200


def rules_of(mark: Doc, threshold: int = 80) -> Doc:
    return {"mark": mark, "rules": [{"name": "load", "expr": "load", "threshold": threshold}]}


TAINT = "dynsched.io/pressure=true:PreferNoSchedule"
LABEL_AND_TAINT = {"label": keys.DEFAULT_LABEL, "taint": TAINT}


@pytest.fixture
async def account(cluster: EnvtestCluster, policy: Kubectl, tmp_path: Path) -> Path:
    """Create four nodes; return a kubeconfig with a token of the service account."""
    token = await asyncio.to_thread(policy.token, "dynsched", "dynsched")
    for number, name in enumerate(("hot", "cool")):
        await cluster.create_node(merge_patch(make_node(name, number), taints(*FOREIGN)))
    for number, name in enumerate(("open-1", "open-2"), 2):
        await cluster.create_node(make_node(name, number))
    return cluster.servers.kubeconfig(tmp_path / "kubeconfig-account", token)


async def test_marking_releasing_and_pruning_pass_the_policy(
    cluster, prometheus, account, tmp_path
) -> None:
    before = {name: await cluster.get_node(name) for name in ("hot", "cool")}
    how = {"kubeconfig": account, "content": rules_of(LABEL_AND_TAINT)}
    prometheus.set(load={"hot": 95})
    async with replica(cluster, prometheus, tmp_path, *HERE, **how) as operator:
        await until(lambda: is_marked(cluster, "hot"), "it is marked")
        hot = await cluster.get_node("hot")
        assert hot["spec"]["taints"] == [*FOREIGN, SOFT]
        assert without_ours(hot) == without_ours(before["hot"])

        write_rules(tmp_path, rules_of(LABEL_AND_TAINT, threshold=99))
        await until(lambda: is_marked(cluster), "it is released")
        assert await all_as(cluster, before)
        assert await operator.get("/status") == (200, "ok")

        rules = write_rules(tmp_path, rules_of(LABEL_AND_TAINT))
        await until(lambda: is_marked(cluster, "hot"), "it is marked again")
        assert await operator.stop() == 0
    command = (sys.executable, "-m", "dynsched", "prune", *HERE)
    done = await asyncio.to_thread(run, *command, "--kubeconfig", account, "--rules", rules)
    assert done.returncode == 0, done.stderr
    assert await all_as(cluster, before)


HERE = ("--lease-namespace", "dynsched")


async def all_as(cluster: EnvtestCluster, before: dict[str, Doc]) -> bool:
    """Whether the nodes are unchanged except for resourceVersion and managedFields."""
    own = {"metadata": {"resourceVersion": None, "managedFields": None}}
    now = [merge_patch(await cluster.get_node(name), own) for name in before]
    return now == [merge_patch(node, own) for node in before.values()]


async def test_a_mark_that_the_policy_does_not_name_is_refused_and_reported(
    cluster: EnvtestCluster, prometheus, account: Path, tmp_path: Path
) -> None:
    how = {"kubeconfig": account, "content": rules_of({"label": "team=red"})}
    prometheus.set(load={"hot": 95})
    async with replica(cluster, prometheus, tmp_path, *HERE, **how) as operator:
        await operator.until_ready()
        status, text = await operator.get("/status")
    assert (status, "dynsched-guardrail" in text) == (503, True)
    assert "kubectl auth can-i" not in text  # the reason is not RBAC
    assert await cluster.list_nodes("team=red") == []
