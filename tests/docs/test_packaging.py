"""The lock, the version and the scripts around the package agree with it."""

from __future__ import annotations

import itertools
import re
import tomllib
from importlib import metadata

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
from programs import ROOT, need, run

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CONSTRAINTS = (ROOT / "constraints.txt").read_text()
PINS = {
    canonicalize_name(name): Version(version)
    for name, version in re.findall(r"^([\w.-]+)==(\S+)$", CONSTRAINTS, re.MULTILINE)
}
EXTRAS = PROJECT["optional-dependencies"]
DIRECT = [
    wanted
    for text in itertools.chain(PROJECT["dependencies"], *EXTRAS.values())
    if (wanted := Requirement(text)).name != PROJECT["name"]
]


def test_the_lock_is_versions_only() -> None:
    lines = [line for line in CONSTRAINTS.splitlines() if not line.startswith("#")]
    assert len(lines) == len(PINS)
    assert lines == sorted(lines, key=str.lower)


@pytest.mark.parametrize("wanted", DIRECT, ids=lambda wanted: wanted.name)
def test_each_direct_dependency_is_pinned_within_its_range(wanted: Requirement) -> None:
    assert wanted.specifier.contains(PINS[canonicalize_name(wanted.name)])


@pytest.mark.thorough
def test_all_that_they_depend_on_is_pinned_and_installed_so() -> None:
    ahead = {canonicalize_name(wanted.name) for wanted in DIRECT}
    seen: set[str] = set()
    while ahead:
        name = ahead.pop()
        seen.add(name)
        assert name in PINS, f"{name} is not in constraints.txt; run `make lock`"
        installed = Version(metadata.version(name))
        assert installed == PINS[name], f"{name} {installed} is installed; run `make setup`"
        for text in metadata.requires(name) or ():
            needed = Requirement(text)
            if needed.marker is None or needed.marker.evaluate({"extra": ""}):
                ahead.add(canonicalize_name(needed.name))
        ahead -= seen


def test_one_version_everywhere() -> None:
    version = PROJECT["version"]
    for folder in ("manifests/base", "manifests/overlays/example"):
        kustomization = yaml.safe_load((ROOT / folder / "kustomization.yaml").read_text())
        assert kustomization["images"][0]["newTag"] == version, folder
    assert version in (ROOT / "CHANGELOG.md").read_text()
    assert version in (ROOT / "README.md").read_text()


def test_the_licence_is_the_one_that_the_project_names() -> None:
    text = (ROOT / "LICENSE").read_text()
    assert PROJECT["license"] == "Apache-2.0"
    assert "Apache License\n                           Version 2.0, January 2004" in text
    assert "The dynsched authors" in text


def test_the_ci_script_parses() -> None:
    done = run(need("bash", "bash"), "-n", ROOT / ".ci/run")
    assert done.returncode == 0, done.stderr


def test_make_knows_every_target_that_a_page_names() -> None:
    listed = run(need("make", "make"), "-C", ROOT, "--no-print-directory", "help")
    targets = set(re.findall(r"^make (\S+)", listed.stdout, re.MULTILINE))
    pages = [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / ".ci/run",
        *ROOT.glob("docs/**/*.md"),
    ]
    named = {
        target
        for page in pages
        for target in re.findall(r"(?:^|`|\d )make ([a-z]+)", page.read_text(), re.MULTILINE)
    }
    assert {"demo", "test", "setup", "lint"} <= named
    assert named <= targets
