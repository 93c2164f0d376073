"""Installations by Helm and kubectl on API servers with policies and, as before 1.36, without.

The process has the permissions, the rules and the certificate of the installation.
"""

import asyncio
import base64
import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from cluster import EnvtestCluster
from fake_prometheus import FakePrometheus
from helm_support import CHART, TAINT, Config, HelmError, everything, helm, uninstall
from manifest_support import (
    BASE,
    OPERATOR_KINDS,
    Doc,
    Kubectl,
    commands,
    custom_resource,
    make_namespace,
    shipped,
)
from operator_support import Operator, until
from order_cases import until_told
from programs import ROOT, run
from prometheus_support import free_port
from replica_support import marked, some_ticks

from dynsched.rules import keys

pytestmark = pytest.mark.thorough

NAMESPACE, SHOP = "dynsched", "shop"
LOADS = {"hot": 95.0, "n0": 50.0, "n1": 60.0}
RULES = yaml.safe_load((ROOT / "rules.yaml").read_text())["rules"]
KINDS = ["envtest", "before_136"]


@pytest.fixture(params=KINDS)
async def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[EnvtestCluster]:
    async with EnvtestCluster(request.getfixturevalue(request.param), tmp_path) as form:
        await form.create_nodes(*LOADS)
        with Kubectl(form.kubeconfig) as kubectl:
            kubectl.apply(docs=[make_namespace(SHOP, **{keys.AVOID_LABEL: "true"})])
            yield form


@asynccontextmanager
async def running(cluster: EnvtestCluster, folder: Path) -> AsyncIterator[Operator]:
    """The process of the Deployment, with the ConfigMap's rules and the account's token.

    Without policies the Service leads to its webhook.
    """
    kubectl, servers, port = Kubectl(cluster.kubeconfig), cluster.servers, free_port()

    def there(kind: str, name: str) -> dict[str, str]:
        found: dict[str, str] = json.loads(
            kubectl("-n", NAMESPACE, "get", kind, name, "-o", "json")
        )["data"]
        return found

    rules = folder / "rules-in-force.yaml"
    rules.write_text(there("configmap", "dynsched-rules")["rules.yaml"])
    token = kubectl.token(NAMESPACE, "dynsched")
    flags = ["--kubeconfig", str(servers.kubeconfig(folder / "account", token)), "-r", str(rules)]
    flags += ["--lease-namespace", NAMESPACE, "--interval", "0.5"]
    if not await serves_policies(cluster):
        pair = there("secret", "dynsched-order-webhook")
        for name in ("tls.crt", "tls.key"):
            (folder / name).write_bytes(base64.b64decode(pair[name]))
        flags += ["--webhook-cert-dir", str(folder), "--webhook-addr", f"127.0.0.1:{port}"]
        place = {"type": "ExternalName", "externalName": "localhost", "clusterIP": None}
        body = {"spec": place | {"ports": [{"name": "webhook", "port": port}]}}
        service = ("service", "dynsched", "-p", json.dumps(body), "--type=merge")
        kubectl("-n", NAMESPACE, "patch", *service)
        body = [{"op": "replace", "path": "/webhooks/0/clientConfig/service/port", "value": port}]
        webhook = ("mutatingwebhookconfiguration", "dynsched-order", "-p", json.dumps(body))
        kubectl("patch", *webhook, "--type=json")
    async with FakePrometheus() as prometheus:
        prometheus.set(3600, **{rule["expr"]: LOADS for rule in RULES})
        async with Operator(folder, "run", *flags, "--prom", prometheus.url) as operator:
            await operator.until_ready()
            yield operator


async def serves_policies(cluster: EnvtestCluster) -> bool:
    path = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies"
    return (await cluster.get(path)).status == 200


