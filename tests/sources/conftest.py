"""What the tests of sources share: a server that misbehaves, and a real Prometheus with a past."""

from collections.abc import Iterator

import pytest
from blocks_support import prometheus_of
from misbehaving_server import MisbehavingServer
from prometheus_support import Process
from source_past import past
from source_support import source_at

from dynsched.sources.prometheus import PrometheusSource


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture
def server() -> Iterator[MisbehavingServer]:
    with MisbehavingServer() as running:
        yield running


@pytest.fixture(scope="session")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """It scrapes nothing: all that it knows is its past, and what will be for two hours more."""
    with prometheus_of(past(), tmp_path_factory.mktemp("past"), prefix="/prom") as running:
        yield running


@pytest.fixture
def source(real: Process) -> PrometheusSource:
    return source_at(real.url + "/")
