"""The lock, the version and the scripts around the package agree with it."""

import re
import tomllib
from importlib import metadata
from itertools import chain

import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
from programs import ROOT, need, run

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT, BUILD = PYPROJECT["project"], PYPROJECT["tool"]["hatch"]["build"]
CONSTRAINTS = (ROOT / "constraints.txt").read_text()
PINS = {
    canonicalize_name(name): Version(version)
    for name, version in re.findall(r"^([\w.-]+)==(\S+)$", CONSTRAINTS, re.MULTILINE)
}
EXTRAS = PROJECT["optional-dependencies"].values()
DIRECT = [
    wanted
    for wanted in map(Requirement, chain(PROJECT["dependencies"], *EXTRAS))
    if wanted.name != PROJECT["name"]  # an extra may name others
]


def test_each_direct_dependency_is_pinned_within_its_range() -> None:
    for wanted in DIRECT:
        assert wanted.specifier.contains(PINS[canonicalize_name(wanted.name)]), wanted.name


def test_all_that_they_depend_on_is_pinned_and_what_is_installed_is_so() -> None:
    ahead = {canonicalize_name(wanted.name) for wanted in DIRECT}
    seen: set[str] = set()
    while ahead:
        name = ahead.pop()
        seen.add(name)
        assert name in PINS, f"{name} is not in constraints.txt; run `make lock`"
        try:
            installed = Version(metadata.version(name))
        except metadata.PackageNotFoundError:
            continue  # of an extra
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


def test_what_the_package_links_to_is_in_the_sdist_and_there_when_the_image_is_built() -> None:
    links = [path for path in ROOT.glob("dynsched/**/*") if path.is_symlink()]
    kept = (ROOT / ".dockerignore").read_text().splitlines()
    in_sdist = BUILD["targets"]["sdist"]["force-include"]
    for link in links:
        target = str(link.resolve().relative_to(ROOT))
        assert f"!{target}" in kept, link
        assert in_sdist[target] == str(link.relative_to(ROOT))
    assert len(links) == 2
    assert "COPY manifests ./manifests" in (ROOT / "Dockerfile").read_text().splitlines()


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
