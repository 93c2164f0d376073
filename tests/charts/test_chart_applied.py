"""charts/dynsched on a real API server: installed, upgraded and uninstalled by Helm's library."""

import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from envtest import Envtest
from helm_support import CHART, PARTS, Config, everything, helm, uninstall
from manifest_support import (
    BASE,
    COMPONENTS,
    OPERATOR_KINDS,
    Doc,
    Kubectl,
    beside,
    custom_resource,
    kustomize,
    make_namespace,
    overlay,
)
from programs import ROOT, run

pytestmark = pytest.mark.thorough

NAMESPACE = "helm-test"


@pytest.fixture(scope="module")
def kubectl(envtest: Envtest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    folder = tmp_path_factory.mktemp("helm")
    kinds = {"PodMonitor": "podmonitors", "PrometheusRule": "prometheusrules"}
    assert set(kinds) == OPERATOR_KINDS
    group = "monitoring.coreos.com"
    definitions = [custom_resource(*each, group) for each in kinds.items()]
    with Kubectl(envtest.kubeconfig(folder / "kubeconfig")) as found:
        found.apply(docs=definitions)
        found("wait", "--for=condition=Established", "crd", "--all")
        yield found


@pytest.fixture
def release(envtest: Envtest, kubectl: Kubectl, tmp_path: Path) -> Iterator[Config]:
    path = envtest.kubeconfig(tmp_path / "kubeconfig-helm")
    with Config(kubeconfig_path=path, namespace=NAMESPACE) as config:
        yield config


def taken_back(part: str, kubeconfig: Path) -> None:
    """Run the commands that a page marks as those that take the component back."""
    if part == "extender-port":  # it made no object, and has no command
        return
    text = "".join(page.read_text() for page in (ROOT / "docs").glob("*.md"))
    blocks = re.findall(rf"<!-- remove {part} -->\n```sh\n(.*?)```", text, re.DOTALL)
    assert blocks
    for block in blocks:
        path = f"PATH={Path(sys.executable).parent}:{os.environ['PATH']}"
        with_it = f"KUBECONFIG={kubeconfig}"
        done = run("env", path, with_it, "bash", "-euo", "pipefail", "-c", block)
        assert done.returncode == 0, done.stderr


def names(docs: list[Doc]) -> set[str]:
    return {f"{doc['kind']}/{doc['metadata']['name']}" for doc in docs}


def existing(kubectl: Kubectl, docs: list[Doc]) -> set[str]:
    """Which of these objects are there."""
    found, kinds = set(), {(place(doc), doc["kind"]) for doc in docs}
    for namespace in {place for place, _ in kinds}:
        where = ("-n", namespace) if namespace else ()
        listed = ",".join(sorted(kind for place, kind in kinds if place == namespace))
        found |= names(json.loads(kubectl("get", listed, *where, "-o", "json"))["items"])
    return found & names(docs)


def place(doc: Doc) -> str:
    """The object's namespace; "" for one of the whole cluster."""
    return str(doc["metadata"].get("namespace", ""))


def test_installed_upgraded_to_everything_back_and_uninstalled(
    release: Config, kubectl: Kubectl
) -> None:
    base, full = helm(namespace=NAMESPACE), helm(everything(), namespace=NAMESPACE)
    steps: list[tuple[Callable[[], object], set[str]]] = [
        (lambda: release.install(CHART, "dynsched", {}, create_namespace=True), names(base)),
        (lambda: release.upgrade(CHART, "dynsched", everything()), names(full)),
        (lambda: release.upgrade(CHART, "dynsched", {}, reset_values=True), names(base)),
        (lambda: uninstall(release, kubectl), set()),
    ]
    try:
        for step, expected in steps:
            step()
            kubectl.finish_namespaces()
            assert existing(kubectl, full) == expected
    finally:
        for _ in release.list():
            uninstall(release, kubectl)


@pytest.mark.parametrize("part", [part for part in PARTS if part != "collector"])
def test_what_its_page_says_takes_a_component_back(
    part: str, kubectl: Kubectl, tmp_path: Path
) -> None:
    folder = tmp_path / "one"
    component = beside(folder, COMPONENTS / part)
    with_it = overlay(folder, resources=beside(folder, BASE), components=component)
    docs = kustomize(with_it)
    with Kubectl(kubectl.kubeconfig) as admin:
        admin.apply("-k", with_it)
        # The page's example of a namespace that asks for the order.
        admin.apply(docs=[make_namespace("shop", **{"dynsched.io/avoid-pressure": "true"})])
        assert existing(admin, docs) == names(docs)
        with ThreadPoolExecutor(1) as thread:
            script = thread.submit(taken_back, part, admin.kubeconfig)
            while not script.done():
                admin.finish_namespaces()
                time.sleep(0.1)
            script.result()
        admin.apply("-k", BASE)  # the overlay without the component
        # What a deleted namespace held stays here: the controller that removes it does not run.
        there = existing(admin, docs)
        known = {"", "default", *(name.removeprefix("Namespace/") for name in there)}
        left = existing(admin, [doc for doc in docs if place(doc) in known])
        settings = {name for name in left if name.startswith("ConfigMap/dynsched-settings-")}
        assert left - settings == names(kustomize(BASE)) - settings
        assert admin("diff", "-k", BASE) == ""
