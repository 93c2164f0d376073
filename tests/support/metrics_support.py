"""NodeMetrics in both forms of a cluster.

On the simulated one they come from its metrics-server. On the real API server they are custom
resources, served under the same paths of metrics.k8s.io.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from cluster import Cluster, SimCluster
from manifest_support import custom_resource

API = "/apis/metrics.k8s.io/v1beta1/nodes"
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_DEFINITION = custom_resource("NodeMetrics", "nodes", "metrics.k8s.io", "v1beta1", "Cluster")


async def set_usage(
    cluster: Cluster, node: str, *, cpu: str = "0", memory: str = "0", at: datetime | None = None
) -> None:
    """Set the usage of a node. On a real API server, `metrics_api` must be entered."""
    if isinstance(cluster, SimCluster):
        cluster.server.serves_metrics = True
    body = {
        "apiVersion": "metrics.k8s.io/v1beta1",
        "kind": "NodeMetrics",
        "metadata": {"name": node},
        "timestamp": (at or datetime.now(UTC)).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "window": "20.05s",
        "usage": {"cpu": cpu, "memory": memory},
    }
    answer = await cluster.post(API, body)
    if answer.status == 409:
        answer = await cluster.patch(f"{API}/{node}", body)
    assert answer.ok


@asynccontextmanager
async def metrics_api(cluster: Cluster) -> AsyncIterator[None]:
    """Serve the metrics API until the block ends."""
    if isinstance(cluster, SimCluster):
        cluster.server.serves_metrics = True
        yield
        cluster.server.serves_metrics = False
        return
    assert (await cluster.post(_DEFINITIONS, _DEFINITION)).ok
    try:
        await _until_status(cluster, API, 200)
        yield
    finally:
        assert (await cluster.delete(f"{_DEFINITIONS}/nodes.metrics.k8s.io")).ok
        await _until_status(cluster, API, 404)


async def _until_status(cluster: Cluster, path: str, status: int) -> None:
    async with asyncio.timeout(90):
        while (await cluster.get(path)).status != status:
            await asyncio.sleep(0.05)
