"""overlays/web-auth and components/extender-port: what they add, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from manifest_support import BASE, COMPONENTS, OVERLAYS, Doc, beside, kustomize, overlay, the

from dynsched.web.api import ENDPOINTS
from dynsched.web.transport.answering import PROBES


def container(docs: list[Doc]) -> Any:
    return the(docs, "Deployment")["spec"]["template"]["spec"]["containers"][0]


def test_dynsched_may_create_reviews_and_nothing_else() -> None:
    docs = kustomize(OVERLAYS / "web-auth")
    assert the(docs, "ClusterRole", "dynsched-web-auth")["rules"] == [
        {
            "apiGroups": ["authentication.k8s.io"],
            "resources": ["tokenreviews"],
            "verbs": ["create"],
        },
        {
            "apiGroups": ["authorization.k8s.io"],
            "resources": ["subjectaccessreviews"],
            "verbs": ["create"],
        },
    ]
    for name in ("dynsched-web-auth", "dynsched-reader"):
        binding = the(docs, "ClusterRoleBinding", name)
        assert binding["roleRef"]["name"] == name
        assert binding["subjects"] == [
            {"kind": "ServiceAccount", "name": "dynsched", "namespace": "dynsched"}
        ]


def test_readers_have_every_path_that_needs_a_token() -> None:
    docs = kustomize(OVERLAYS / "web-auth")
    (rule,) = the(docs, "ClusterRole", "dynsched-reader")["rules"]
    assert rule.keys() == {"nonResourceURLs", "verbs"}
    assert rule["verbs"] == ["get"]

    def granted(path: str) -> bool:
        return any(
            path == url or (url.endswith("*") and path.startswith(url[:-1]))
            for url in rule["nonResourceURLs"]
        )

    needed = [path.replace("{name}", "worker-1") for path in ENDPOINTS if path not in PROBES]
    assert [path for path in [*needed, "/page/page.js"] if not granted(path)] == []
    unused = [
        url
        for url in rule["nonResourceURLs"]
        if not any(path == url or path.startswith(url.rstrip("*")) for path in needed)
    ]
    assert unused == []
    (metrics,) = the(docs, "ClusterRole", "dynsched-metrics-reader")["rules"]
    assert metrics == {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}


def with_own_port(folder: Path, *more: str) -> list[Doc]:
    components = beside(folder, *(COMPONENTS / name for name in (*more, "extender-port")))
    return kustomize(overlay(folder, resources=beside(folder, BASE), components=components))


def test_the_extender_gets_a_port_that_the_control_plane_alone_reaches(tmp_path: Path) -> None:
    docs = with_own_port(tmp_path / "k", "extender")
    own = container(docs)
    assert {"name": "DYNSCHED_EXTENDER_ADDR", "value": ":9001"} in own["env"]
    assert {each["name"]: each["containerPort"] for each in own["ports"]} == {
        "http": 9000,
        "extender": 9001,
    }
    ports = the(docs, "Service")["spec"]["ports"]
    assert {each["port"]: each["targetPort"] for each in ports} == {9000: "http", 9001: "extender"}
    reached = {
        name: [
            port["port"]
            for rule in the(docs, "NetworkPolicy", name)["spec"]["ingress"]
            for port in rule["ports"]
        ]
        for name in ("dynsched", "dynsched-extender")
    }
    assert reached == {"dynsched": [9000], "dynsched-extender": [9001]}


def test_the_port_needs_no_other_component(tmp_path: Path) -> None:
    docs = with_own_port(tmp_path / "k")
    assert "extender" in {each["name"] for each in container(docs)["ports"]}
