"""manifests/overlays on a real API server: what it admits, and the janitor with its own rights."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from builders import merge
from cluster import EnvtestCluster
from envtest import Envtest
from manifest_support import BASE, OVERLAYS, Kubectl, kustomize, the
from programs import run

from dynsched.sim.nodes import make_node

pytestmark = pytest.mark.slow

JANITOR = "system:serviceaccount:dynsched:dynsched-janitor"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/dynsched/leases"
MARK = {
    "metadata": {
        "labels": {"status": "presure"},
        "annotations": {"dynsched.io/pressure": '{"label":"status=presure"}'},
    }
}


@pytest.fixture
async def applied(envtest: Envtest, tmp_path: Path) -> AsyncIterator[EnvtestCluster]:
    async with EnvtestCluster(envtest, tmp_path) as cluster:
        kubectl = Kubectl(cluster.kubeconfig)
        await asyncio.to_thread(kubectl, "apply", "-k", OVERLAYS / "janitor")
        yield cluster


async def test_the_namespace_admits_what_the_overlays_start(applied: EnvtestCluster) -> None:
    ha, janitor = kustomize(OVERLAYS / "ha"), kustomize(OVERLAYS / "janitor")
    job = the(janitor, "CronJob", "dynsched-janitor")["spec"]["jobTemplate"]["spec"]
    for template in (the(ha, "Deployment")["spec"]["template"], job["template"]):
        pod = {"metadata": {"name": "probe"}, "spec": template["spec"]}
        answer = await applied.post("/api/v1/namespaces/dynsched/pods", pod, dryRun="All")
        assert answer.status == 201, answer.text
    budget = the(ha, "PodDisruptionBudget")
    path = "/apis/policy/v1/namespaces/dynsched/poddisruptionbudgets"
    strict = {"dryRun": "All", "fieldValidation": "Strict"}
    assert (await applied.post(path, budget, **strict)).status == 201
    deployment = the(ha, "Deployment")
    deployment["metadata"]["name"] = "probe"
    path = "/apis/apps/v1/namespaces/dynsched/deployments"
    assert (await applied.post(path, deployment, **strict)).status == 201


async def test_the_janitor_may_do_what_is_listed_and_no_more(applied: EnvtestCluster) -> None:
    kubectl = Kubectl(applied.kubeconfig)
    here = ("-n", "dynsched")
    yes = [
        *(("-A", verb, "nodes") for verb in ("get", "list", "patch")),
        (*here, "get", "leases/dynsched"),
    ]
    no = [
        *(("-A", verb, "nodes") for verb in ("watch", "create", "update", "delete")),
        ("-A", "patch", "nodes", "--subresource=status"),
        ("-A", "create", "events"),
        *((*here, verb, "leases/dynsched") for verb in ("update", "patch", "delete")),
        (*here, "create", "leases"),
        (*here, "get", "leases/another"),
        (*here, "get", "configmaps"),
        (*here, "get", "secrets"),
    ]
    asked = await asyncio.gather(
        *(asyncio.to_thread(kubectl.may, JANITOR, *question) for question in [*yes, *no])
    )
    assert dict(zip([*yes, *no], asked, strict=True)) == {
        **dict.fromkeys(yes, True),
        **dict.fromkeys(no, False),
    }


async def renewed(cluster: EnvtestCluster, age: timedelta) -> None:
    """A Lease that was last renewed so long ago."""
    spec = {
        "holderIdentity": "somebody",
        "leaseDurationSeconds": 15,
        "renewTime": (datetime.now(UTC) - age).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
    }
    body = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "dynsched"},
        "spec": spec,
    }
    assert (await cluster.post(LEASES, body)).status == 201


@pytest.mark.parametrize(
    ("age", "pruned"),
    [(timedelta(minutes=9), []), (timedelta(minutes=11), ["a", "b"]), (None, ["a", "b"])],
    ids=["alive", "gone", "never there"],
)
async def test_the_janitor_removes_marks_when_nobody_renews_the_lease(
    applied: EnvtestCluster, tmp_path: Path, age: timedelta | None, pruned: list[str]
) -> None:
    """With the arguments of the CronJob, and a token of its service account."""
    kubectl = Kubectl(applied.kubeconfig)
    create = ("-n", "dynsched", "create", "token", "dynsched-janitor")
    token = await asyncio.to_thread(kubectl, *create)
    kubeconfig = applied.servers.kubeconfig(tmp_path / "kubeconfig-janitor", token.strip())
    for name in ("a", "b"):
        await applied.create_node(merge(make_node(name), MARK))
    await applied.create_node(merge(make_node("c"), {"metadata": {"labels": {"status": "mine"}}}))
    if age is not None:
        await renewed(applied, age)

    job = the(kustomize(OVERLAYS / "janitor"), "CronJob", "dynsched-janitor")["spec"]["jobTemplate"]
    (container,) = job["spec"]["template"]["spec"]["containers"]
    arguments = [flag for flag in container["args"] if not flag.startswith("--rules=")]
    # In a pod, the namespace and the rules are there by themselves.
    outside = ("--kubeconfig", kubeconfig, "--lease-namespace", "dynsched")
    outside = (*outside, "--rules", BASE / "rules.yaml", "-o", "json")
    command = (sys.executable, "-m", "dynsched", *arguments, *outside)
    done = await asyncio.to_thread(run, *command)
    assert done.returncode == 0, done.stderr
    assert sorted(patch["node"] for patch in json.loads(done.stdout)) == pruned
    left = await applied.list_nodes("status=presure")
    assert len(left) + len(pruned) == 2
    assert len(await applied.list_nodes("status=mine")) == 1
