"""A real kubectl runs the plugin."""

import asyncio
import os
import sys
import tomllib
from asyncio.subprocess import DEVNULL, PIPE
from pathlib import Path

import pytest
from cluster import Cluster
from programs import ROOT, need
from service_support import Pages, served, service

pytestmark = pytest.mark.slow


@pytest.fixture
def cluster(sim) -> Cluster:
    """The simulated one: what a real API server does here, is seen in another module."""
    return sim


def scripts(folder: Path) -> Path:
    """A folder for PATH with the project's console scripts, as an installation has them."""
    folder.mkdir()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for name, entry in project["scripts"].items():
        module, _, function = entry.partition(":")
        path = folder / name
        path.write_text(f"#!{sys.executable}\nfrom {module} import {function}\n{function}()\n")
        path.chmod(0o755)
    return folder


@pytest.fixture
def environment(cluster, tmp_path) -> dict[str, str]:
    """With the project's scripts on PATH, as after an installation."""
    return os.environ | {
        "PATH": f"{scripts(tmp_path / 'bin')}{os.pathsep}{os.environ['PATH']}",
        "KUBECONFIG": str(cluster.kubeconfig),
        "HOME": str(tmp_path),
    }


@pytest.fixture
def kubectl(environment):
    """Run kubectl to its end: (exit code, stdout, stderr)."""
    path = need("kubectl", "kubernetes-client")

    async def run(*arguments: str):
        process = await asyncio.create_subprocess_exec(
            path, *arguments, env=environment, stdin=DEVNULL, stdout=PIPE, stderr=PIPE
        )
        out, errors = await asyncio.wait_for(process.communicate(), 60)
        assert process.returncode is not None
        return process.returncode, out.decode(), errors.decode()

    return run


@pytest.fixture
async def pages(cluster):
    """A dynsched of three nodes behind its Service; worker-2 is marked."""
    made = Pages()
    for _ in range(3):
        made.tick(worker_2=91.0)
    async with served(made, cluster), service(cluster, made.url):
        yield made


async def test_it_is_the_same_program_under_the_name_that_was_typed(kubectl, pages) -> None:
    code, out, _ = await kubectl("dynsched", "why", "--help")
    assert (code, out.startswith("Usage: kubectl dynsched why ")) == (0, True)
    code, out, errors = await kubectl("dynsched", "why", "worker-2")
    assert (code, "worker-2 is marked" in out) == (0, True)
    assert errors.startswith("From cluster sim (http://")
    _, listed, errors = await kubectl("plugin", "list")
    assert "kubectl-dynsched" in listed
    assert "not executable" not in errors  # another copy on PATH is also warned of
    code, _, errors = await kubectl("dynsched", "--context", "production", "nodes")
    assert (code, "No such option '--context'" in errors) == (2, True)