def certificates(kubectl: Kubectl) -> list[Any]:
    """The webhook's Secret and client configuration; empty if the chart made neither."""
    kinds, ours = "secrets,mutatingwebhookconfigurations", "app.kubernetes.io/name=dynsched"
    words = ("-n", NAMESPACE, "get", kinds, "-l", ours, "-o", "json")
    found = json.loads(kubectl(*words))["items"]
    return [each.get("data") or each["webhooks"][0]["clientConfig"] for each in found]


async def test_the_chart_gives_pods_the_order_and_its_removal_removes_all_marks(
    cluster, tmp_path
) -> None:
    """The uninstall hook runs while dynsched is still running."""
    kubectl = Kubectl(cluster.kubeconfig)
    with Config(kubeconfig_path=cluster.kubeconfig, namespace=NAMESPACE) as config:
        await asyncio.to_thread(config.install, CHART, "dynsched", {}, create_namespace=True)
        try:
            before = certificates(kubectl)
            assert len(before) == (0 if await serves_policies(cluster) else 2)
            await asyncio.to_thread(config.upgrade, CHART, "dynsched", {"logFormat": "text"})
            assert certificates(kubectl) == before
            async with running(cluster, tmp_path) as operator:
                await until_told(cluster, [["n0"], ["n1"]], "what pods get", SHOP)
                await until(lambda: marked(cluster), "a node is marked")
                assert await operator.get("/status") == (200, "ok")
                await asyncio.to_thread(uninstall, config, kubectl, cluster.servers, tmp_path)
                assert await marked(cluster) == []
                await some_ticks(operator)
                assert await marked(cluster) == []
            await until_told(cluster, None, "what pods get", SHOP)
            kinds = "deployments,jobs,serviceaccounts,services"
            left = kubectl(
                "-n", NAMESPACE, "get", kinds, "-l", "app.kubernetes.io/name", "-o", "name"
            )
            assert left == ""
            for node in await cluster.list_nodes():
                assert not [key for key in node["metadata"].get("annotations", ()) if "dyns" in key]
        finally:
            for _ in config.list():
                await asyncio.to_thread(uninstall, config, kubectl)


async def test_kubectl_apply_gives_pods_the_order(cluster, tmp_path) -> None:
    """Before 1.36 the base alone only marks nodes; pods get the order from order-webhook."""
    folder, account = BASE, f"--kubeconfig={cluster.kubeconfig}"
    if not await serves_policies(cluster):
        done = await asyncio.to_thread(run, "kubectl", account, "apply", "-k", BASE)
        missing = [line for line in done.stderr.splitlines() if "no matches for kind" in line]
        assert (done.returncode, len(missing)) == (1, 4), done.stderr
        assert all('"MutatingAdmissionPolicy' in line for line in missing)
        assert "deployment.apps/dynsched" in done.stdout
        folder = shipped("order-webhook")
    with Kubectl(cluster.kubeconfig) as kubectl:
        kubectl.apply("-k", folder)
        if folder != BASE:
            script = commands("docs/order.md", "openssl")
            with_it = f"KUBECONFIG={cluster.kubeconfig}"
            words = ("env", with_it, "bash", "-euo", "pipefail", "-c", script)
            done = await asyncio.to_thread(run, *words, cwd=tmp_path)
            assert done.returncode == 0, done.stderr
            kubectl.apply("-k", folder)  # an upgrade, which keeps the certificate
        async with running(cluster, tmp_path) as operator:
            await until_told(cluster, [["n0"], ["n1"]], "what pods get", SHOP)
            await until(lambda: marked(cluster), "a node is marked")
            assert "answered 403" not in operator.log
            # This and `kubectl delete -k` remove dynsched.
            words = ("-m", "dynsched", "prune", "--take-lease", account)
            done = await asyncio.to_thread(run, sys.executable, *words)
            assert done.returncode == 0, done.stderr
            await some_ticks(operator)
            assert await marked(cluster) == []


def names(docs: list[Doc]) -> set[str]:
    return {f"{doc['kind']}/{doc['metadata']['name']}" for doc in docs}


