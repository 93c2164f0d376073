"""What of dynsched talks to an API server: of a kubeconfig, for as long as a test needs it."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import yaml
from cluster import Cluster, EnvtestCluster, SimCluster
from operator_support import until

from dynsched.kube.client import KubeClient
from dynsched.kube.kubeconfig import load_config
from dynsched.kube.transport import KubeApi
from dynsched.util.errors import ClusterError


@asynccontextmanager
async def api_of(
    kubeconfig: Path, kind: Callable[..., Any] = KubeApi, *more: Any, **options: Any
) -> AsyncIterator[Any]:
    """``kind``: KubeClient for nodes, or what else is closed."""
    api = kind(await load_config(str(kubeconfig)), *more, **options)
    try:
        yield api
    finally:
        await api.close()


def stranger(cluster: Cluster, folder: Path, what: set[tuple[str, str]]) -> Path:
    """The kubeconfig of somebody who may not do ``what``: on a real API server, nothing at all."""
    if isinstance(cluster, EnvtestCluster):
        return cluster.servers.kubeconfig(folder / "stranger", cluster.servers.stranger_token)
    assert isinstance(cluster, SimCluster)
    cluster.server.forbidden |= what
    return cluster.kubeconfig


def kubeconfig(path: Path, server: str, *, user: Any = None, **cluster: Any) -> Path:
    body = {
        "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "u", "user": user or {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "ns"}}],
        "current-context": "x",
    }
    path.write_text(yaml.safe_dump(body))
    return path


async def takes_up(client: KubeClient) -> None:
    """Wait until renewed credentials are used: for some seconds after a call that failed, no
    further one is sent.
    """

    async def answers() -> bool:
        with suppress(ClusterError):
            return await client.list_nodes() == {}
        return False

    await until(answers, "the renewed credentials are used")
