"""The lock file, the version and the scripts agree with the package."""

import re
import tomllib
from importlib import metadata
from itertools import chain

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
    if wanted.name != PROJECT["name"]  # an extra may include other extras
]


def test_each_direct_dependency_is_pinned_within_its_range() -> None:
    for wanted in DIRECT:
        assert wanted.specifier.contains(PINS[canonicalize_name(wanted.name)]), wanted.name


def with_all_that_it_needs(*names: str) -> set[str]:
    """These packages and their dependencies; each must be pinned, and its pin installed, if any."""
    ahead, seen = set(map(canonicalize_name, names)), set()
    while ahead:
        name = ahead.pop()
        seen.add(name)
        assert name in PINS, f"{name} is not in constraints.txt; run `make lock`"
        try:
            installed = Version(metadata.version(name))
        except metadata.PackageNotFoundError:
            continue  # it belongs to an extra
        assert installed == PINS[name], f"{name} {installed} is installed; run `make setup`"
        for text in metadata.requires(name) or ():
            needed = Requirement(text)
            if needed.marker is None or needed.marker.evaluate({"extra": ""}):
                ahead.add(canonicalize_name(needed.name))
        ahead -= seen
    return seen


def test_all_dependencies_are_pinned_and_installed_in_the_pinned_version() -> None:
    assert with_all_that_it_needs(*(wanted.name for wanted in DIRECT)) <= PINS.keys()


def test_the_image_installs_only_packages_pinned_by_hash() -> None:
    runtime = [Requirement(text).name for text in PROJECT["dependencies"]]
    release = map(Requirement, PROJECT["optional-dependencies"]["release"])
    for name, wanted in (
        ("requirements", runtime),
        ("requirements-build", ["hatchling"]),
        ("requirements-release", [each.name for each in release]),
    ):
        text = re.sub(r" ;[^\\]*|\\\n", "", (ROOT / f"{name}.txt").read_text())
        found = [line.split() for line in text.splitlines() if not line.startswith("#")]
        pins = dict(pin.split("==") for pin, *_ in found)
        assert pins.keys() >= with_all_that_it_needs(*wanted)
        assert {package: Version(pin) for package, pin in pins.items()}.items() <= PINS.items()
        for pin, *hashes in found:
            assert hashes, pin
            assert all(re.fullmatch("--hash=sha256:[0-9a-f]{64}", each) for each in hashes), pin
    steps = (ROOT / "Dockerfile").read_text().replace("\\\n", "").split("&&")
    for step in (step for step in steps if re.search("pip (install|wheel)", step)):
        assert "--require-hashes" in step or "--no-deps" in step, step
    run, *_ = (
        part for part in (ROOT / "Dockerfile").read_text().split("\nRUN ") if "-r req" in part
    )
    assert run.startswith("--mount=type=secret,id=ca ")  # the CA of a proxy, which pip must trust
    assert "then export PIP_CERT=/run/secrets/ca; fi" in run
    publishes = (ROOT / ".github/workflows/release.yml").read_text()
    assert re.findall("-m pip install (?!.*--require-hashes).*", publishes) == []
    assert re.findall("image: (?!.*@sha256:[0-9a-f]{64}$).*", publishes, re.MULTILINE) == []


def test_each_action_of_a_workflow_is_pinned_by_its_commit() -> None:
    for path in (ROOT / ".github/workflows").glob("*.yml"):
        uses = re.findall(r"uses: (?!\./)(.*)", path.read_text())
        assert uses
        for action in uses:
            assert re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action), action


def test_the_version_is_the_same_everywhere() -> None:
    version_in = re.compile(
        r"(?:/dynsched:|dynsched\n(?:    newName: .*\n)?    newTag: |^    tag: |"
        r'^(?:appV|v)ersion: |"version": ")(\d[^\s",]+)',
        re.MULTILINE,
    )
    pages = [ROOT / name for name in ("README.md", "README.zh-CN.md", "Dockerfile")]
    pages += [
        ROOT / "docs/http.md",
        ROOT / "docs/look.md",
        ROOT / "docs/examples/gitops/flux-helm.yaml",
        ROOT / "charts/dynsched/Chart.yaml",
    ]
    named: dict[str, set[str]] = {}
    for path in (*ROOT.glob("manifests/**/kustomization.yaml"), *pages):
        named[path.name] = set(version_in.findall(path.read_text()))
        assert named[path.name] <= {PROJECT["version"]}, path
    assert all(map(named.get, ("Chart.yaml", "README.md", "flux-helm.yaml")))
    changes = (ROOT / "CHANGELOG.md").read_text()
    assert re.search(rf"^## \[{PROJECT['version']}\]", changes, re.MULTILINE)


def test_targets_of_the_packages_symlinks_are_in_the_sdist_and_the_image_build() -> None:
    links = [path for path in ROOT.glob("dynsched/**/*") if path.is_symlink()]
    kept = (ROOT / ".dockerignore").read_text().splitlines()
    in_sdist = BUILD["targets"]["sdist"]["force-include"]
    for link in links:
        target = str(link.resolve().relative_to(ROOT))
        assert f"!{target}" in kept, link
        assert in_sdist[target] == str(link.relative_to(ROOT))
    assert len(links) == 1
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
        for target in re.findall(r"(?:^|`|\d )make ([a-z0-9-]+)", page.read_text(), re.MULTILINE)
    }
    assert {"demo", "test", "setup", "lint"} <= named
    assert named <= targets
