"""How long the creation of a pod takes on a real API server: without the order, with it from the
policy or from the webhook, and when something is wrong with the webhook.

    export KUBEBUILDER_ASSETS=/path/to/bin
    python benchmarks/order_webhook.py [--nodes 1000] [--pods 500]

`dynsched run` ranks nodes whose names have 44 characters. Each row creates pods one after the
other, or only 20 if each one takes long. A burst is 1,000 creations, 100 of them concurrently.
The time lasts from the request to the end of the response; "order" is the share of pods that got
the order.

Target: no creation fails, and no fault costs a pod more than the webhook's timeout of one second.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import signal
import ssl
import statistics
import sys
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
from closedloop.order_policy import asking, until_told
from closedloop.servers import control_plane
from cluster import EnvtestCluster
from envtest import Envtest, assets
from rich.console import Console
from rich.table import Table

sys.path.append(str(Path(__file__).parent.parent / "tests" / "support"))

from certificates import Authority
from fake_prometheus import FakePrometheus
from operator_support import Operator
from order_creation import named
from prometheus_support import free_port
from scheduling_support import PODS, dynsched, make_pod, rules, set_loads
from webhook_support import at, certificate, configuration, configured

from dynsched.rules import keys

FEW = 20
BURST, AT_ONCE = 1000, 100
"""With more concurrent requests the API server refuses some with 429, with or without the order."""
MIB = 1 << 20
LEASE = ("--lease-namespace", "default", "--interval", "10")
RULES = rules(order={"score": {"load": 1}})
SERVICE = {"namespace": "default", "name": "dynsched", "port": 9443, "path": "/webhook/order"}
OF_EDIT = "system:aggregate-to-edit"  # `edit` is empty without the controller that aggregates it
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings"
MAY_CREATE = {
    "metadata": {"name": "creator"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": OF_EDIT},
    "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "stranger"}],
}
"""A plain user creates the pods: an admin's requests have no limit, those of a controller queue."""
ASKS = {"metadata": {"labels": {keys.AVOID_LABEL: "true"}}}

Created = tuple[float, bool]
"""Seconds for the pod, and whether it got the order."""
Row = tuple[str, Sequence[float], float]
"""Title, seconds of each creation, and the share of pods that got the order."""


class Bench:
    """Creates pods and collects the rows of the table."""

    def __init__(self, cluster: EnvtestCluster, pods: int, session: aiohttp.ClientSession) -> None:
        self.cluster = cluster
        self._pods = pods
        self._session = session
        self.rows: list[Row] = []

    async def one(self, pod: Any) -> Created:
        body = json.dumps(pod).encode()
        headers = {"Authorization": f"Bearer {self.cluster.servers.stranger_token}"}
        headers["Content-Type"] = "application/json"
        began = time.perf_counter()
        async with self._session.post(
            f"{self.cluster.url}{PODS}?dryRun=All", data=body, headers=headers
        ) as answer:
            made = await answer.read()
        assert answer.status == 201, made
        return time.perf_counter() - began, keys.ORDER_ANNOTATION.encode() in made

    async def row(self, what: str, pods: int | None = None, padding: int = 0) -> None:
        """Create pods one after the other."""
        pod = make_pod("probe")
        container = pod["spec"]["containers"][0]
        container["env"] = [{"name": "P", "value": "x" * padding}] if padding else []
        for _ in range(FEW if pods is None else 1):
            await self.one(pod)  # warm-up: connections and code
        self._keep(what, [await self.one(pod) for _ in range(pods or self._pods)])

    async def burst(self, what: str) -> None:
        turns = asyncio.Semaphore(AT_ONCE)

        async def one(number: int) -> Created:
            async with turns:
                return await self.one(make_pod(f"probe-{number}"))

        began = time.perf_counter()
        found = await asyncio.gather(*map(one, range(BURST)))
        self._keep(f"{what}: {time.perf_counter() - began:.1f} s in all", found)

    def _keep(self, what: str, found: Sequence[Created]) -> None:
        seconds, with_order = zip(*found, strict=True)
        self.rows.append((what, seconds, sum(with_order) / len(found)))
        print(f"{what}: {1000 * statistics.median(seconds):.1f} ms", flush=True)


async def of_policy(bench: Bench, prometheus: FakePrometheus, folder: Path) -> None:
    async with (
        asking(bench.cluster),
        dynsched(bench.cluster, prometheus, folder, RULES, *LEASE),
    ):
        await until_told(bench.cluster)
        await bench.row("policy")
        await bench.row("policy, a pod of 1 MB", FEW, MIB)
        await bench.burst("policy; a burst")


