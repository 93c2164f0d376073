"""The cluster under test: that of E2E_KUBECONFIG, or one that is started here (`kubelets`)."""

import json
import os
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from archives import image_of
from envtest import assets
from kubelets import Kubelets, missing
from manifest_support import Doc, Kubectl, kustomize, shipped, templates
from monitoring_support import RULE
from node_exporters import PORT, NodeExporter
from programs import find_descheduler, lacking
from prometheus_support import address_towards
from site_support import (
    GIVEN,
    PUSHGATEWAY_PORT,
    SECOND,
    SHOP,
    KubectlProxy,
    PrometheusForPods,
    Site,
    refuse_or_replace,
    wipe,
)

IMAGE = os.environ.get("E2E_IMAGE", "")
FORMER, FORMER_IMAGE = os.environ.get("E2E_FORMER", ""), os.environ.get("E2E_FORMER_IMAGE", "")


@pytest.fixture(scope="session")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    if not IMAGE:
        lacking("no image: make e2e IMAGE=NAME:TAG, or IMAGE=ARCHIVE if the tests start one")
    if GIVEN:
        yield Path(GIVEN)
        return
    if reason := missing(assets()):
        lacking(f"no cluster: make e2e KUBECONFIG=FILE; the tests cannot start one: {reason}")
    archives = [Path(each) for each in (IMAGE, FORMER_IMAGE) if each]
    for each in archives:
        if not each.is_file():
            lacking(f"no image: {each} is not an archive, and the tests' cluster pulls no images")
    found = assets()
    assert found is not None
    folder = tmp_path_factory.mktemp("kubelets")
    archives.append(packed(folder, SECOND, "kube-scheduler", found / "kube-scheduler"))
    if descheduler := find_descheduler():
        name = "dynsched-descheduler"
        archives.append(packed(folder, "descheduler", "descheduler", Path(descheduler), name))
    cluster = Kubelets(found, folder, archives)
    try:
        cluster.start()
        with ExitStack() as exporters:
            for name, address in cluster.nodes.items():
                if NodeExporter.is_there():
                    exporters.enter_context(NodeExporter(folder / f"proc-{name}", name, address))
            yield cluster.kubeconfig(folder / "kubeconfig")
    finally:
        cluster.stop()


def packed(folder: Path, ours: str, name: str, program: Path, pods: str = SECOND) -> Path:
    """An image with this machine's program, tagged as the image in our manifests."""
    containers = templates(kustomize(shipped(ours)))[pods]["spec"]["containers"]
    (tag,) = (each["image"] for each in containers if each["name"] == name)
    return image_of(folder, name, program.read_bytes(), tag)


def name_of(image: str) -> str:
    """The name of an image, or of the image in an archive file."""
    if not Path(image).is_file():
        return image
    with tarfile.open(image) as archive:
        manifest = archive.extractfile("manifest.json")
        assert manifest is not None
        name: str = json.load(manifest)[0]["RepoTags"][0]
        return name


@pytest.fixture(scope="session")
def site(kubeconfig: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    kubectl = Kubectl(kubeconfig)
    nodes = json.loads(kubectl("get", "nodes", "-o", "json"))["items"]
    addresses = {
        node["metadata"]["name"]: address["address"]
        for node in nodes
        for address in node["status"]["addresses"]
        if address["type"] == "InternalIP"
    }
    with KubectlProxy(folder / "proxy", kubeconfig) as proxy:
        address, targets = proxy.url.removeprefix("http://"), folder / "dynsched.json"
        targets.write_text("[]")
        metrics = "/api/v1/nodes/{}/proxy/metrics/cadvisor"
        kubelets = [
            {
                "targets": [address],
                "labels": {"__metrics_path__": metrics.format(name), "instance": name},
            }
            for name in addresses
        ]
        host = address_towards(next(iter(addresses.values())))
        exporters = [f"{each}:{PORT}" for each in addresses.values()]
        jobs: list[Doc] = [
            {"job_name": "kubelet", "static_configs": kubelets},
            {"job_name": "dynsched", "file_sd_configs": [{"files": [str(targets)]}]},
            {"job_name": "pushgateway", "honor_labels": True}
            | {"static_configs": [{"targets": [f"{host}:{PUSHGATEWAY_PORT}"]}]},
        ]
        if not GIVEN:
            jobs.append({"job_name": "node", "static_configs": [{"targets": exporters}]})
        rules = folder / "rules.yaml"
        rules.write_text(yaml.safe_dump(RULE["spec"]))
        with PrometheusForPods(folder / "prometheus", host, jobs, [rules]) as prometheus:
            found = Site(kubectl, name_of(IMAGE), prometheus, address, targets)
            refuse_or_replace(found, os.environ.get("E2E_REPLACE", ""))
            try:
                yield found
            finally:
                wipe(found)


@pytest.fixture(scope="module")
def shop(site: Site) -> Iterator[str]:
    """A namespace for workloads, with the order and the soft affinity enabled."""
    labels = {"dynsched.io/avoid-pressure": "true", "app.kubernetes.io/part-of": SHOP}
    site.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SHOP, "labels": labels}}
    )
    yield SHOP
    site.kubectl("delete", "namespace", SHOP)


@pytest.fixture(scope="session")
def archive() -> Path:
    if not Path(IMAGE).is_file():
        pytest.skip("the image's size is known only for an archive: IMAGE=FILE")
    return Path(IMAGE)


@pytest.fixture(scope="session")
def former(site: Site) -> tuple[Site, str]:
    """The cluster with the image of an earlier version, and the revision it was built from."""
    if not (FORMER and FORMER_IMAGE):
        pytest.skip("no earlier version: make e2e ... FORMER=REVISION FORMER_IMAGE=IMAGE")
    return replace(site, image=name_of(FORMER_IMAGE)), FORMER
