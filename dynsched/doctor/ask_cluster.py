"""Asks the API server what the checks of nodes, pods and rights need. Read-only: lists, gets, and
reviews of rights, which store nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from dynsched.core.errors import ConflictError
from dynsched.core.reach import Reach
from dynsched.kube.client import KubeClient
from dynsched.kube.config import load_config
from dynsched.kube.pods_listed import fold_pods

_TRIES: Final = 2
"""A list of many pods whose snapshot expires before its end is begun once more."""


@contextlib.asynccontextmanager
async def open_client(kubeconfig: Path | None, context: str | None) -> AsyncIterator[KubeClient]:
    """Connections to the API server. ClusterError with one line for a person."""
    client = KubeClient(await load_config(str(kubeconfig) if kubeconfig else None, context))
    try:
        yield client
    finally:
        await client.close()


async def count_pods(client: KubeClient, reach: Reach) -> None:
    """Count all running pods into ``reach``. ClusterError."""
    for attempt in range(1, _TRIES + 1):
        try:
            await fold_pods(client.api, reach.add)
        except ConflictError:
            if attempt == _TRIES:
                raise
            reach.clear()
        else:
            return
