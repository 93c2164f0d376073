"""Fixtures that several test modules use."""

import logging
import os
import re
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cluster import Cluster, EnvtestCluster, SimCluster
from command_line import Ended, call_of
from envtest import Envtest, assets
from fake_prometheus import FakePrometheus
from hypothesis import HealthCheck, settings
from programs import lacking

# These tests need a cluster that runs pods: `make e2e`.
collect_ignore = [] if "E2E" in os.environ else ["e2e"]

_FORMS: list[Any] = ["sim"]
if "KUBEBUILDER_ASSETS" in os.environ:
    _FORMS.append("envtest")

# Derandomized, so that CI is stable, and without a deadline, because the machine may be busy.
# `pytest --hypothesis-profile=random` tries as many as `make test-all`, new ones each time.
settings.register_profile(
    "quick",
    max_examples=100,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("thorough", settings.get_profile("quick"), max_examples=500)
settings.register_profile("random", settings.get_profile("thorough"), derandomize=False)
settings.load_profile("thorough" if os.environ.get("DYNSCHED_THOROUGH") == "1" else "quick")

# A shell's background job ignores SIGINT, and nohup ignores SIGHUP. The processes that the tests
# start and stop would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

_SECOND_TIER = re.compile(r"^pytestmark = .*\bthorough\b", re.MULTILINE)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip modules that belong to the second tier entirely, so that `make test` does not import
    them: their imports may be installed for `make test-all` only.
    """
    if config.getoption("markexpr") != "not thorough" or collection_path.suffix != ".py":
        return None
    return bool(_SECOND_TIER.search(collection_path.read_text())) or None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run slow tests first, so that none is left at the end while other processes idle."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


@pytest.fixture(scope="session")
def envtest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Envtest]:
    """A real etcd and kube-apiserver."""
    yield from _servers(tmp_path_factory.mktemp("envtest"))


@pytest.fixture(scope="session")
def before_136(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Envtest]:
    """Servers without MutatingAdmissionPolicy, like managed clusters before 1.36."""
    kinds = ("policies", "policybindings")
    served = [f"admissionregistration.k8s.io/v1/mutatingadmission{each}=false" for each in kinds]
    off = ("--feature-gates=MutatingAdmissionPolicy=false", f"--runtime-config={','.join(served)}")
    yield from _servers(tmp_path_factory.mktemp("before-136"), off)


def _servers(folder: Path, flags: Sequence[str] = ()) -> Iterator[Envtest]:
    found = assets()
    if found is None:
        reason = "KUBEBUILDER_ASSETS is not set: the cluster tests ran on the simulated one only"
        lacking(reason, servers=True)
    servers = Envtest(found, folder, flags=flags)
    try:
        servers.start()
        yield servers
    finally:
        servers.stop()


@pytest.fixture(params=_FORMS)
async def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Cluster]:
    """An empty cluster, in both forms, which must behave the same.

    The real form is used if KUBEBUILDER_ASSETS is set; a missing program is an error then.
    """
    if request.param == "sim":
        form: Cluster = SimCluster(tmp_path)
    else:
        form = EnvtestCluster(request.getfixturevalue("envtest"), tmp_path)
    async with form:
        yield form


@pytest.fixture
async def prometheus() -> AsyncIterator[FakePrometheus]:
    async with FakePrometheus() as running:
        yield running


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    """``call(*words)`` runs the command line; returns exit code, standard output and error."""
    return partial(call_of, capsys)


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """Restore the root logger, because the command line configures logging for the process."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
async def sim(tmp_path: Path) -> AsyncIterator[SimCluster]:
    """The simulated cluster only, for what a real one cannot do on request (``sim.server``)."""
    async with SimCluster(tmp_path) as form:
        yield form
