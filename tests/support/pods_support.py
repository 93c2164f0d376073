"""Pods as tests make them, and an API for those who watch them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from cluster import Cluster

from dynsched.kube.config import load_config
from dynsched.kube.stream import StreamingApi

PODS = "/api/v1/namespaces/default/pods"


def pod(name: str, node: str | None = None, **requests: str) -> dict[str, Any]:
    resources = {"requests": requests} if requests else {}
    spec: dict[str, Any] = {
        "containers": [{"name": "c", "image": "i", "resources": resources}],
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 0,
    }
    if node is not None:
        spec["nodeName"] = node
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


async def create(cluster: Cluster, body: Mapping[str, Any]) -> dict[str, Any]:
    account = "/api/v1/namespaces/default/serviceaccounts"
    await cluster.post(account, {"metadata": {"name": "default"}})  # envtest has no controllers
    found: dict[str, Any] = (await cluster.post(PODS, body)).ok
    return found


@asynccontextmanager
async def api_of(cluster: Cluster) -> AsyncIterator[StreamingApi]:
    api = StreamingApi(await load_config(str(cluster.kubeconfig)))
    try:
        yield api
    finally:
        await api.close()
