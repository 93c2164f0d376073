"""The cluster: the one of E2E_KUBECONFIG, or one of our own (`kubelets`)."""

import json
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from envtest import assets
from kubelets import Kubelets, missing
from manifest_support import Kubectl
from site_support import (
    EVERYWHERE,
    NAMESPACE,
    OURS,
    SHOP,
    KubectlProxy,
    PrometheusForPods,
    Site,
    host_towards,
)

GIVEN, IMAGE = os.environ.get("E2E_KUBECONFIG", ""), os.environ.get("E2E_IMAGE", "")
REPLACE = os.environ.get("E2E_REPLACE", "")


@pytest.fixture(scope="session")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    if not IMAGE:
        pytest.skip("no image: make e2e IMAGE=NAME:TAG, or its archive for a cluster of our own")
    if GIVEN:
        yield Path(GIVEN)
        return
    if reason := missing(assets()):
        pytest.skip(f"no cluster: make e2e KUBECONFIG=FILE; of our own: {reason}")
    if not Path(IMAGE).is_file():
        pytest.skip(f"no image: {IMAGE} is no archive, and a cluster of our own pulls nothing")
    found = assets()
    assert found is not None
    folder = tmp_path_factory.mktemp("kubelets")
    cluster = Kubelets(found, folder, [Path(IMAGE)])
    try:
        cluster.start()
        yield cluster.kubeconfig(folder / "kubeconfig")
    finally:
        cluster.stop()


@pytest.fixture(scope="session")
def image() -> str:
    if GIVEN:
        return IMAGE
    with tarfile.open(IMAGE) as archive:
        manifest = archive.extractfile("manifest.json")
        assert manifest is not None
        name: str = json.load(manifest)[0]["RepoTags"][0]
        return name


@pytest.fixture(scope="session")
def site(kubeconfig: Path, image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
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
        scraped = [
            {
                "targets": [proxy.url.removeprefix("http://")],
                "labels": {
                    "__metrics_path__": f"/api/v1/nodes/{name}/proxy/metrics/cadvisor",
                    "instance": name,
                },
            }
            for name in addresses
        ]
        host = host_towards(next(iter(addresses.values())))
        jobs = [{"job_name": "kubelet", "static_configs": scraped}]
        with PrometheusForPods(folder / "prometheus", host, jobs) as prometheus:
            found = Site(kubectl, image, prometheus)
            refuse_or_replace(found)
            try:
                yield found
            finally:
                wipe(found)


def refuse_or_replace(site: Site) -> None:
    there = site.left()
    if there and not REPLACE:
        pytest.exit(
            f"there is a dynsched in this cluster ({', '.join(there[:3])} ...), which the tests "
            "would remove. To let them: make e2e REPLACE=1",
            returncode=2,
        )
    if there:
        wipe(site)


def wipe(site: Site) -> None:
    """Remove whatever a test that failed has left."""
    site.kubectl("delete", "--ignore-not-found", "namespace", NAMESPACE, SHOP)
    site.kubectl("delete", ",".join(EVERYWHERE), "-l", OURS)
    site.prune()


@pytest.fixture(scope="module")
def shop(site: Site) -> Iterator[str]:
    """A namespace for workloads, which asks for the order and the soft affinity."""
    labels = {"dynsched.io/avoid-pressure": "true", "app.kubernetes.io/part-of": SHOP}
    site.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SHOP, "labels": labels}}
    )
    yield SHOP
    site.kubectl("delete", "namespace", SHOP)
