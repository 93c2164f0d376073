"""No command needs what the Dockerfile removes from the image."""

import asyncio
import json
import re
import shutil
import sys
import venv
from importlib import metadata
from pathlib import Path

import pytest
from operator_support import Operator, dynsched, until, write_rules
from programs import ROOT, run
from replica_support import is_marked
from scheduling_support import rules

pytestmark = pytest.mark.slow

STEPS = re.sub(r"\\\n *", "", (ROOT / "Dockerfile").read_text())
PINS = (ROOT / "requirements.txt").read_text()
REQUIREMENTS = set(re.findall(r"^([\w-]+)==", PINS, re.MULTILINE))
LOADED = """
import atexit, sys
def show():
    files = {name: vars(module).get("__file__") for name, module in sys.modules.items()}
    print("loaded:", *(name for name, file in files.items() if str(file).endswith(".py")))
atexit.register(show)
"""
ALL_IMPORTS = f"{LOADED}sys.path.append({str(ROOT / 'tools')!r}); import bytecode; bytecode.load()"
COMMAND = f"{LOADED}from dynsched.__main__ import main; main()"


def loaded(text: str) -> set[str]:
    return set(text.rpartition("loaded: ")[2].split())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the image's packages, after the Dockerfile's own removal step."""
    folder = tmp_path_factory.mktemp("image")
    venv.create(folder)
    (site,) = folder.glob("lib/python*/site-packages")
    shutil.copytree(ROOT / "dynsched", site / "dynsched")
    ((uninstalled, step),) = re.findall(r"pip uninstall --yes (.*) pip && (rm .*)", STEPS)
    assert REQUIREMENTS.issuperset(uninstalled.split())
    for name in (REQUIREMENTS | {"dynsched"}).difference(uninstalled.split()):
        package = metadata.distribution(name)
        home = Path(str(package.locate_file("")))
        for line in (package.read_text("RECORD") or "").splitlines():
            file = line.split(",")[0]
            if not file.startswith("..") and not file.endswith(".pth"):
                (site / file).parent.mkdir(parents=True, exist_ok=True)
                (site / file).symlink_to(home / file)
    run("sh", "-ec", step, cwd=site, check=True)
    return folder


@pytest.fixture
def python(folder, monkeypatch) -> str:
    """The interpreter of that environment, with which commands are started."""
    path = str(folder / "bin/python")
    monkeypatch.setattr(sys, "executable", path)
    monkeypatch.chdir(folder)
    return path


async def test_every_import_of_dynsched_works_and_what_a_run_loads_has_bytecode(
    python, sim, prometheus, tmp_path
) -> None:
    done = await asyncio.to_thread(run, python, "-c", ALL_IMPORTS)
    assert done.returncode == 0, done.stderr
    await sim.create_nodes("hot", "cool")
    prometheus.set(load={"hot": 91.0, "cool": 20.0})
    flags = ("--kubeconfig", str(sim.kubeconfig), "--prom", prometheus.url)
    flags += ("-r", str(write_rules(tmp_path, rules(order={"score": {"load": 1}}))))
    async with Operator(tmp_path, "run", *flags, "-s", "1", program=("-c", COMMAND)) as running:
        await until(lambda: is_marked(sim, "hot"), "its mark")

        async def is_written() -> bool:
            return json.loads((await running.get("/order"))[1])["written_at"] is not None

        await until(is_written, "its order")
        for path in ("/", "/nodes", "/nodes/hot", "/rules", "/metrics"):
            assert (await running.get(path))[0] == 200, path
        code, table = await dynsched("nodes", "--server", f"http://{running.address}")
        assert (code, "1 of 2 nodes marked" in table) == (0, True), table
        assert await running.stop() == 0
    assert "dynsched.controller.main" in loaded(running.log) <= loaded(done.stdout)
