"""manifests/: they render, and ask for no more than is needed."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from manifest_support import (
    BASE,
    BASE_KINDS,
    RESTRICTED,
    Doc,
    kustomize,
    load_all,
    the,
)
from programs import ROOT, need, run

OVERLAY = ROOT / "manifests/overlays/example"
EXAMPLES = ROOT / "manifests/examples"


@pytest.fixture(scope="module")
def base() -> list[Doc]:
    return kustomize(BASE)


def written(kind: str) -> Doc:
    """From the files as they are: what needs no kubectl to be checked."""
    docs = [doc for path in sorted(BASE.glob("*.yaml")) for doc in load_all(path)]
    (doc,) = (doc for doc in docs if doc.get("kind") == kind)
    return doc


def pod_spec() -> Doc:
    return written("Deployment")["spec"]["template"]["spec"]


@pytest.mark.parametrize("folder", [BASE, OVERLAY], ids=["base", "overlay"])
def test_kustomize_renders_these_kinds(folder: Path) -> None:
    assert sorted(doc["kind"] for doc in kustomize(folder)) == BASE_KINDS


def test_the_cluster_role_grants_exactly_what_is_used() -> None:
    assert written("ClusterRole")["rules"] == [
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch", "patch"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]},
        {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]},
        {"apiGroups": ["metrics.k8s.io"], "resources": ["nodes"], "verbs": ["list"]},
    ]


def test_the_role_grants_one_lease_in_its_own_namespace() -> None:
    role = written("Role")
    assert role["metadata"]["namespace"] == "dynsched"
    group = ["coordination.k8s.io"]
    assert role["rules"] == [
        {"apiGroups": group, "resources": ["leases"], "verbs": ["create"]},
        {
            "apiGroups": group,
            "resources": ["leases"],
            "resourceNames": ["dynsched"],
            "verbs": ["get", "update"],
        },
    ]


@pytest.mark.parametrize("kind", ["Role", "ClusterRole"])
def test_each_binding_is_to_the_service_account_alone(kind: str) -> None:
    binding = written(f"{kind}Binding")
    assert binding["roleRef"] == {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": kind,
        "name": "dynsched",
    }
    assert binding["subjects"] == [
        {"kind": "ServiceAccount", "name": "dynsched", "namespace": "dynsched"}
    ]
    assert pod_spec()["serviceAccountName"] == "dynsched"


def test_the_namespace_refuses_privileged_pods() -> None:
    labels = written("Namespace")["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"


def test_the_pod_is_restricted() -> None:
    spec = pod_spec()
    assert spec["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "runAsGroup": 65532,
        "fsGroup": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    (container,) = spec["containers"]
    assert container["securityContext"] == RESTRICTED
    assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers"} & spec.keys()
    assert all("hostPath" not in volume for volume in spec["volumes"])


def test_the_pod_runs_as_the_images_user() -> None:
    user = re.search(r"^USER (\S+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert user is not None
    assert user[1] == "65532:65532"


def test_no_environment_comes_from_services() -> None:
    """The Service `dynsched` would set DYNSCHED_PORT, which looks like a setting."""
    assert pod_spec()["enableServiceLinks"] is False


def test_the_settings_and_arguments_are_flags_of_run(base: list[Doc]) -> None:
    known = run(sys.executable, "-m", "dynsched", "run", "--help").stdout
    (container,) = the(base, "Deployment")["spec"]["template"]["spec"]["containers"]
    command, *flags = container["args"]
    assert command == "run"
    for flag in flags:
        assert re.search(rf"{flag.partition('=')[0]}\b", known), flag
    settings = the(base, "ConfigMap", container["envFrom"][0]["configMapRef"]["name"])["data"]
    named = {*settings, *re.findall(r"\bDYNSCHED_\w+", (BASE / "deployment.yaml").read_text())}
    for name in named - {"DYNSCHED_PORT"}:
        assert re.search(rf"\b{name}\b", known), name


def test_memory_is_limited_and_cpu_is_not() -> None:
    (container,) = pod_spec()["containers"]
    assert container["resources"] == {
        "requests": {"cpu": "50m", "memory": "128Mi"},
        "limits": {"memory": "256Mi"},
    }


def test_the_probes_ask_what_they_are_for() -> None:
    (container,) = pod_spec()["containers"]
    asked = {
        kind: container[f"{kind}Probe"]["httpGet"] for kind in ("liveness", "readiness", "startup")
    }
    assert asked == {
        "liveness": {"path": "/healthz", "port": "http"},
        "readiness": {"path": "/readyz", "port": "http"},
        "startup": {"path": "/healthz", "port": "http"},
    }


def test_the_service_and_the_policy_reach_the_pod() -> None:
    labels = written("Deployment")["spec"]["template"]["metadata"]["labels"]
    (port,) = pod_spec()["containers"][0]["ports"]
    service = written("Service")["spec"]
    policy = written("NetworkPolicy")["spec"]
    assert service["selector"].items() <= labels.items()
    assert service["ports"][0]["targetPort"] == port["name"]
    assert policy["podSelector"]["matchLabels"].items() <= labels.items()
    (rule,) = policy["ingress"]
    assert rule["ports"] == [{"port": port["containerPort"], "protocol": "TCP"}]
    # Only a Prometheus where the settings say that it is: the port has no authentication.
    (generated,) = load_all(BASE / "kustomization.yaml")
    settings = generated["configMapGenerator"][0]
    (prometheus,) = (text for text in settings["literals"] if text.startswith("DYNSCHED_PROM="))
    (callers,) = rule["from"]
    (namespace,) = callers["namespaceSelector"]["matchLabels"].values()
    assert f".{namespace}.svc" in prometheus
    assert {port["port"] for rule in policy["egress"] for port in rule["ports"]} == {
        53, 5353, 443, 6443, 9090,
    }  # fmt: skip


def mounted_rules(docs: list[Doc]) -> Doc:
    """The ConfigMap that the pod's --rules reads from."""
    spec = the(docs, "Deployment")["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    (mount,) = (mount for mount in container["volumeMounts"] if mount["name"] == "rules")
    (volume,) = (volume for volume in spec["volumes"] if volume["name"] == "rules")
    assert "subPath" not in mount
    assert f"--rules={mount['mountPath']}/rules.yaml" in container["args"]
    return the(docs, "ConfigMap", volume["configMap"]["name"])


def test_the_pod_reads_the_working_example(base: list[Doc]) -> None:
    assert mounted_rules(base)["data"] == {"rules.yaml": (ROOT / "rules.yaml").read_text()}


def test_the_copy_of_the_rules_is_the_same_without_kubectl_too() -> None:
    assert (BASE / "rules.yaml").read_text() == (ROOT / "rules.yaml").read_text()


def test_a_change_of_settings_restarts_the_pod_and_one_of_the_rules_does_not(
    base: list[Doc],
) -> None:
    (source,) = the(base, "Deployment")["spec"]["template"]["spec"]["containers"][0]["envFrom"]
    name = source["configMapRef"]["name"]
    assert the(base, "ConfigMap", name)["data"]["DYNSCHED_PROM"].startswith("http://")
    assert re.fullmatch(r"dynsched-settings-[a-z0-9]+", name)
    assert mounted_rules(base)["metadata"]["name"] == "dynsched-rules"


def test_the_overlay_changes_image_prometheus_and_rules() -> None:
    docs = kustomize(OVERLAY)
    (container,) = the(docs, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "registry.example.com/platform/dynsched:0.1.0"
    settings = the(docs, "ConfigMap", container["envFrom"][0]["configMapRef"]["name"])["data"]
    assert settings == {
        "DYNSCHED_PROM": "http://prometheus-k8s.monitoring.svc:9090",
        "DYNSCHED_INTERVAL": "10",
        "DYNSCHED_LOG_FORMAT": "json",
    }
    assert mounted_rules(docs)["data"] == {"rules.yaml": (OVERLAY / "rules.yaml").read_text()}


def test_the_example_workload_avoids_the_default_mark_softly() -> None:
    (nginx,) = load_all(EXAMPLES / "nginx.yaml")
    affinity = nginx["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    assert affinity == {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {
                "weight": 20,
                "preference": {
                    "matchExpressions": [
                        {"key": "status", "operator": "NotIn", "values": ["presure"]}
                    ]
                },
            }
        ]
    }


