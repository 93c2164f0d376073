"""Nodes, pods and a real kube-scheduler. For tests and `benchmarks/effect.py`."""

import asyncio
import copy
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from cluster import NODES, Cluster, EnvtestCluster
from envtest import Envtest
from fake_prometheus import FakePrometheus
from manifest_support import OVERLAYS, Doc, load_all
from operator_support import Operator, until
from programs import ROOT
from replica_support import replica

PODS = "/api/v1/namespaces/default/pods"
REPLICA_SETS = "/apis/apps/v1/namespaces/default/replicasets"
(_NGINX,) = load_all(ROOT / "manifests/examples/nginx.yaml")
AVOID = _NGINX["spec"]["template"]["spec"]["affinity"]
TAINT = "dynsched.io/pressure=true:PreferNoSchedule"
RULE: Doc = {"name": "load", "expr": "load", "threshold": 80, "resource": "memory"}


def rules(**sections: Any) -> Doc:
    """A rules file with one rule, ``load`` > 80, and additional sections."""
    return {"guard": {"max_marked": "100%", "max_releases": "100%"}, "rules": [RULE], **sections}


def scheduler_config(overlay: str) -> Doc:
    """The KubeSchedulerConfiguration that an overlay ships."""
    (found,) = load_all(OVERLAYS / overlay / "kubescheduler-config.yaml")
    return found


def extended(overlay: str, address: str) -> Doc:
    """`scheduler_config` with dynsched's extender at ``address``, and without leader election."""
    config = copy.deepcopy(scheduler_config(overlay))
    for extender in config["extenders"]:
        extender["urlPrefix"] = f"http://{address}"
    config["leaderElection"] = {"leaderElect": False}
    config.pop("clientConnection", None)
    return config


@contextmanager
def scheduler(envtest: Envtest, config: Doc | None = None) -> Iterator[None]:
    stop = envtest.start_scheduler(config)
    try:
        yield
    finally:
        stop()


@asynccontextmanager
async def dynsched(
    cluster: Cluster,
    prometheus: FakePrometheus,
    folder: Path,
    content: Doc,
    *more: str,
    kubeconfig: Path | None = None,
) -> AsyncIterator[Operator]:
    """A ready `dynsched run`."""
    how = {"content": content, "kubeconfig": kubeconfig}
    async with replica(cluster, prometheus, folder, *more, **how) as operator:
        await operator.until_ready()
        yield operator


async def set_loads(
    cluster: Cluster, prometheus: FakePrometheus, loads: Mapping[str, float]
) -> None:
    """Create empty nodes of equal size, with these loads."""
    prometheus.set(load=loads)
    await cluster.create_nodes(*loads)


async def marked(cluster: EnvtestCluster, count: int) -> None:
    async def all_of_them() -> bool:
        return len(await cluster.list_nodes("status=presure")) == count

    await until(all_of_them, f"{count} nodes are marked")


def make_pod(name: str, *, cpu: str = "100m", memory: str = "128Mi", **spec: Any) -> Doc:
    container = {"name": "app", "image": "app:1"}
    container |= {"resources": {"requests": {"cpu": cpu, "memory": memory}}}
    return {
        "metadata": {"name": name, "labels": {"app": "app"}},
        "spec": {"containers": [container], **spec},
    }


async def replicas(
    cluster: EnvtestCluster, count: int, *, owned: bool = True, **details: Any
) -> list[str]:
    """Create ``count`` pods concurrently; returns their names.

    ``owned``: the pods belong to a ReplicaSet. The scheduler spreads such pods by default, but not
    those of a Job or without an owner.
    """
    name = f"app-{uuid.uuid4().hex[:8]}"
    pods = [make_pod(f"{name}-{number}", **details) for number in range(count)]
    if owned:
        template = {key: pods[0][key] for key in ("metadata", "spec")}
        spec = {"selector": {"matchLabels": {"app": "app"}}, "template": template}
        created = (await cluster.post(REPLICA_SETS, {"metadata": {"name": name}, "spec": spec})).ok
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "controller": True}
        owner["uid"] = created["metadata"]["uid"]
        for pod in pods:
            pod["metadata"]["ownerReferences"] = [owner]
    for answer in await asyncio.gather(*(cluster.post(PODS, pod) for pod in pods)):
        _ = answer.ok
    return [pod["metadata"]["name"] for pod in pods]


async def placed(cluster: EnvtestCluster, names: list[str]) -> Counter[str]:
    """Number of these pods on each node, once all of them are bound."""
    wanted = set(names)

    async def nodes() -> list[str] | None:
        pods = (await cluster.get(PODS)).ok["items"]
        found = [p["spec"].get("nodeName") for p in pods if p["metadata"]["name"] in wanted]
        return found if all(found) and len(found) == len(wanted) else None

    return Counter(await until(nodes, f"all of {len(names)} pods are bound"))


async def refusal(cluster: EnvtestCluster, pod: str) -> str:
    """The message of the pod's FailedScheduling event."""

    async def message() -> str | None:
        selector = f"involvedObject.name={pod},reason=FailedScheduling"
        events = (await cluster.get("/api/v1/events", fieldSelector=selector)).ok["items"]
        return events[-1].get("message") or events[-1].get("note") if events else None

    found: str = await until(message, f"{pod} has an event")
    return found


async def clear(cluster: EnvtestCluster) -> None:
    """Delete all nodes, pods and ReplicaSets."""
    for path in (PODS, REPLICA_SETS, NODES):
        _ = (await cluster.delete(path, gracePeriodSeconds=0)).ok
