"""manifests/base on a real API server: it is taken as it is, and the permissions suffice."""

from __future__ import annotations

import asyncio
import copy
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml
from cluster import EnvtestCluster
from envtest import Envtest
from manifest_support import BASE, Kubectl
from operator_support import Operator, until, write_rules
from programs import run
from prometheus_support import RealPrometheus

from dynsched.sim.nodes import make_node

pytestmark = pytest.mark.slow

ACCOUNT = "system:serviceaccount:dynsched:dynsched"
# A load of 95 on the node `hot`, without anything to scrape.
HOT = 'label_replace(vector(95), "node", "hot", "", "")'


@pytest.fixture
async def applied(envtest: Envtest, tmp_path: Path) -> AsyncIterator[EnvtestCluster]:
    async with EnvtestCluster(envtest, tmp_path) as cluster:
        await asyncio.to_thread(Kubectl(cluster.kubeconfig), "apply", "-k", BASE)
        yield cluster


async def test_the_namespace_admits_the_pod_and_none_with_more_rights(
    applied: EnvtestCluster,
) -> None:
    deployment = yaml.safe_load((BASE / "deployment.yaml").read_text())
    pod = {"metadata": {"name": "probe"}, "spec": deployment["spec"]["template"]["spec"]}
    careless = copy.deepcopy(pod)
    del careless["spec"]["containers"][0]["securityContext"]["capabilities"]
    path = "/api/v1/namespaces/dynsched/pods"
    assert (await applied.post(path, pod, dryRun="All")).status == 201
    refused = await applied.post(path, careless, dryRun="All")
    assert refused.status == 403
    assert "PodSecurity" in refused.text


async def test_the_account_may_do_what_is_listed_and_no_more(applied: EnvtestCluster) -> None:
    kubectl = Kubectl(applied.kubeconfig)
    here = ("-n", "dynsched")
    yes = [
        *(("-A", verb, "nodes") for verb in ("get", "list", "watch", "patch")),
        *(("-A", verb, "pods") for verb in ("list", "watch")),
        *(("-A", verb, "events") for verb in ("create", "patch")),
        (*here, "create", "leases"),
        *((*here, verb, "leases/dynsched") for verb in ("get", "update")),
    ]
    no = [
        *(("-A", verb, "nodes") for verb in ("create", "update", "delete")),
        ("-A", "patch", "nodes", "--subresource=status"),
        ("-A", "get", "events"),
        ("-A", "get", "pods"),
        (*here, "get", "secrets"),
        (*here, "get", "leases/another"),
        ("-n", "kube-system", "create", "leases"),
        ("-n", "kube-system", "get", "leases/dynsched"),
    ]
    asked = await asyncio.gather(
        *(asyncio.to_thread(kubectl.may, ACCOUNT, *question) for question in [*yes, *no])
    )
    assert dict(zip([*yes, *no], asked, strict=True)) == {
        **dict.fromkeys(yes, True),
        **dict.fromkeys(no, False),
    }


@pytest.mark.parametrize(("verb", "allowed"), [("list", True), ("get", False), ("watch", False)])
async def test_the_account_may_list_what_metrics_server_measures(
    applied: EnvtestCluster, *, verb: str, allowed: bool
) -> None:
    # Not by kubectl, which knows only the APIs that are there.
    what = {"group": "metrics.k8s.io", "resource": "nodes", "verb": verb}
    review = {"spec": {"user": ACCOUNT, "resourceAttributes": what}}
    answer = await applied.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    assert answer.ok["status"]["allowed"] is allowed


async def test_with_its_rights_alone_it_marks_tells_and_prunes(
    applied: EnvtestCluster, envtest: Envtest, tmp_path: Path
) -> None:
    kubectl = Kubectl(applied.kubeconfig)
    token = await asyncio.to_thread(kubectl, "-n", "dynsched", "create", "token", "dynsched")
    kubeconfig = envtest.kubeconfig(tmp_path / "kubeconfig-account", token.strip())
    for number, name in enumerate(("hot", "cool")):
        await applied.create_node(make_node(name, number))
    rules = write_rules(tmp_path, {"rules": [{"name": "load", "expr": HOT, "threshold": 80}]})
    with RealPrometheus(tmp_path / "prometheus", []) as prometheus:
        flags = ("--kubeconfig", str(kubeconfig), "--prom", prometheus.url, "-r", str(rules))
        flags += ("--lease-namespace", "dynsched", "--interval", "0.5")
        async with Operator(tmp_path, "run", *flags) as operator:
            await operator.until_ready()
            await until(lambda: applied.list_nodes("status=presure"), "a node is marked")
            await until(lambda: applied.list_events("hot"), "the Event")
            assert await operator.get("/status") == (200, "ok")
            assert await operator.stop() == 0
            assert "answered 403" not in operator.log
    assert [n["metadata"]["name"] for n in await applied.list_nodes("status=presure")] == ["hot"]
    command = (sys.executable, "-m", "dynsched", "prune", "-o", "json")
    command += ("--lease-namespace", "dynsched")
    done = await asyncio.to_thread(run, *command, "--kubeconfig", kubeconfig, "--rules", rules)
    assert done.returncode == 0, done.stderr
    assert [patch["node"] for patch in json.loads(done.stdout)] == ["hot"]
    assert await applied.list_nodes("status=presure") == []
