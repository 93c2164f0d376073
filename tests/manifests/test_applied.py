"""manifests/ on a real API server: they apply unchanged, and their permissions suffice.

charts/test_installed.py and e2e/ test what an installation does with the permissions of each part.
"""

import asyncio
import copy
import re
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import yaml
from cluster import NODES, EnvtestCluster
from envtest import Envtest, StartError
from manifest_support import (
    BASE,
    OVERLAYS,
    Kubectl,
    kustomize,
    shipped,
    templates,
    the,
)
from operator_support import until, write_rules
from programs import ROOT, run
from replica_support import marked, some_ticks
from scheduling_support import (
    PODS,
    dynsched,
    extended,
    make_pod,
)

from dynsched.util.formatting import format_time
from dynsched_sim.apiserver.objects import merge_patch
from dynsched_sim.examples import make_node

pytestmark = pytest.mark.slow

SECOND = "real-usage-scheduler"
ORDERS = "nodeorders.dynsched.io"
RULES = {"rules": [{"name": "cpu", "expr": "cpu", "threshold": 80}]}
HERE = ("--lease-namespace", "dynsched")
NOTES = {"dynsched.io/pressure": '{"label":"status=presure"}'}
MARK = {"metadata": {"labels": {"status": "presure"}, "annotations": NOTES}}


@pytest.fixture
async def cluster(envtest: Envtest, tmp_path: Path) -> AsyncIterator[EnvtestCluster]:
    async with EnvtestCluster(envtest, tmp_path) as form:
        yield form


@pytest.fixture
def kubectl(cluster: EnvtestCluster) -> Iterator[Kubectl]:
    with Kubectl(cluster.kubeconfig) as found:
        yield found


def applied(kubectl: Kubectl, folder: Path, account: str, namespace: str = "dynsched") -> str:
    """Apply the folder; return a token of its service account."""
    kubectl.apply("-k", folder)
    return kubectl.token(namespace, account)


async def pruned(*arguments: str | Path) -> list[str]:
    command = (sys.executable, "-m", "dynsched", *arguments, *HERE)
    done = await asyncio.to_thread(run, *command)
    assert done.returncode == 0, done.stderr
    return sorted(row.split()[1] for row in done.stdout.splitlines()[1:])


async def test_its_own_permissions_suffice_to_mark_post_events_and_prune(
    cluster, prometheus, kubectl, tmp_path
) -> None:
    token = applied(kubectl, BASE, "dynsched")
    kubeconfig = cluster.servers.kubeconfig(tmp_path / "kubeconfig-account", token)
    await cluster.create_nodes("hot", "cool")
    prometheus.set(cpu={"hot": 95, "cool": 10})
    how = {"kubeconfig": kubeconfig}
    async with dynsched(cluster, prometheus, tmp_path, RULES, *HERE, **how) as operator:
        await until(lambda: marked(cluster), "a node is marked")
        await until(lambda: cluster.list_events("hot"), "the Event")
        assert await operator.get("/status") == (200, "ok")
        assert await operator.stop() == 0
        assert "answered 403" not in operator.log
    assert await marked(cluster) == ["hot"]
    words = ("--kubeconfig", kubeconfig, "--rules", tmp_path / "rules.yaml")
    assert await pruned("prune", *words) == ["hot"]
    assert await marked(cluster) == []


async def test_the_order_alone_needs_no_permission_to_write_nodes(
    cluster, prometheus, kubectl, tmp_path
) -> None:
    kubectl.apply("-k", OVERLAYS / "order-only")
    token = kubectl.token("dynsched", "dynsched")
    kubeconfig = cluster.servers.kubeconfig(tmp_path / "kubeconfig-account", token)
    assert (await cluster.patch(f"{NODES}/none", {}, token=token)).status == 403
    await cluster.create_node(merge_patch(make_node("hot"), MARK))
    for name in ("cool", "cooler"):
        await cluster.create_node(make_node(name))
    shipped = yaml.safe_load((OVERLAYS / "order-only/rules.yaml").read_text())
    content = {**RULES, "mark": shipped["mark"], "order": {"score": {"cpu": 1}}}
    how = {"kubeconfig": kubeconfig}
    order = "/apis/dynsched.io/v1/namespaces/dynsched/nodeorders/dynsched"
    prometheus.set(cpu={"hot": 95, "cool": 20, "cooler": 10})
    async with dynsched(cluster, prometheus, tmp_path, content, *HERE, **how) as operator:

        async def listed() -> list[str]:
            found = (await cluster.get(order)).body.get("spec", {}).get("lists", {"": []})
            return [n for each in found[""] for level in each["levels"] for n in level["allBut"]]

        assert await until(listed, "the order") == ["hot"]
        await some_ticks(operator)
        assert await operator.get("/status") == (200, "ok")
        nodes = await operator.nodes()
        assert (nodes["type"], nodes["node_names"]) == ("Hot Nodes", ["hot"])
        assert await operator.stop() == 0
        assert "answered 403" not in operator.log
        assert "node hot: an older mark stays" in operator.log
    assert (await cluster.get(order)).status == 404
    assert await marked(cluster) == ["hot"]
    tried = [write.verb for write in await cluster.writes("nodes") if write.verb != "create"]
    assert tried == ["patch"]  # the test's own


