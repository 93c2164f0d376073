"""The cost of the order for the creation of a pod, on a real API server.

    export KUBEBUILDER_ASSETS=/path/to/bin
    python benchmarks/order_creation.py [--nodes 5000] [--pods 2000]

Pods are created one after the other, in turns of ten, in four namespaces: one that gets the order;
one without it; one whose policy of the same kind only adds an annotation; and one without a policy,
whose pods already have as many affinity terms as the order adds. Meanwhile a new order is written
every 2 s, as `dynsched run` does while the order changes. Node names have 44 characters. The time
of a creation lasts from the request to the end of the response; CPU is what the API server used
during it; the size is that of the pod in protobuf, as in etcd.

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
from typing import Any

import yaml
from closedloop.order_policy import NAMESPACE, asking, until_told
from closedloop.servers import control_plane
from cluster import EnvtestCluster
from envtest import Envtest, assets
from manifest_support import order_component
from operator_support import until
from rich.console import Console
from rich.table import Table
from scheduling_support import make_pod

from dynsched.features.order.ranks import Order
from dynsched.features.order.resource import NodeOrder
from dynsched.features.order.tiers import Pool, Ranked, lists_that_fit
from dynsched.features.order.writer import APART, LASTS
from dynsched.kube.client import KubeClient, LeaderWriter
from dynsched.kube.credentials import load_credentials
from dynsched.rules import keys

OTHER, BARE, OWN = "without", "annotation-alone", "terms-of-its-own"
BATCH = 10
"""Pods created in one namespace before it is the next one's turn."""
WARM = 200
"""Pods per namespace that are created first, and not counted."""
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_PROTOBUF = "application/vnd.kubernetes.protobuf"


@dataclass
class Created:
    """Per pod in one namespace: seconds and bytes. ``cpu``: the API server's CPU seconds in all."""

    seconds: list[float] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    cpu: float = 0.0

    def figures(self) -> list[float]:
        """p50, p90, p99 and CPU per pod, in milliseconds; the mean and maximum size in bytes."""
        cuts = statistics.quantiles(self.seconds, n=100)
        times = [*(cuts[at - 1] for at in (50, 90, 99)), self.cpu / len(self.seconds)]
        return [*(1000 * each for each in times), statistics.mean(self.sizes), max(self.sizes)]


def named(nodes: int) -> list[Ranked]:
    """The nodes in random order, with rising loads."""
    names = [f"gke-production-default-pool-8f0c2d4e-{number:07d}" for number in range(nodes)]
    random.shuffle(names)
    return [Ranked(name, load, load, 60) for load, name in enumerate(names)]


def order_of(nodes: int) -> Order:
    lists, overflow = lists_that_fit({"": Pool(named(nodes))}, nodes)
    return Order(lists, overflow)


def affinity(nodes: int) -> dict[str, Any]:
    """The affinity that the policy makes of the first list."""
    (tiers, *_) = order_of(nodes).lists[""]
    host = {"key": keys.HOSTNAME_LABEL, "operator": "In"}
    terms = [
        {"weight": weight, "preference": {"matchExpressions": [{**host, "values": names}]}}
        for weight, names, _ in tiers
    ]
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}


async def write(order: NodeOrder, nodes: int) -> None:
    """Write an order that differs from all earlier ones, because the nodes are shuffled."""
    await order.write(order_of(nodes), LASTS)


async def renew(order: NodeOrder, nodes: int) -> None:
    """Write a new order every APART seconds."""
    while True:
        await asyncio.sleep(APART)
        await write(order, nodes)


