"""What the order costs the creation of a pod, on a real API server.

    export KUBEBUILDER_ASSETS=/path/to/bin
    python benchmarks/order_creation.py [--nodes 5000] [--pods 2000]

Pods are created one after the other, in turns in a namespace that asks for the order and in one
that does not. The order is written anew every 2 s meanwhile, as `dynsched run` does while it
changes; each node's name has 44 characters. The time of a creation is from the request to the end
of the answer, and the size that of the pod in protobuf, as etcd keeps it.

Target: the 99th percentile differs by 1 ms at most, and a pod grows by 2 KiB at most.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import statistics
import sys
import time
from dataclasses import dataclass, field

from closedloop.order_policy import NAMESPACE, asking, until_told
from closedloop.servers import control_plane
from cluster import EnvtestCluster
from envtest import Envtest, assets
from rich.console import Console
from rich.table import Table
from scheduling_support import make_pod

from dynsched.controller.ordering import APART, LASTS
from dynsched.engine.model import Order
from dynsched.engine.order import node_lists
from dynsched.kube.client import KubeClient
from dynsched.kube.kubeconfig import load_config
from dynsched.kube.node_order import NodeOrder
from dynsched.rules import keys

OTHER = "without"
WARM = 200
"""Pods of each kind that are created first, and not counted."""
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_PROTOBUF = "application/vnd.kubernetes.protobuf"


@dataclass
class Created:
    """Of the pods in one namespace: seconds, and bytes."""

    seconds: list[float] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)

    def figures(self) -> list[float]:
        """p50, p90 and p99 in milliseconds; the mean and the largest size."""
        cuts = statistics.quantiles(self.seconds, n=100)
        times = [1000 * cuts[at - 1] for at in (50, 90, 99)]
        return [*times, statistics.mean(self.sizes), max(self.sizes)]


async def write(order: NodeOrder, nodes: int) -> None:
    """An order like no other."""
    names = [f"gke-production-default-pool-8f0c2d4e-{number:07d}" for number in range(nodes)]
    random.shuffle(names)
    await order.write(Order({"": node_lists(names)}), LASTS)


async def renew(order: NodeOrder, nodes: int) -> None:
    """Another one every APART seconds."""
    while True:
        await asyncio.sleep(APART)
        await write(order, nodes)


async def create(cluster: EnvtestCluster, namespace: str, number: int) -> tuple[float, int]:
    """One pod: how long it took, and its size."""
    # The volume of the service account's token, which admission is off for here: by its letters
    # the policy chooses one of the lists.
    volume = f"kube-api-access-{''.join(random.choices(_LETTERS, k=5))}"
    pod = make_pod(f"app-{number:06d}", volumes=[{"name": volume, "emptyDir": {}}])
    body = json.dumps(pod).encode()
    headers = {"Authorization": f"Bearer {cluster.token}", "Accept": _PROTOBUF}
    headers["Content-Type"] = "application/json"
    path = f"/api/v1/namespaces/{namespace}/pods"
    began = time.perf_counter()
    async with cluster.session.post(path, data=body, headers=headers) as answer:
        made = await answer.read()
    took = time.perf_counter() - began
    assert answer.status == 201, made
    has_order = keys.ORDER_ANNOTATION.encode() in made
    assert has_order is (namespace == NAMESPACE), f"{namespace}: order {has_order}"
    return took, len(made)


async def measure(servers: Envtest, nodes: int, pods: int) -> dict[str, Created]:
    found = {NAMESPACE: Created(), OTHER: Created()}
    async with EnvtestCluster(servers, servers.folder) as cluster, asking(cluster):
        await cluster.create_namespace(OTHER)
        client = KubeClient(await load_config(cluster.kubeconfig))
        order = NodeOrder(client, NAMESPACE, lambda: True)
        await write(order, nodes)
        await until_told(cluster)
        renewing = asyncio.create_task(renew(order, nodes))
        try:
            for number in range(WARM + pods):
                for namespace in random.sample(list(found), 2):
                    took, size = await create(cluster, namespace, number)
                    if number >= WARM:
                        found[namespace].seconds.append(took)
                        found[namespace].sizes.append(size)
            assert not renewing.done(), renewing
        finally:
            renewing.cancel()
            await client.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=2000, help="in each namespace")
    options = parser.parse_args()
    programs = assets()
    if programs is None:
        sys.exit("set KUBEBUILDER_ASSETS to a folder with etcd and kube-apiserver")
    with control_plane(programs) as servers:
        found = asyncio.run(measure(servers, options.nodes, options.pods))
    with_order, without = found[NAMESPACE], found[OTHER]
    rows = [("without", without.figures()), ("with the order", with_order.figures())]
    more = [a - b for b, a in zip(rows[0][1], rows[1][1], strict=True)]
    rows.append(("difference", more))
    table = Table("", "p50, ms", "p90", "p99", "bytes of a pod, mean", "most")
    for what, (*times, mean, most) in rows:
        table.add_row(what, *(f"{ms:.2f}" for ms in times), f"{mean:,.0f}", f"{most:,.0f}")
    Console().print(table)
    where = f"Python {platform.python_version()}, {os.cpu_count()} cores"
    print(f"{options.nodes:,} nodes, {options.pods:,} pods of each kind; {where}")


if __name__ == "__main__":
    main()
