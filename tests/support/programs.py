"""External programs that tests need, and what happens without them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

import pytest

ROOT = Path(__file__).resolve().parents[2]


def lacking(reason: str, *, servers: bool = False) -> NoReturn:
    """Skip the test, or fail it if DYNSCHED_REQUIRE_REAL is set, as in CI.

    ``servers``: the reason is about Kubernetes' servers, which are required only with
    DYNSCHED_REQUIRE_REAL=servers.
    """
    required = os.environ.get("DYNSCHED_REQUIRE_REAL")
    if required and (required == "servers" or not servers):
        pytest.fail(reason)
    pytest.skip(reason)


def need(name: str, package: str) -> str:
    """The program's path. Without it, the test ends as in `lacking`."""
    beside_python = Path(sys.executable).parent / name
    path = str(beside_python) if beside_python.exists() else shutil.which(name)
    if path is not None:
        return path
    lacking(f"{name} is not on PATH (provided by {package})")


def find_descheduler(program: str = "descheduler") -> str | None:
    """The path in the program's variable ($DESCHEDULER), in KUBEBUILDER_ASSETS, or on PATH."""
    if named := os.environ.get(program.upper().replace("-", "_")):
        return named
    in_assets = Path(os.environ.get("KUBEBUILDER_ASSETS", "/nowhere")) / program
    return str(in_assets) if in_assets.exists() else shutil.which(program)


def run(
    *command: str | Path, check: bool = False, stdin: str = "", **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run to the end and capture the output; without ``check`` the caller asserts the exit code."""
    return subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        timeout=240,  # pytest ends a test after 300 s
        check=check,
        input=stdin,
        **options,
    )
