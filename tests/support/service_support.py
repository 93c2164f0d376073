"""A dynsched instance that answers over HTTP, and a Service in a cluster that leads to it."""

import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

import api_support
from aiohttp.test_utils import TestServer
from cluster import Cluster, EnvtestCluster, SimCluster
from manifest_support import RESTRICTED
from prometheus_support import address_towards
from scenes import EXAMPLE_RULES, NOON, Scene
from store_support import Clock, make_store

from dynsched.core.nodes import Node
from dynsched.web.app import make_app

LABELS = {"app.kubernetes.io/name": "dynsched"}
OURS = ("dynsched", "dynsched")


class Pages:
    """Three nodes and the ticks over them. ``url`` is set while `served` serves it."""

    def __init__(self) -> None:
        self.snapshots = make_store(Clock(NOON))
        self.scene = Scene(EXAMPLE_RULES, [Node(f"worker-{n}") for n in range(1, 4)])
        self.at = NOON
        self.url = ""

    def tick(self, **cpu: float) -> None:
        """One tick, a minute after the last: ``worker_1=90`` and so on; other nodes are cool."""
        self.at += 60
        given = {name.replace("_", "-"): value for name, value in cpu.items()}
        values = dict.fromkeys(self.scene.nodes, 20.0) | given
        memory = dict.fromkeys(self.scene.nodes, 42.0)
        self.snapshots.publish(self.scene.tick(self.at, node_cpu=values, node_mem_usage=memory))


@contextlib.asynccontextmanager
async def served(
    pages: Pages, cluster: Cluster | None = None, tls: ssl.SSLContext | None = None
) -> AsyncIterator[TestServer]:
    """Serve ``pages`` over HTTP, or HTTPS with ``tls``, where the API server can reach it."""
    host = own_address() if isinstance(cluster, EnvtestCluster) else "127.0.0.1"
    server = TestServer(make_app(pages.snapshots), host=host)
    await server.start_server(ssl=tls)
    try:
        pages.url = str(server.make_url("")).rstrip("/")
        yield server
    finally:
        await server.close()


def own_address() -> str:
    """An address of this machine that is not loopback, which a Service's endpoint must not be."""
    return address_towards("192.0.2.1")


@contextlib.asynccontextmanager
async def service(
    cluster: Cluster,
    url: str | None,
    where: tuple[str, str] = OURS,
    *,
    labels: Mapping[str, str] = LABELS,
    port: str = "http",
    number: int = 9000,
    other_ports: Sequence[str] = (),
) -> AsyncIterator[None]:
    """A Service that leads to ``url``, or nowhere if None; ``other_ports`` always lead nowhere."""
    namespace, name = where
    await cluster.create_namespace(namespace)
    group = f"/api/v1/namespaces/{namespace}"
    body = {
        "metadata": {"name": name, "labels": dict(labels)},
        "spec": {
            "ports": [
                {"name": name, "port": 8000 + number, "protocol": "TCP"}
                for number, name in enumerate(other_ports)
            ]
            + [{"name": port, "port": number, "protocol": "TCP"}]
        },
    }
    _ = (await cluster.post(f"{group}/services", body)).ok
    if isinstance(cluster, SimCluster) and url is not None:
        cluster.server.proxy.backends[where] = url
    if isinstance(cluster, EnvtestCluster):
        await _lead(cluster, group, name, port, url)
    try:
        yield
    finally:
        _ = (await cluster.delete(f"{group}/services/{name}")).ok  # its endpoints go with it
        await cluster.delete(f"{group}/pods/{name}", gracePeriodSeconds=0)


async def _lead(cluster: Cluster, group: str, name: str, port: str, url: str | None) -> None:
    """Create what controllers and kubelets would: the Endpoints, and the pod that they name.

    Without the pod the API server forwards nothing.
    """
    subsets = []
    if url is not None:
        host, _, number = url.rpartition("/")[2].partition(":")
        # The manifests may have set the namespace to accept restricted pods only.
        container = {"name": "dynsched", "image": "dynsched", "securityContext": RESTRICTED}
        whole = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
        spec = {"containers": [container], "securityContext": whole}
        pod = {"metadata": {"name": name}, "spec": spec}
        made = (await cluster.post(f"{group}/pods", pod)).ok
        ips = {"status": {"podIP": host, "podIPs": [{"ip": host}]}}
        _ = (await cluster.patch(f"{group}/pods/{name}/status", ips)).ok
        target = {"kind": "Pod", "name": name, "namespace": made["metadata"]["namespace"]}
        subsets = [
            {
                "addresses": [{"ip": host, "targetRef": target}],
                "ports": [{"name": port, "port": int(number), "protocol": "TCP"}],
            }
        ]
    endpoints = {"metadata": {"name": name}, "subsets": subsets}
    _ = (await cluster.post(f"{group}/endpoints", endpoints)).ok


def stranger(cluster: Cluster, folder: Path) -> Path:
    """A kubeconfig for a user without any permission."""
    may_not = {("list", "services"), ("get", "services/proxy")}
    return api_support.stranger(cluster, folder, may_not)


def in_namespace(kubeconfig: Path, namespace: str) -> Path:
    """A copy of the kubeconfig whose context has this namespace."""
    config = json.loads(kubeconfig.read_text())
    config["contexts"][0]["context"]["namespace"] = namespace
    path = kubeconfig.with_name(f"{kubeconfig.name}-{namespace}")
    path.write_text(json.dumps(config))
    return path