def relabelled(job: str, folder: Path) -> Iterator[dict[str, str]]:
    """What Prometheus makes of one node, found as its discovery would find it.

    Some builds of Prometheus (Debian's) have no Kubernetes discovery: the labels that it would
    give are written into a static target.
    """
    config = yaml.safe_load((EXAMPLES / "prometheus-scrape.yaml").read_text())
    for scrape in config["scrape_configs"]:
        if scrape.pop("kubernetes_sd_configs", None) is not None:
            found = {
                "__meta_kubernetes_node_address_InternalIP": "10.0.0.7",
                "__meta_kubernetes_node_name": "worker-3",
                "instance": "worker-3",
            }
            scrape["static_configs"] = [{"targets": ["10.0.0.7:10250"], "labels": found}]
    path = folder / "prometheus.yml"
    path.write_text(yaml.safe_dump(config))
    promtool = need("promtool", "prometheus")
    checked = run(promtool, "check", "config", path)
    assert checked.returncode == 0, checked.stderr
    done = run(promtool, "check", "service-discovery", "--timeout=1s", path, job)
    assert done.returncode == 0, done.stderr
    for target in json.loads(done.stdout):
        yield target["labels"]


@pytest.mark.parametrize(
    ("job", "node"), [("node-exporter", "worker-3"), ("k8s nodes", None)], ids=["modern", "older"]
)
def test_the_scrape_example_names_the_node(job: str, node: str | None, tmp_path: Path) -> None:
    (labels,) = relabelled(job, tmp_path)
    assert labels["__address__"] == "10.0.0.7:9100"
    assert labels["instance"] == "worker-3"
    assert labels.get("node") == node


def test_the_scrape_example_discovers_nodes() -> None:
    config = yaml.safe_load((EXAMPLES / "prometheus-scrape.yaml").read_text())
    found = {job["job_name"]: job.get("kubernetes_sd_configs") for job in config["scrape_configs"]}
    assert found == {
        "node-exporter": [{"role": "node"}],
        "k8s nodes": [{"role": "node"}],
        "pushgateway": None,
    }
