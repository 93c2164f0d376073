"""manifests/ as rendered by kustomize, and kubectl on a real API server."""

import json
import os
import re
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import yaml
from programs import ROOT, lacking, need, run

BASE = ROOT / "manifests/base"
OVERLAYS = ROOT / "manifests/overlays"
COMPONENTS = ROOT / "manifests/components"
OLDEST, NEWEST = "1.29", "1.37"
VERSIONS = (OLDEST, "1.30", "1.34", "1.36", NEWEST)

Doc = dict[str, Any]

RESTRICTED: Doc = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
"""The securityContext of each of our containers."""

OPERATOR_KINDS = {"PodMonitor", "PrometheusRule"}  # custom resources: Kubernetes has no schema
SINCE = {
    "ValidatingAdmissionPolicy": "1.30",
    "ValidatingAdmissionPolicyBinding": "1.30",
    "MutatingAdmissionPolicy": "1.36",
    "MutatingAdmissionPolicyBinding": "1.36",
}


def load_all(path: Path) -> list[Doc]:
    return list(yaml.safe_load_all(path.read_text()))


def kustomize(folder: Path) -> list[Doc]:
    kubectl = need("kubectl", "kubernetes-client")
    version = run(kubectl, "version", "--client", "-o", "json")
    minor = int(re.sub(r"\D", "", json.loads(version.stdout)["clientVersion"]["minor"]))
    if minor < 22:
        lacking("kubectl 1.22 or newer is needed: older ones carry kustomize 2 or 4.0")
    done = run(kubectl, "kustomize", folder)
    assert done.returncode == 0, done.stderr
    assert "deprecated" not in done.stderr
    return list(yaml.safe_load_all(done.stdout))


def order_component(namespace: str = "dynsched") -> str:
    """The manifests in manifests/base/order, with their namespace replaced by ``namespace``."""
    names = load_all(BASE / "order/kustomization.yaml")[0]["resources"]
    text = "---\n".join((BASE / "order" / name).read_text() for name in names)
    return text.replace("namespace: dynsched\n", f"namespace: {namespace}\n")


def overlay(folder: Path, **content: object) -> Path:
    folder.mkdir()
    kind = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(kind | content))
    return folder


_MADE = TemporaryDirectory(prefix="dynsched-overlays-")


@cache
def shipped(name: str) -> Path:
    """The folder to apply for ``name``: the base, an overlay, or the base with one component."""
    if name == "base":
        return BASE
    if (OVERLAYS / name).is_dir():
        return OVERLAYS / name
    folder = Path(_MADE.name) / name
    components = beside(folder, COMPONENTS / name)
    return overlay(folder, resources=beside(folder, BASE), components=components)


def beside(folder: Path, *targets: Path) -> list[str]:
    return [os.path.relpath(target, folder) for target in targets]


def commands(page: str, word: str) -> str:
    """The only block of commands in a page that contains ``word``, with absolute paths."""
    blocks = re.findall(
        r"^ *```sh\n(.*?)^ *```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL
    )
    (found,) = (block for block in blocks if word in block)
    return re.sub(r"(?<= )manifests/", f"{ROOT}/manifests/", found)


def the(docs: list[Doc], kind: str, name: str = "dynsched") -> Doc:
    (doc,) = (doc for doc in docs if doc["kind"] == kind and doc["metadata"]["name"] == name)
    return doc


def templates(docs: list[Doc]) -> dict[str, Doc]:
    """The pod templates of all workloads, by the name of the workload."""
    found = {}
    for doc in docs:
        spec = doc["spec"]["jobTemplate"]["spec"] if doc["kind"] == "CronJob" else doc.get("spec")
        if doc["kind"] in ("CronJob", "DaemonSet", "Deployment"):
            template: Doc = spec["template"]
            template["metadata"]["namespace"] = doc["metadata"]["namespace"]
            found[doc["metadata"]["name"]] = template
    return found


def make_namespace(name: str, **labels: str) -> Doc:
    metadata = {"name": name, "labels": labels}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def custom_resource(
    kind: str, plural: str, group: str, version: str = "v1", scope: str = "Namespaced"
) -> Doc:
    """A CustomResourceDefinition that accepts any object of this kind."""
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    names = {"kind": kind, "plural": plural, "singular": kind.lower()}
    versions = [{"name": version, "served": True, "storage": True, "schema": schema}]
    head = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    # The API server accepts custom resources in a group under k8s.io only with this annotation.
    notes = {"api-approved.kubernetes.io": "unapproved, for tests only"}
    spec = {"group": group, "scope": scope, "names": names, "versions": versions}
    return head | {"metadata": {"name": f"{plural}.{group}", "annotations": notes}, "spec": spec}


class Kubectl:
    """kubectl as the admin of a cluster; a warning is a failure.

    As a context manager, it deletes at the end what `apply` has created.
    """

    def __init__(self, kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig
        self._command = (need("kubectl", "kubernetes-client"), f"--kubeconfig={kubeconfig}")
        self._applied: list[tuple[Sequence[str | Path], str]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        while self._applied:
            what, stdin = self._applied.pop()
            gone = ("delete", "--ignore-not-found", *what)
            self(*gone, "--wait=false", stdin=stdin)
            self.finish_namespaces()
            self(*gone, stdin=stdin)  # this time wait, because definitions take a moment

    def __call__(self, *arguments: str | Path, stdin: str = "") -> str:
        done = run(*self._command, *arguments, stdin=stdin)
        assert done.returncode == 0, done.stderr
        # An object that another test created without `apply` is adopted with a warning.
        lines = [line for line in done.stderr.splitlines() if "last-applied-conf" not in line]
        assert not [line for line in lines if "Warning" in line]
        return done.stdout

    def apply(self, *what: str | Path, docs: Iterable[Doc] = ()) -> None:
        """Apply ``-f`` and a file, or ``-k`` and a folder; or else ``docs``."""
        applied = what or ("-f", "-"), yaml.safe_dump_all(docs)
        self._applied.append(applied)
        self("apply", *applied[0], stdin=applied[1])

    def finish_namespaces(self) -> None:
        """Finalize deleted namespaces, because envtest runs no namespace controller."""
        for each in json.loads(self("get", "namespaces", "-o", "json"))["items"]:
            if each["status"]["phase"] == "Terminating":
                each["spec"]["finalizers"] = []
                path = f"/api/v1/namespaces/{each['metadata']['name']}/finalize"
                self("replace", "--raw", path, "-f", "-", stdin=json.dumps(each))

    def token(self, namespace: str, account: str) -> str:
        return self("-n", namespace, "create", "token", account).strip()
