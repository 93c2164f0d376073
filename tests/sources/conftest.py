"""Shared by the tests of sources: a misbehaving server, and a real Prometheus with history."""

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
    """It scrapes nothing: its samples are from the past, and from the next two hours."""
    with prometheus_of(past(), tmp_path_factory.mktemp("past"), prefix="/prom") as running:
        yield running


@pytest.fixture
def source(real: Process) -> PrometheusSource:
    return source_at(real.url + "/")
