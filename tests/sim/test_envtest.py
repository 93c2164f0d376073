"""The real servers that the tests start: what the other tests take for granted of them."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from cluster import NODES, EnvtestCluster
from envtest import Envtest, assets

from dynsched.sim.nodes import make_node

PODS = "/api/v1/namespaces/default/pods"
SOFT = {"key": "dynsched.io/pressure", "value": "true", "effect": "PreferNoSchedule"}


def test_it_is_there_where_it_must_be(envtest: Envtest) -> None:
    """Where there is no real API server, this is the one test that says so."""
    assert envtest.url.startswith("https://127.0.0.1:")


async def test_a_scheduler_can_be_started_and_avoids_a_soft_taint(
    envtest: Envtest, tmp_path: Path
) -> None:
    folder = assets()
    if folder is None or not os.access(folder / "kube-scheduler", os.X_OK):
        pytest.skip("no kube-scheduler in KUBEBUILDER_ASSETS")
    async with EnvtestCluster(envtest, tmp_path) as cluster:
        for index, name in enumerate(("hot", "cool")):
            await cluster.create_node(make_node(name, index))
        await cluster.patch_node("hot", {"spec": {"taints": [SOFT]}})
        stop = await asyncio.to_thread(envtest.start_scheduler)
        try:
            for number in range(4):
                await cluster.post(PODS, pod(f"p{number}"))
            async with asyncio.timeout(20):
                while len(where := await bound(cluster)) < 4:
                    await asyncio.sleep(0.05)
        finally:
            await asyncio.to_thread(stop)
    assert set(where) == {"cool"}


def pod(name: str) -> dict[str, Any]:
    requests = {"cpu": "100m", "memory": "100Mi"}
    container = {"name": "c", "image": "example.com/none", "resources": {"requests": requests}}
    return {"metadata": {"name": name}, "spec": {"containers": [container]}}


async def bound(cluster: EnvtestCluster) -> list[str]:
    """The nodes of the pods that have one."""
    items = (await cluster.get(PODS)).ok["items"]
    return [p["spec"]["nodeName"] for p in items if p["spec"].get("nodeName")]


async def test_a_test_begins_with_nothing_and_with_no_writes(
    envtest: Envtest, tmp_path: Path
) -> None:
    for _ in range(2):
        async with EnvtestCluster(envtest, tmp_path) as cluster:
            assert await cluster.list_nodes() == []
            assert await cluster.writes() == []
            await cluster.create_node(make_node("left"))
            assert [w.verb for w in await cluster.writes()] == ["create"]
            assert (await cluster.get(f"{NODES}/left")).status == 200