@pytest.mark.parametrize("cluster", KINDS[:1], indirect=True)
async def test_install_upgrade_downgrade_and_uninstall_leave_exactly_the_right_objects(
    cluster,
) -> None:
    base, full = helm(), helm(everything())
    kinds = ",".join({doc["kind"] for doc in full})
    operators = {"PodMonitor": "podmonitors", "PrometheusRule": "prometheusrules"}
    assert operators.keys() == OPERATOR_KINDS
    with (
        Kubectl(cluster.kubeconfig) as kubectl,
        Config(kubeconfig_path=cluster.kubeconfig, namespace=NAMESPACE) as config,
    ):
        kubectl.apply(
            docs=[custom_resource(*each, "monitoring.coreos.com") for each in operators.items()]
        )
        kubectl("wait", "--for=condition=Established", "crd", "--all")
        steps: list[tuple[Callable[[], object], list[Doc]]] = [
            (lambda: config.install(CHART, "dynsched", {}, create_namespace=True), base),
            (lambda: config.upgrade(CHART, "dynsched", everything()), full),
            (lambda: config.upgrade(CHART, "dynsched", {}, reset_values=True), base),
            (lambda: uninstall(config, kubectl), []),
        ]
        try:
            for step, expected in steps:
                await asyncio.to_thread(step)
                kubectl.finish_namespaces()
                there = json.loads(kubectl("get", kinds, "-A", "-o", "json"))["items"]
                assert names(there) & names(full) == names(expected)
        finally:
            for _ in config.list():
                await asyncio.to_thread(uninstall, config, kubectl)


@pytest.mark.parametrize("cluster", KINDS[:1], indirect=True)
async def test_a_taint_is_refused_in_a_cluster_with_karpenter_unless_forced(cluster) -> None:
    karpenter, taint = custom_resource("NodePool", "nodepools", "karpenter.sh"), {"taint": TAINT}
    with (
        Kubectl(cluster.kubeconfig) as kubectl,
        Config(kubeconfig_path=cluster.kubeconfig, namespace=NAMESPACE) as config,
    ):
        kubectl.apply(docs=[karpenter])
        kubectl("wait", "--for=condition=Established", "crd", "--all")
        how = {"create_namespace": True, "dry_run": "server"}
        for values in ({}, {"mark": taint | {"force": True}}):
            config.install(CHART, "dynsched", values, **how)
        with pytest.raises(HelmError, match=r"this cluster has Karpenter.*mark\.force=true"):
            config.install(CHART, "dynsched", {"mark": taint}, **how)


@pytest.mark.parametrize("cluster", KINDS[:1], indirect=True)
async def test_an_upgrade_keeps_the_replicas_of_kubectl_scale(cluster) -> None:
    """With server-side apply, Helm 4's default, a field that Helm has set and somebody else has
    changed is a conflict.
    """
    kubectl, there = Kubectl(cluster.kubeconfig), ("-n", NAMESPACE)
    replicas = (*there, "get", "deploy", "dynsched", "-o", "jsonpath={.spec.replicas}")
    scale = (*there, "scale", "deploy", "dynsched")
    with Config(kubeconfig_path=cluster.kubeconfig, namespace=NAMESPACE) as config:
        try:
            config.install(CHART, "dynsched", {}, create_namespace=True)
            assert kubectl(*replicas) == "1"
            for number in ("0", "2"):
                kubectl(*scale, f"--replicas={number}")
                config.upgrade(CHART, "dynsched", {"interval": 20 + int(number)})
                assert kubectl(*replicas) == number
            config.upgrade(CHART, "dynsched", {"replicas": 2})
            kubectl(*scale, "--replicas=3")
            with pytest.raises(HelmError, match=r"conflict"):
                config.upgrade(CHART, "dynsched", {"replicas": 2, "interval": 30})
        finally:
            for _ in config.list(all_states=True):
                await asyncio.to_thread(uninstall, config, kubectl)
