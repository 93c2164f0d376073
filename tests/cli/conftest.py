"""Fixtures of the tests of the plugin."""

import asyncio
import os
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from programs import need
from service_support import Pages, scripts, served, service

Ended = tuple[int, str, str]
"""Exit code, standard output, standard error."""
Kubectl = Callable[..., Awaitable[Ended]]


@pytest.fixture
def environment(cluster, tmp_path) -> dict[str, str]:
    """With the project's scripts on PATH, as after an installation."""
    return os.environ | {
        "PATH": f"{scripts(tmp_path / 'bin')}{os.pathsep}{os.environ['PATH']}",
        "KUBECONFIG": str(cluster.kubeconfig),
        "HOME": str(tmp_path),
    }


@pytest.fixture
def kubectl(environment) -> Kubectl:
    """Run it to its end: (exit code, stdout, stderr)."""
    path = need("kubectl", "kubernetes-client")

    async def run(*arguments: str) -> Ended:
        process = await asyncio.create_subprocess_exec(
            path, *arguments, env=environment, stdin=DEVNULL, stdout=PIPE, stderr=PIPE
        )
        out, errors = await asyncio.wait_for(process.communicate(), 60)
        assert process.returncode is not None
        return process.returncode, out.decode(), errors.decode()

    return run


@pytest.fixture
async def pages(cluster) -> AsyncIterator[Pages]:
    """A dynsched of three nodes behind its Service; worker-2 is marked."""
    made = Pages()
    for _ in range(3):
        made.tick(worker_2=91.0)
    async with served(made, cluster), service(cluster, made.url):
        yield made
