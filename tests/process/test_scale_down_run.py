"""Deletion costs on real servers with a controller manager: hot nodes lose replicas first."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cluster import EnvtestCluster
from envtest import Envtest, assets
from scaling_support import Plan, granted, play

pytestmark = pytest.mark.slow

PLAN = Plan(nodes=8, hot=2, deployments=4, high=8, low=5, waves=1)


@pytest.fixture
async def cluster(envtest: Envtest, tmp_path: Path) -> AsyncIterator[EnvtestCluster]:
    folder = assets()
    if folder is None or not os.access(folder / "kube-controller-manager", os.X_OK):
        pytest.skip("no kube-controller-manager in KUBEBUILDER_ASSETS")
    async with EnvtestCluster(envtest, tmp_path) as form:
        yield form


async def test_a_scale_down_takes_pods_of_hot_nodes_first(cluster, envtest, tmp_path) -> None:
    with granted(cluster, tmp_path) as account:
        found = await play(envtest, cluster, tmp_path, PLAN, account)
    assert (found.removed, found.from_hot) == (12, found.could)
    assert found.could >= 4
    assert (found.foreign_changed, found.while_steady, found.left) == (0, 0, 0)
