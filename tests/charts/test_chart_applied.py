"""charts/dynsched on a real API server: installed, upgraded and uninstalled by Helm's library."""

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
import yaml
from cluster import EnvtestCluster
from envtest import Envtest
from helm_support import CHART, PARTS, Config, everything, helm, uninstall
from manifest_support import (
    BASE,
    COMPONENTS,
    OPERATOR_KINDS,
    OVERLAYS,
    Doc,
    Kubectl,
    beside,
    custom_resource,
    kustomize,
    overlay,
    shipped,
)
from programs import ROOT, run

pytestmark = pytest.mark.thorough

NAMESPACE = "helm-test"
OURS = "app.kubernetes.io/name=dynsched"
GONE = ("--ignore-not-found", "--wait=false")


@pytest.fixture(scope="module")
def kubectl(envtest: Envtest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    folder = tmp_path_factory.mktemp("helm")
    found = Kubectl(envtest.kubeconfig(folder / "kubeconfig"))
    path = folder / "crds.yaml"
    kinds = {"PodMonitor": "podmonitors", "PrometheusRule": "prometheusrules"}
    assert set(kinds) == OPERATOR_KINDS
    group = "monitoring.coreos.com"
    path.write_text(yaml.safe_dump_all(custom_resource(*each, group) for each in kinds.items()))
    found("apply", "-f", path)
    found("wait", "--for=condition=Established", "-f", path)
    yield found
    found("delete", "-f", path)


@pytest.fixture
def release(envtest: Envtest, kubectl: Kubectl, tmp_path: Path) -> Iterator[Config]:
    path = envtest.kubeconfig(tmp_path / "kubeconfig-helm")
    with Config(kubeconfig_path=path, namespace=NAMESPACE) as config:
        yield config


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The base and everything beside it, as one kustomization."""
    folder = tmp_path / "all"
    components = beside(folder, *(COMPONENTS / part for part in PARTS if part != "collector"))
    resources = beside(folder, BASE, OVERLAYS / "collector")
    return overlay(folder, resources=resources, components=components)


@pytest.fixture
async def cluster(envtest, kubectl, tree, tmp_path) -> AsyncIterator[EnvtestCluster]:
    async with EnvtestCluster(envtest, tmp_path) as form:
        await remove(kubectl, tree, form)  # what tests of other modules have left
        yield form


async def remove(kubectl: Kubectl, tree: Path, cluster: EnvtestCluster) -> None:
    await asyncio.to_thread(kubectl, "delete", *GONE, "-k", tree)
    await cluster.finish_namespaces()


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


async def test_installed_upgraded_to_everything_back_and_uninstalled(
    release: Config, kubectl: Kubectl, cluster: EnvtestCluster
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
            await asyncio.to_thread(step)
            await cluster.finish_namespaces()
            assert await asyncio.to_thread(existing, kubectl, full) == expected
    finally:
        for _ in release.list():
            await asyncio.to_thread(uninstall, release, kubectl)


@pytest.mark.parametrize("part", [part for part in PARTS if part != "collector"])
async def test_what_its_page_says_takes_a_component_back(
    part: str, kubectl: Kubectl, cluster: EnvtestCluster, tree: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "one"
    component = beside(folder, COMPONENTS / part)
    with_it = overlay(folder, resources=beside(folder, BASE), components=component)
    docs = kustomize(with_it)
    try:
        await asyncio.to_thread(kubectl, "apply", "-k", with_it)
        assert await asyncio.to_thread(existing, kubectl, docs) == names(docs)
        if part == "inject":  # the page's example of a namespace that asks for it
            kubectl("create", "namespace", "shop")
            kubectl("label", "namespace", "shop", "dynsched.io/avoid-pressure=true")
        script = asyncio.create_task(asyncio.to_thread(taken_back, part, kubectl.kubeconfig))
        while not script.done():
            await cluster.finish_namespaces()
            await asyncio.sleep(0.1)
        await script
        await asyncio.to_thread(kubectl, "apply", "-k", BASE)  # the overlay without the component
        # What a deleted namespace held stays here: the controller that removes it does not run.
        there = await asyncio.to_thread(existing, kubectl, docs)
        known = {"", "default", *(name.removeprefix("Namespace/") for name in there)}
        kept = [doc for doc in docs if place(doc) in known]
        left = await asyncio.to_thread(existing, kubectl, kept)
        settings = {name for name in left if name.startswith("ConfigMap/dynsched-settings-")}
        assert left - settings == names(kustomize(BASE)) - settings
        assert kubectl("diff", "-k", BASE) == ""
    finally:
        await asyncio.to_thread(kubectl, "delete", "namespace", "shop", *GONE)
        await remove(kubectl, tree, cluster)


@pytest.mark.parametrize("servers", ["envtest", "before_136"])
async def test_the_order_goes_by_what_the_api_server_has(
    request: pytest.FixtureRequest, servers: str, tmp_path: Path
) -> None:
    """By the webhook with one certificate over upgrades, where it has no policies."""
    found: Envtest = request.getfixturevalue(servers)
    path, values = found.kubeconfig(tmp_path / "kubeconfig"), dict[str, object]()
    kubectl, webhook = Kubectl(path), {"MutatingWebhookConfiguration/dynsched-order"}
    kinds = "mutatingwebhookconfigurations,secrets", "mutatingadmissionpolicies"
    async with EnvtestCluster(found, tmp_path) as cluster:
        await remove(kubectl, shipped("order-webhook"), cluster)  # what other modules' tests left
    with Config(kubeconfig_path=path, namespace=NAMESPACE) as config:
        try:
            config.install(CHART, "dynsched", values, create_namespace=True)
            before = kubectl("get", kinds[0], "-n", NAMESPACE, "-l", OURS, "-o", "json")
            config.upgrade(CHART, "dynsched", {**values, "interval": 20})
            after = kubectl("get", kinds[0], "-n", NAMESPACE, "-l", OURS, "-o", "json")
            if servers == "envtest":
                assert json.loads(after)["items"] == []
                policies = names(json.loads(kubectl("get", kinds[1], "-o", "json"))["items"])
                assert "MutatingAdmissionPolicy/dynsched-order" in policies
                return
            first, second = (json.loads(each)["items"] for each in (before, after))
            assert names(second) == webhook | {"Secret/dynsched-order-webhook"}
            (ours, secret), (ours_after, secret_after) = first, second
            assert secret["data"] == secret_after["data"]
            for each in (ours, ours_after):
                bundle = each["webhooks"][0]["clientConfig"]["caBundle"]
                assert bundle == secret["data"]["ca.crt"]
        finally:
            for _ in config.list():
                await asyncio.to_thread(uninstall, config, kubectl)
