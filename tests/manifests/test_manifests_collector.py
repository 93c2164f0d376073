"""manifests/overlays/collector: what it renders, how little it may, and that it is admitted."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

import pytest
from cluster import EnvtestCluster
from envtest import Envtest
from manifest_support import (
    BASE,
    OVERLAYS,
    RESTRICTED,
    Doc,
    Kubectl,
    kustomize,
    load_all,
    the,
)
from programs import ROOT, run

FOLDER = OVERLAYS / "collector"
NAME = "dynsched-collector"


def pod_spec() -> Doc:
    (daemonset,) = load_all(FOLDER / "daemonset.yaml")
    spec: Doc = daemonset["spec"]["template"]["spec"]
    return spec


def test_it_renders_nothing_that_grants() -> None:
    docs = kustomize(FOLDER)
    assert sorted(doc["kind"] for doc in docs) == [
        "ConfigMap",
        "DaemonSet",
        "Namespace",
        "NetworkPolicy",
        "ServiceAccount",
    ]


def test_the_pod_has_no_rights_but_to_read_the_nodes_cgroups() -> None:
    spec = pod_spec()
    (account,) = load_all(FOLDER / "serviceaccount.yaml")
    assert account["automountServiceAccountToken"] is False
    assert spec["automountServiceAccountToken"] is False
    assert spec["serviceAccountName"] == account["metadata"]["name"]
    assert spec["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "runAsGroup": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    (container,) = spec["containers"]
    assert container["securityContext"] == RESTRICTED
    assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers"} & spec.keys()
    assert spec["volumes"] == [
        {"name": "cgroup", "hostPath": {"path": "/sys/fs/cgroup", "type": "Directory"}}
    ]
    (mount,) = container["volumeMounts"]
    assert mount["readOnly"] is True
    assert container["args"] == ["collect", f"--cgroup-root={mount['mountPath']}"]


def test_what_it_is_told_is_what_the_command_reads() -> None:
    docs = kustomize(FOLDER)
    (container,) = the(docs, "DaemonSet", NAME)["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "dynsched:0.1.0"
    assert "command" not in container  # the image's entry point is dynsched
    known = run(sys.executable, "-m", "dynsched", container["args"][0], "--help").stdout
    settings = the(docs, "ConfigMap", container["envFrom"][0]["configMapRef"]["name"])["data"]
    given = {entry["name"]: entry["valueFrom"]["fieldRef"] for entry in container["env"]}
    assert given == {
        "DYNSCHED_NODE_NAME": {"fieldPath": "spec.nodeName"},
        "DYNSCHED_NODE_IP": {"fieldPath": "status.hostIP"},
    }
    assert "DYNSCHED_PUSHGATEWAY" in settings
    for name in (*settings, *given, "--cgroup-root"):
        assert re.search(rf"{name}\b", known), name


def test_nothing_but_names_and_the_pushgateway_is_reached() -> None:
    (policy,) = load_all(FOLDER / "networkpolicy.yaml")
    spec = policy["spec"]
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    assert "ingress" not in spec
    assert {port["port"] for rule in spec["egress"] for port in rule["ports"]} == {53, 5353, 9091}


def test_it_needs_as_little_memory_as_is_asked_for() -> None:
    """`dynsched collect` does without the rest of the program."""
    script = (
        "import sys; from dynsched.cli import main\n"
        "try: main(['collect', '--pushgateway=http://localhost:1', '--ip=127.0.0.1', '--once'])\n"
        "except SystemExit: pass\n"
        "heavy = {'kopf', 'kubernetes', 'aiohttp', 'pydantic', 'requests', 'rich'};"
        "print(sorted(heavy & set(sys.modules)));"
        "print(*[s.split()[1] for s in open('/proc/self/status') if s.startswith('VmRSS')])"
    )
    done = run(sys.executable, "-c", script)
    loaded, kilobytes = done.stdout.split("\n")[:2]
    assert loaded == "[]"
    assert int(kilobytes) < 40 * 1024


@pytest.mark.slow
async def test_its_namespace_admits_it_and_that_of_dynsched_would_not(
    envtest: Envtest, tmp_path: Path
) -> None:
    async with EnvtestCluster(envtest, tmp_path) as cluster:
        kubectl = Kubectl(cluster.kubeconfig)
        for folder in (BASE, FOLDER):
            await asyncio.to_thread(kubectl, "apply", "-k", folder)
        spec = {**pod_spec(), "serviceAccountName": "default"}
        pod = {"metadata": {"name": "probe"}, "spec": spec}

        async def create(namespace: str) -> int:
            path = f"/api/v1/namespaces/{namespace}/pods"
            return (await cluster.post(path, pod, dryRun="All")).status

        assert await create(NAME) == 201
        assert await create("dynsched") == 403
        await asyncio.to_thread(kubectl, "delete", "daemonset", "-n", NAME, NAME)


def test_the_page_about_it_names_the_folder() -> None:
    assert "manifests/overlays/collector" in (ROOT / "docs/collect.md").read_text()
