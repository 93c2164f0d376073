"""manifests/overlays/web-auth on a real API server: the rights that it gives suffice, and what the
API server's own proxy does with a token.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import aiohttp
import pytest
from cluster import EnvtestCluster
from envtest import Envtest
from fake_prometheus import FakePrometheus
from manifest_support import OVERLAYS, Kubectl, kustomize, the
from operator_support import Operator, until, write_rules
from pods_support import PODS
from pods_support import pod as a_pod
from reader_support import bearer

from dynsched.sim.nodes import make_node

pytestmark = pytest.mark.slow

RULES = {"rules": [{"name": "cpu", "expr": "cpu", "threshold": 80}]}


@pytest.fixture
async def applied(envtest: Envtest, tmp_path: Path) -> AsyncIterator[EnvtestCluster]:
    async with EnvtestCluster(envtest, tmp_path) as cluster:
        await asyncio.to_thread(Kubectl(cluster.kubeconfig), "apply", "-k", OVERLAYS / "web-auth")
        yield cluster


async def test_with_the_rights_of_the_overlay_it_lets_readers_in(
    applied: EnvtestCluster, envtest: Envtest, tmp_path: Path
) -> None:
    kubectl = Kubectl(applied.kubeconfig)

    async def token_of(account: str) -> str:
        return (
            await asyncio.to_thread(kubectl, "-n", "dynsched", "create", "token", account)
        ).strip()

    own = await token_of("dynsched")
    await asyncio.to_thread(kubectl, "-n", "dynsched", "create", "serviceaccount", "stranger")
    stranger = await token_of("stranger")
    kubeconfig = envtest.kubeconfig(tmp_path / "kubeconfig-account", own)
    await applied.create_node(make_node("a", 0))
    container = the(kustomize(OVERLAYS / "web-auth"), "Deployment")["spec"]["template"]["spec"][
        "containers"
    ][0]
    assert {"name": "DYNSCHED_WEB_AUTH", "value": "true"} in container["env"]
    try:
        async with FakePrometheus() as prometheus:
            prometheus.set(cpu={"a": 10})
            flags = ("--kubeconfig", str(kubeconfig), "--prom", prometheus.url, "--web-auth")
            flags += ("-r", str(write_rules(tmp_path, RULES)), "--lease-namespace", "dynsched")
            async with (
                Operator(tmp_path, "run", *flags) as operator,
                aiohttp.ClientSession(f"http://{operator.address}") as session,
            ):
                await operator.until_ready()
                for path in ("/", "/status", "/nodes", "/nodes/a", "/metrics", "/page/data"):
                    async with session.get(path, headers=bearer(own)) as answer:
                        assert answer.status == 200, path
                    async with session.get(path, headers=bearer(stranger)) as answer:
                        assert answer.status == 403, path
                assert await operator.stop() == 0
                assert "answered 403" not in operator.log
    finally:
        await asyncio.to_thread(kubectl, "-n", "dynsched", "delete", "serviceaccount", "stranger")


class _Echo(BaseHTTPRequestHandler):
    """Answers with the headers that arrived."""

    def do_GET(self) -> None:
        body = json.dumps({name.lower(): value for name, value in self.headers.items()}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def own_address() -> str:
    """An address of this machine that is not loopback: the API server proxies to no other."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as found:
        try:
            found.connect(("192.0.2.1", 9))  # sends nothing: the kernel only looks for a route
        except OSError:
            pytest.skip("this machine has no address but loopback")
        return str(found.getsockname()[0])


async def test_the_service_proxy_keeps_the_token_for_itself(applied: EnvtestCluster) -> None:
    """So `kubectl proxy` and the service proxy cannot carry a reader's token: docs/web-auth.md."""
    address = own_address()
    server = ThreadingHTTPServer((address, 0), _Echo)
    thread = Thread(target=server.serve_forever, args=[0.01], daemon=True)
    thread.start()
    name, port = "token-echo", {"name": "http", "port": server.server_port}
    service = {"metadata": {"name": name}, "spec": {"ports": [{"name": "http", "port": 9000}]}}
    # The API server proxies to addresses of pods alone.
    pod = {"kind": "Pod", "name": name, "namespace": "default"}
    subset = {"addresses": [{"ip": address, "targetRef": pod}], "ports": [port]}
    endpoint = {"addresses": [address], "conditions": {"ready": True}, "targetRef": pod}
    endpoint_slice = {
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": name}},
        "addressType": "IPv4",
        "endpoints": [endpoint],
        "ports": [port],
    }
    places = (
        (PODS, a_pod(name, "a")),
        ("/api/v1/namespaces/default/services", service),
        (
            "/api/v1/namespaces/default/endpoints",
            {"metadata": {"name": name}, "subsets": [subset]},
        ),
        ("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", endpoint_slice),
    )
    try:
        for place, body in places:
            assert (await applied.post(place, body)).status == 201
        status = {"status": {"podIP": address, "podIPs": [{"ip": address}]}}
        _ = (await applied.patch(f"{PODS}/{name}/status", status)).ok
        path = f"/api/v1/namespaces/default/services/http:{name}:9000/proxy/nodes"

        async def reached() -> Any:
            answer = await applied.request("GET", path, headers={"X-Other": "passed on"})
            return answer.body if answer.status == 200 else None

        headers = await until(reached, "the service proxy")
        assert headers["x-other"] == "passed on"
        assert "authorization" not in headers
    finally:
        for place, _ in reversed(places):
            await applied.delete(f"{place}/{name}", gracePeriodSeconds=0)
        await asyncio.to_thread(server.shutdown)
        server.server_close()
        thread.join(5)
