"""API clients of dynsched made from a kubeconfig, and kubeconfigs for tests."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml
from cluster import Cluster, EnvtestCluster, SimCluster

from dynsched.kube.credentials import load_credentials
from dynsched.kube.transport import KubeApi

_EXEC = "client.authentication.k8s.io/v1"


@asynccontextmanager
async def api_of(
    kubeconfig: Path, kind: Callable[..., Any] = KubeApi, *more: Any, **options: Any
) -> AsyncIterator[Any]:
    """A client that is closed at the end. ``kind``: KubeClient for nodes, or another class."""
    api = kind(await load_credentials(str(kubeconfig)), *more, **options)
    try:
        yield api
    finally:
        await api.close()


def stranger(cluster: Cluster, folder: Path, what: set[tuple[str, str]]) -> Path:
    """A kubeconfig for a user without the permissions ``what``.

    On a real API server the user has no permission at all.
    """
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


class ExecPlugin:
    """A kubeconfig whose user is an exec plugin that returns ``token``.

    The token of the first run expires after ``lasts`` seconds, those of later runs after an hour.
    """

    def __init__(self, folder: Path, sim: SimCluster, lasts: float) -> None:
        self._runs, self._token = folder / "runs", folder / "token"
        self.token = sim.token
        program = folder / "plugin"
        program.write_text(
            f"""#!/bin/sh
            [ -s {self._runs} ] && lasts=3600 || lasts={lasts}
            expiry=$(date -u -d "$lasts seconds" +%Y-%m-%dT%H:%M:%S.%3NZ)
            printf '{{"apiVersion": "{_EXEC}", "kind": "ExecCredential", "status":
                {{"token": "%s", "expirationTimestamp": "%s"}}}}' "$(cat {self._token})" "$expiry"
            date +%s.%N >> {self._runs}
            """
        )
        program.chmod(0o700)
        config = yaml.safe_load(sim.kubeconfig.read_text())
        plugin = {"apiVersion": _EXEC, "command": str(program), "interactiveMode": "Never"}
        config["users"][0]["user"] = {"exec": plugin}
        self.kubeconfig = folder / "kubeconfig-exec"
        self.kubeconfig.write_text(yaml.safe_dump(config))

    @property
    def token(self) -> str:
        return self._token.read_text()

    @token.setter
    def token(self, token: str) -> None:
        self._token.write_text(token)

    @property
    def runs(self) -> list[float]:
        """The time of each run, in Unix seconds."""
        return [float(line) for line in self._runs.read_text().splitlines()]
