"""A real kubectl runs the plugin."""

import asyncio
import os
import sys
import tomllib
from pathlib import Path

import pytest
from programs import ROOT, need, run
from service_support import Pages, served, service

pytestmark = pytest.mark.slow


def scripts(folder: Path) -> Path:
    """A folder for PATH with the project's console scripts, as after an installation."""
    folder.mkdir()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for name, entry in project["scripts"].items():
        module, _, function = entry.partition(":")
        path = folder / name
        path.write_text(f"#!{sys.executable}\nfrom {module} import {function}\n{function}()\n")
        path.chmod(0o755)
    return folder


async def test_the_plugin_is_the_same_program_under_the_name_that_was_typed(sim, tmp_path) -> None:
    pages = Pages()
    for _ in range(3):
        pages.tick(worker_2=91.0)
    found = f"{scripts(tmp_path / 'bin')}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": found, "KUBECONFIG": str(sim.kubeconfig)}
    kubectl = need("kubectl", "kubernetes-client")

    async def called(*words: str):
        return await asyncio.to_thread(run, kubectl, *words, env=environment)

    async with served(pages, sim), service(sim, pages.url):
        helped = await called("dynsched", "why", "--help")
        assert helped.stdout.startswith("Usage: kubectl dynsched why ")
        why = await called("dynsched", "why", "worker-2")
        assert (why.returncode, "worker-2 is marked" in why.stdout) == (0, True)
        assert why.stderr.startswith("From cluster sim (http://")
        assert "kubectl-dynsched" in (await called("plugin", "list")).stdout
