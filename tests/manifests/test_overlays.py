"""manifests/components: they render, alone and together, and ask for no more than is needed."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest
import yaml
from manifest_support import (
    BASE,
    BASE_KINDS,
    COMPONENTS,
    OVERLAYS,
    Doc,
    beside,
    kustomize,
    overlay,
    the,
)
from programs import ROOT

from dynsched.core.parsing import parse_rules

PAGE = ROOT / "docs/guardrail.md"

ADDED = {
    "guardrail": ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"],
    "ha": ["PodDisruptionBudget"],
    "janitor": [
        "ClusterRole",
        "ClusterRoleBinding",
        "CronJob",
        "NetworkPolicy",
        "Role",
        "RoleBinding",
        "ServiceAccount",
    ],
    "monitoring": ["ConfigMap", "PodMonitor", "PrometheusRule"],
    "inject": ["MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"],
    "kubectl": ["NetworkPolicy", "Role"],
    "web-auth": [
        "ClusterRole",
        "ClusterRole",
        "ClusterRole",
        "ClusterRoleBinding",
        "ClusterRoleBinding",
    ],
    "descheduler": [
        "ClusterRole",
        "ClusterRoleBinding",
        "ConfigMap",
        "Deployment",
        "Namespace",
        "NetworkPolicy",
        "Role",
        "RoleBinding",
        "Secret",
        "ServiceAccount",
    ],
}
# Not in the overlay `full`: two change or move pods, one shuts out who could read before, and one
# lets more callers in.
BY_REQUEST = {"inject", "descheduler", "web-auth", "kubectl"}


def kinds(docs: list[Doc]) -> list[str]:
    return sorted(doc["kind"] for doc in docs)


@pytest.mark.parametrize("name", ADDED)
def test_each_overlay_is_the_base_and_its_component(name: str) -> None:
    docs = kustomize(OVERLAYS / name)
    assert kinds(docs) == sorted(BASE_KINDS + ADDED[name])


def test_the_full_one_is_all_of_them_that_need_no_request() -> None:
    docs = kustomize(OVERLAYS / "full")
    names = [name for name in ADDED if name not in BY_REQUEST]
    assert kinds(docs) == sorted(BASE_KINDS + [kind for name in names for kind in ADDED[name]])
    alone = {
        (doc["kind"], doc["metadata"]["name"]): doc
        for name in names
        for doc in kustomize(OVERLAYS / name)
    }
    alone["Deployment", "dynsched"] = the(kustomize(OVERLAYS / "ha"), "Deployment")
    assert {(doc["kind"], doc["metadata"]["name"]): doc for doc in docs} == alone


@pytest.mark.parametrize("names", list(itertools.combinations(reversed(ADDED), 2)), ids="+".join)
def test_any_two_go_together(names: tuple[str, str], tmp_path: Path) -> None:
    folder = tmp_path / "overlay"
    docs = kustomize(
        overlay(
            folder,
            resources=beside(folder, BASE),
            components=beside(folder, *(COMPONENTS / name for name in names)),
        )
    )
    assert kinds(docs) == sorted(BASE_KINDS + ADDED[names[0]] + ADDED[names[1]])


@pytest.mark.parametrize("where", ["below", "here"])
def test_an_image_of_ones_own_reaches_the_janitor_too(where: str, tmp_path: Path) -> None:
    """Whether it is set in an overlay that the component is added to, or beside the component."""
    folder, mine = tmp_path / "overlay", OVERLAYS / "example"
    content: Doc = {"components": beside(folder, COMPONENTS / "janitor")}
    if where == "below":
        content["resources"] = beside(folder, mine)
    else:
        content["resources"] = beside(folder, BASE)
        content["images"] = yaml.safe_load((mine / "kustomization.yaml").read_text())["images"]
    docs = kustomize(overlay(folder, **content))
    image = "registry.example.com/platform/dynsched:0.1.0"
    assert pod_of(the(docs, "Deployment"))["containers"][0]["image"] == image
    assert pod_of(the(docs, "CronJob", "dynsched-janitor"))["containers"][0]["image"] == image


def pod_of(doc: Doc) -> Doc:
    spec = doc["spec"]
    found: Doc = (spec["jobTemplate"]["spec"] if doc["kind"] == "CronJob" else spec)["template"]
    return found["spec"]


def test_a_reader_may_find_the_service_and_get_its_pages_and_no_more() -> None:
    docs = kustomize(OVERLAYS / "kubectl")
    (port,) = the(docs, "Service")["spec"]["ports"]
    assert the(docs, "Role", "dynsched-kubectl")["rules"] == [
        {"apiGroups": [""], "resources": ["services"], "verbs": ["get", "list"]},
        {
            "apiGroups": [""],
            "resources": ["services/proxy"],
            "resourceNames": [f"{port['name']}:dynsched:{port['port']}"],
            "verbs": ["get"],
        },
    ]
    bound = [doc["roleRef"]["name"] for doc in docs if doc["kind"] == "RoleBinding"]
    assert bound == ["dynsched"]


# --- guardrail ---


def test_the_guardrails_page_shows_a_patch_that_works(tmp_path: Path) -> None:
    (block,) = re.findall(r"```yaml\n(patches:.*?)```", PAGE.read_text(), re.DOTALL)
    folder = tmp_path / "overlay"
    docs = kustomize(
        overlay(
            folder,
            resources=beside(folder, BASE),
            components=beside(folder, COMPONENTS / "guardrail"),
            **yaml.safe_load(block),
        )
    )
    spec = the(docs, "ValidatingAdmissionPolicy", "dynsched-guardrail")["spec"]
    before = yaml.safe_load((COMPONENTS / "guardrail/policy.yaml").read_text())["spec"]
    assert spec["variables"][0]["name"] == "marks"
    assert "example.com/load=high" in spec["variables"][0]["expression"]
    assert "scheduling:dynsched" in spec["matchConditions"][0]["expression"]
    for changed in (spec, before):
        del changed["variables"][0], changed["matchConditions"][0]
    assert spec == before


# --- ha ---


def test_two_replicas_keep_apart_and_one_stays_in_a_drain() -> None:
    docs = kustomize(OVERLAYS / "ha")
    deployment, base = the(docs, "Deployment"), the(kustomize(BASE), "Deployment")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    selector = {"matchLabels": {"app.kubernetes.io/name": "dynsched"}}
    assert selector["matchLabels"].items() <= labels.items()
    assert deployment["spec"]["replicas"] == 2
    assert deployment["spec"]["strategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0},
    }
    (apart,) = pod_of(deployment)["affinity"].pop("podAntiAffinity").values()
    assert apart == [
        {
            "weight": 100,
            "podAffinityTerm": {
                "topologyKey": "kubernetes.io/hostname",
                "labelSelector": selector,
            },
        }
    ]
    (spread,) = pod_of(deployment).pop("topologySpreadConstraints")
    assert (spread["topologyKey"], spread["whenUnsatisfiable"], spread["labelSelector"]) == (
        "topology.kubernetes.io/zone",
        "ScheduleAnyway",
        selector,
    )
    assert pod_of(deployment) == pod_of(base)
    budget = the(docs, "PodDisruptionBudget")["spec"]
    assert (budget["minAvailable"], budget["selector"]) == (1, selector)


def test_replicas_elect_a_leader() -> None:
    """Nothing turns off what is on by default."""
    (container,) = pod_of(the(kustomize(OVERLAYS / "ha"), "Deployment"))["containers"]
    assert not [flag for flag in container["args"] if "leader" in flag]


# --- janitor ---


@pytest.fixture(scope="module")
def janitor() -> list[Doc]:
    return kustomize(OVERLAYS / "janitor")


def test_the_janitor_may_do_exactly_what_it_needs(janitor: list[Doc]) -> None:
    name = "dynsched-janitor"
    assert the(janitor, "ClusterRole", name)["rules"] == [
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "patch"]}
    ]
    role = the(janitor, "Role", name)
    assert role["metadata"]["namespace"] == "dynsched"
    assert role["rules"] == [
        {
            "apiGroups": ["coordination.k8s.io"],
            "resources": ["leases"],
            "resourceNames": ["dynsched"],
            "verbs": ["get"],
        }
    ]
    for kind in ("ClusterRole", "Role"):
        binding = the(janitor, f"{kind}Binding", name)
        assert binding["roleRef"]["kind"] == kind
        assert binding["roleRef"]["name"] == name
        assert binding["subjects"] == [
            {"kind": "ServiceAccount", "name": name, "namespace": "dynsched"}
        ]
    assert pod_of(the(janitor, "CronJob", name))["serviceAccountName"] == name
    assert the(janitor, "ServiceAccount", name)["metadata"]["namespace"] == "dynsched"


def test_the_janitor_runs_one_at_a_time_and_prunes_only_after_a_long_silence(
    janitor: list[Doc],
) -> None:
    job = the(janitor, "CronJob", "dynsched-janitor")["spec"]
    assert (job["schedule"], job["concurrencyPolicy"]) == ("*/5 * * * *", "Forbid")
    assert job["jobTemplate"]["spec"]["activeDeadlineSeconds"] < 5 * 60
    (container,) = pod_of(the(janitor, "CronJob", "dynsched-janitor"))["containers"]
    command, *flags = container["args"]
    assert command == "prune"
    assert "--if-lease-older-than=10m" in flags


def test_the_janitors_pod_is_as_restricted_as_dynscheds(janitor: list[Doc]) -> None:
    its, ours = (
        pod_of(the(janitor, "CronJob", "dynsched-janitor")),
        pod_of(the(janitor, "Deployment")),
    )
    for key in ("securityContext", "enableServiceLinks"):
        assert its[key] == ours[key]
    for key in ("securityContext", "image", "imagePullPolicy"):
        assert its["containers"][0][key] == ours["containers"][0][key]
    named = {volume["name"]: volume for volume in ours["volumes"]}
    assert its["volumes"] == [named["rules"], named["tmp"]]


def test_the_janitors_pod_is_none_of_dynscheds(janitor: list[Doc]) -> None:
    """Or the Service would lead to it, and the PodDisruptionBudget would count it."""
    template = the(janitor, "CronJob", "dynsched-janitor")["spec"]["jobTemplate"]["spec"][
        "template"
    ]
    labels = template["metadata"]["labels"]
    assert labels != the(janitor, "Service")["spec"]["selector"]
    policy = the(janitor, "NetworkPolicy", "dynsched-janitor")["spec"]
    assert policy["podSelector"]["matchLabels"] == labels
    assert policy.get("ingress", []) == []
    assert {port["port"] for rule in policy["egress"] for port in rule["ports"]} == {
        53, 5353, 443, 6443,
    }  # fmt: skip


def test_everything_can_be_found_by_its_label() -> None:
    for doc in kustomize(OVERLAYS / "full"):
        name = doc["metadata"].get("labels", {}).get("app.kubernetes.io/name")
        generated = doc["metadata"]["name"].startswith(("dynsched-settings", "dynsched-rules"))
        assert generated or name in ("dynsched", "dynsched-janitor"), doc["metadata"]


def test_the_descheduler_comes_with_the_taint_and_the_shipped_rules() -> None:
    docs = kustomize(OVERLAYS / "descheduler")
    rules = parse_rules(
        yaml.safe_load(the(docs, "ConfigMap", "dynsched-rules")["data"]["rules.yaml"])
    )
    shipped = parse_rules(yaml.safe_load((BASE / "rules.yaml").read_text()))
    assert str(rules.mark) == f"{shipped.mark} and taint dynsched.io/pressure=true:PreferNoSchedule"
    assert (rules.file_rules, rules.guard) == (shipped.file_rules, shipped.guard)
