"""Programs that a test cannot do without, and what happens where they are not."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

import pytest

ROOT = Path(__file__).resolve().parents[2]


def lacking(reason: str, *, servers: bool = False) -> NoReturn:
    """Skip the test, or fail it where CI must have everything. ``servers``: those of Kubernetes,
    which only DYNSCHED_REQUIRE_REAL=servers asks for.
    """
    required = os.environ.get("DYNSCHED_REQUIRE_REAL")
    if required and (required == "servers" or not servers):
        pytest.fail(reason)
    pytest.skip(reason)


def need(name: str, package: str) -> str:
    """The program's path. As `lacking` without it."""
    beside_python = Path(sys.executable).parent / name
    path = str(beside_python) if beside_python.exists() else shutil.which(name)
    if path is not None:
        return path
    lacking(f"{name} is not on PATH ({package} brings it)")


def find_descheduler(program: str = "descheduler") -> str | None:
    """The one that DESCHEDULER names, that is beside the servers of Kubernetes, or on PATH."""
    if named := os.environ.get(program.upper().replace("-", "_")):
        return named
    beside = Path(os.environ.get("KUBEBUILDER_ASSETS", "/nowhere")) / program
    return str(beside) if beside.exists() else shutil.which(program)


def run(
    *command: str | Path, check: bool = False, stdin: str = "", **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run to the end, keep what it printed; the caller asserts the exit code, unless ``check``."""
    return subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        timeout=240,  # pytest ends a test after 300 s
        check=check,
        input=stdin,
        **options,
    )