async def of_webhook(
    bench: Bench, operator: Operator, authority: Authority, other: Authority, port: int
) -> None:
    """Measure the webhook while it works and while the process is stopped or its CA is wrong."""
    async with configured(bench.cluster, configuration(authority.cert, url=at(port))):
        await until_told(bench.cluster)
        await bench.row("webhook")
        await bench.row("webhook, a pod of 1 MB", FEW, MIB)
        await bench.burst("webhook; a burst")
        os.kill(operator.process.pid, signal.SIGSTOP)
        try:
            await bench.row("stopped by SIGSTOP", FEW)
            await bench.burst("stopped by SIGSTOP; a burst")
        finally:
            os.kill(operator.process.pid, signal.SIGCONT)
    async with configured(bench.cluster, configuration(other.cert, url=at(port))):
        await asyncio.sleep(1)
        await bench.row("the CA bundle is another's")


async def without_anybody(bench: Bench, authority: Authority) -> None:
    """Measure with nothing listening, at an address or behind a Service."""
    async with configured(bench.cluster, configuration(authority.cert, url=at(free_port()))):
        await asyncio.sleep(1)
        await bench.row("dynsched gone, connections are refused")
    gone = configuration(authority.cert, service=SERVICE)
    async with configured(bench.cluster, gone):
        await asyncio.sleep(1)
        await bench.row("dynsched gone, no such Service")
    ports = [{"port": 9443}]
    body = {"metadata": {"name": "dynsched"}, "spec": {"selector": {"a": "b"}, "ports": ports}}
    _ = (await bench.cluster.post("/api/v1/namespaces/default/services", body)).ok
    async with configured(bench.cluster, gone):
        await asyncio.sleep(1)
        await bench.row("dynsched gone, a Service without endpoints", FEW)


async def directly(authority: Authority, port: int) -> list[Row]:
    """Send requests that no API server sends, and measure the seconds until the status."""
    head = {"kind": "AdmissionReview", "request": {"uid": "u", "object": make_pod("a")}}
    bodies = {
        "v1beta1": json.dumps(head | {"apiVersion": "admission.k8s.io/v1beta1"}).encode(),
        "garbage": b"\x00" * 100,
        "garbage of 8 MB": b"[" * (8 * MIB),
        "9 MB": b"x" * (9 * MIB),
    }
    found: list[Row] = []
    context = ssl.create_default_context(cafile=authority.cert)
    async with aiohttp.ClientSession() as session:
        for what, body in bodies.items():
            seconds, statuses = [], set()
            for _ in range(FEW):
                began = time.perf_counter()
                async with session.post(at(port), data=body, ssl=context) as answer:
                    statuses.add(answer.status)
                seconds.append(time.perf_counter() - began)
            found.append((f"to the webhook itself, {what}: {statuses}", seconds, 0.0))
    return found


async def measure(servers: Envtest, nodes: int, pods: int) -> list[Row]:
    folder = servers.folder
    authority, loads = Authority(folder, "ca"), {}
    for node in named(nodes):
        loads[node.host] = 20.0 + 50.0 * node.load / nodes
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(EnvtestCluster(servers, folder))
        prometheus = await stack.enter_async_context(FakePrometheus())
        await set_loads(cluster, prometheus, loads)
        _ = (await cluster.post(BINDINGS, MAY_CREATE)).ok
        connector = aiohttp.TCPConnector(ssl=servers.ssl(), limit=AT_ONCE)
        session = await stack.enter_async_context(aiohttp.ClientSession(connector=connector))
        bench = Bench(cluster, pods, session)
        await bench.row("no order")
        await bench.row("no order, a pod of 1 MB", FEW, MIB)
        await bench.burst("no order; a burst")
        await of_policy(bench, prometheus, folder)
        _ = (await cluster.patch("/api/v1/namespaces/default", ASKS)).ok
        files, port = certificate(authority, folder / "webhook"), free_port()
        flags = ("--webhook-cert-dir", str(files), "--webhook-addr", f"127.0.0.1:{port}")
        async with dynsched(cluster, prometheus, folder, RULES, *LEASE, *flags) as operator:
            await of_webhook(bench, operator, authority, Authority(folder, "other"), port)
            bench.rows += await directly(authority, port)
        await without_anybody(bench, authority)
    return bench.rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=500, help="in each row")
    options = parser.parse_args()
    programs = assets()
    if programs is None:
        sys.exit("set KUBEBUILDER_ASSETS to a folder with etcd and kube-apiserver")
    with control_plane(programs) as servers:
        rows = asyncio.run(measure(servers, options.nodes, options.pods))
    table = Table("", "pods", "p50, ms", "p99", "order, %")
    for what, seconds, share in rows:
        cuts = statistics.quantiles(seconds, n=100, method="inclusive")
        times = [f"{1000 * cuts[cut - 1]:.1f}" for cut in (50, 99)]
        table.add_row(what, str(len(seconds)), *times, f"{100 * share:.0f}")
    Console(width=120).print(table)
    where = f"Python {platform.python_version()}, {os.cpu_count()} cores"
    print(f"{options.nodes:,} nodes, {options.pods:,} pods in a row; {where}")


if __name__ == "__main__":
    main()