async def test_the_roles_for_people_have_the_permissions_that_commands_need(
    cluster, prometheus, kubectl, tmp_path
) -> None:
    """Without the roles no command advises to apply manifests, which grant people nothing."""
    kubectl.apply("-k", shipped("kubectl"))
    kubectl("wait", "--for=condition=Established", "crd", ORDERS)
    path = cluster.servers.kubeconfig(tmp_path / "person", cluster.servers.stranger_token)
    file = write_rules(tmp_path, {**RULES, "order": {"score": {"cpu": 1}}})
    await cluster.create_node(merge_patch(make_node("hot"), MARK))
    _ = (await cluster.post(PODS, make_pod("one"))).ok
    orders = f"/apis/dynsched.io/v1/namespaces/dynsched/{ORDERS.partition('.')[0]}"
    spec = {"until": format_time(time.time()), "lists": {}}
    body = {"apiVersion": "dynsched.io/v1", "kind": "NodeOrder", "spec": spec}
    _ = (await cluster.post(orders, body | {"metadata": {"name": "dynsched"}})).ok

    async def called(command: str, *more: str | Path) -> tuple[int, str]:
        words = (sys.executable, "-m", "dynsched", command, *more, "--kubeconfig", path)
        done = await asyncio.to_thread(run, *words)
        return done.returncode, done.stdout + done.stderr

    prometheus.set(cpu={"hot": 95})
    asking = ("--prom", prometheus.url, "-r", file)
    code, output = await called("plan", *asking)
    assert (code, "docs/look.md has those for people" in output) == (1, True)
    assert "kubectl apply" not in output
    for kind, name in (("clusterrolebinding", "clusterrole"), ("rolebinding", "role")):
        role = (f"--{name}=dynsched-kubectl", "--user=stranger", "-n", "dynsched")
        kubectl("create", kind, "people", *role)
    for command in (("plan", *asking), ("order", "one", "-n", "default"), ("nodes",),
                    ("why", "hot"), ("doctor", *asking, "-o", "json")):  # fmt: skip
        code, output = await called(*command)
        assert "answered 403" not in output, command
        if command[0] in ("plan", "order"):
            assert code == 0, output
        elif command[0] != "doctor":
            assert "there is no Service dynsched" in output  # nothing makes its Endpoints here
    role = ("--clusterrole=dynsched-prune", "--user=stranger")
    kubectl("delete", "clusterrolebinding", "people")
    kubectl("create", "clusterrolebinding", "people", *role)
    code, output = await called("prune")
    assert (code, await marked(cluster), "answered 403" in output) == (0, [], False)
    assert (await cluster.get(f"{orders}/dynsched")).status == 404
    kubectl("delete", "clusterrolebinding", "people")


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["ha", "janitor", "descheduler", "extender", SECOND, "collector"])
async def test_each_namespace_admits_its_pods_and_none_with_more_privileges(
    cluster: EnvtestCluster, kubectl: Kubectl, name: str
) -> None:
    kubectl.apply("-k", shipped(name))

    async def create(namespace: str, spec: dict[str, object]) -> int:
        path = f"/api/v1/namespaces/{namespace}/pods"
        pod = {"metadata": {"name": "probe"}, "spec": spec}
        return (await cluster.post(path, pod, dryRun="All", fieldValidation="Strict")).status

    for template in templates(kustomize(shipped(name))).values():
        namespace, spec = template["metadata"]["namespace"], template["spec"]
        assert await create(namespace, spec) == 201
        careless = await create(namespace, copy.deepcopy(spec) | {"hostNetwork": True})
        assert careless == (201 if name == "collector" else 403)  # it mounts a folder of the host
    if name == "collector":
        kubectl.apply("-k", BASE)
        assert await create("dynsched", spec | {"serviceAccountName": "default"}) == 403


async def test_the_pod_settings_give_pods_a_cpu_limit_a_priority_and_credentials(
    cluster, kubectl
) -> None:
    folder, here = ROOT / "manifests/examples/pod-settings", "/api/v1/namespaces/dynsched"
    docs = kustomize(folder)
    kubectl("create", "priorityclass", "platform", "--value=1000")
    try:
        kubectl.apply("-k", folder)
        for name, pod in templates(docs).items():
            account = the(docs, "ServiceAccount", pod["spec"]["serviceAccountName"])
            assert account["imagePullSecrets"] == [{"name": "registry-credentials"}]
            body = merge_patch(pod, {"metadata": {"name": name}})
            spec = (await cluster.post(f"{here}/pods", body, dryRun="All")).ok["spec"]
            assert spec["containers"][0]["resources"]["limits"]["cpu"] == "1"
            assert spec["priority"] == (1000 if name == "dynsched" else 0)
    finally:
        kubectl("delete", "priorityclass", "platform")


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["extender", SECOND])
async def test_a_real_scheduler_accepts_the_configuration(
    name: str, cluster: EnvtestCluster
) -> None:
    """It decodes strictly. Only settings that depend on a control plane are replaced here."""
    servers, config = cluster.servers, extended(name, "127.0.0.1:1")
    (await asyncio.to_thread(servers.start_scheduler, config))()
    (extender,) = config["extenders"]
    if name == "extender":  # with the TLS part that is commented out
        text = (OVERLAYS / "extender/kubescheduler-config.yaml").read_text()
        tls = dict(re.findall(r"#   (serverName|caFile|certFile|keyFile): (\S+)", text))
        assert tls.keys() == {"serverName", "caFile", "certFile", "keyFile"}
        tls |= dict.fromkeys(("caFile", "certFile"), str(servers.ca_file))
        tls["keyFile"] = str(servers.ca_file.with_suffix(".key"))
        extender |= {"enableHTTPS": True, "urlPrefix": "https://127.0.0.1:1", "tlsConfig": tls}
        (await asyncio.to_thread(servers.start_scheduler, config))()
    extender["enableHttps"] = extender.pop("enableHTTPS")
    with pytest.raises(StartError, match="enableHttps"):
        await asyncio.to_thread(servers.start_scheduler, config)