async def add_bare_policy(cluster: EnvtestCluster) -> None:
    """Add a policy that reads no parameter and adds the annotation to the pods in BARE."""
    await cluster.create_namespace(BARE)
    _, policy, binding, *_ = yaml.safe_load_all(order_component())
    binding["metadata"]["name"] = binding["spec"]["policyName"] = policy["metadata"]["name"] = BARE
    del binding["spec"]["paramRef"], policy["spec"]["paramKind"], policy["spec"]["variables"]
    labels = {"kubernetes.io/metadata.name": BARE}
    policy["spec"]["matchConstraints"]["namespaceSelector"] = {"matchLabels": labels}
    value = f"{{'{keys.ORDER_ANNOTATION}': 'x'}}"
    patch = f"[JSONPatch{{op: 'add', path: '/metadata/annotations', value: {value}}}]"
    policy["spec"]["mutations"][0]["jsonPatch"]["expression"] = patch
    for kind, body in (("policies", policy), ("policybindings", binding)):
        path = f"/apis/admissionregistration.k8s.io/v1/mutatingadmission{kind}"
        _ = (await cluster.post(path, body)).ok

    async def in_force() -> bool:
        pods = f"/api/v1/namespaces/{BARE}/pods"
        made = (await cluster.post(pods, make_pod("probe"), dryRun="All")).ok
        return "annotations" in made["metadata"]

    await until(in_force, "the policy for comparison is in force")


async def create(
    cluster: EnvtestCluster, namespace: str, number: int, own: dict[str, Any]
) -> tuple[float, int]:
    """Create a pod; returns seconds and bytes. ``own``: the affinity for pods in OWN."""
    # This volume stands in for the service account token's, because that admission plugin is off
    # here. The policy chooses one of the lists by the letters in its name.
    volume = f"kube-api-access-{''.join(random.choices(_LETTERS, k=5))}"
    pod = make_pod(f"app-{number:06d}", volumes=[{"name": volume, "emptyDir": {}}])
    if namespace == OWN:
        pod["spec"]["affinity"] = own
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
    assert has_order is (namespace in {BARE, NAMESPACE}), f"{namespace}: order {has_order}"
    return took, len(made)


async def measure(servers: Envtest, nodes: int, pods: int) -> dict[str, Created]:
    found = {namespace: Created() for namespace in (OTHER, BARE, OWN, NAMESPACE)}
    own = affinity(nodes)
    async with EnvtestCluster(servers, servers.folder) as cluster, asking(cluster):
        await cluster.create_namespace(OTHER)
        await cluster.create_namespace(OWN)
        await add_bare_policy(cluster)
        client = KubeClient(await load_credentials(cluster.kubeconfig))
        order = NodeOrder(client, NAMESPACE, LeaderWriter())
        await write(order, nodes)
        await until_told(cluster)
        renewing = asyncio.create_task(renew(order, nodes))
        try:
            for first in range(0, WARM + pods, BATCH):
                for namespace in random.sample(list(found), len(found)):
                    kept, before = found[namespace], servers.cpu("kube-apiserver")
                    for number in range(first, first + BATCH):
                        took, size = await create(cluster, namespace, number, own)
                        kept.seconds.append(took)
                        kept.sizes.append(size)
                    kept.cpu += servers.cpu("kube-apiserver") - before
                if first + BATCH == WARM:
                    found.update({namespace: Created() for namespace in found})
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
    table = Table("", "p50, ms", "p90", "p99", "CPU", "bytes of a pod, mean", "most")
    names = {
        OTHER: OTHER,
        BARE: "an annotation alone",
        OWN: "terms of its own",
        NAMESPACE: "the order",
    }
    rows = {names[namespace]: created.figures() for namespace, created in found.items()}
    for what in list(rows)[1:]:
        more = zip(rows[OTHER], rows[what], strict=True)
        rows[f"{what}: more"] = [a - b for b, a in more]
    for what, (*times, mean, most) in rows.items():
        table.add_row(what, *(f"{ms:.2f}" for ms in times), f"{mean:,.0f}", f"{most:,.0f}")
    Console().print(table)
    where = f"Python {platform.python_version()}, {os.cpu_count()} cores"
    print(f"{options.nodes:,} nodes, {options.pods:,} pods of each kind; {where}")


if __name__ == "__main__":
    main()
