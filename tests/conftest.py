"""Fixtures that more than one test module uses."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster import Cluster, EnvtestCluster, SimCluster
from dealing import slow_ones_first
from envtest import Envtest, assets

_REQUIRED = os.environ.get("DYNSCHED_REQUIRE_ENVTEST") == "1"
_FORMS: list[Any] = ["sim"]
if _REQUIRED or "KUBEBUILDER_ASSETS" in os.environ:
    _FORMS.append("envtest")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The slow ones first in each process of ``-n``: none is left alone with them at the end."""
    items[:] = slow_ones_first(items, getattr(config, "workerinput", {}).get("workercount", 1))


@pytest.fixture(scope="session")
def envtest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Envtest]:
    """A real etcd and kube-apiserver."""
    found = assets()
    if found is None:
        reason = "KUBEBUILDER_ASSETS is not set: the cluster tests ran on the simulated one only"
        if _REQUIRED:
            pytest.fail(reason)
        pytest.skip(reason)
    servers = Envtest(found, tmp_path_factory.mktemp("envtest"))
    try:
        servers.start()
        yield servers
    finally:
        servers.stop()


@pytest.fixture(params=_FORMS)
async def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Cluster]:
    """An empty cluster, in both forms: what passes on one passes on the other.

    The real one takes part where KUBEBUILDER_ASSETS names its programs, and must where
    DYNSCHED_REQUIRE_ENVTEST=1.
    """
    if request.param == "sim":
        form: Cluster = SimCluster(tmp_path)
    else:
        form = EnvtestCluster(request.getfixturevalue("envtest"), tmp_path)
    async with form:
        yield form


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """The command line sets up the logging of the whole process: what a test does to it, the next
    one must not see.
    """
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
async def sim(tmp_path: Path) -> AsyncIterator[SimCluster]:
    """The simulated cluster alone, for what no real one does on request (``sim.server``)."""
    async with SimCluster(tmp_path) as form:
        yield form
