"""What `make release` builds."""

import hashlib
import json
import re
import shutil
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from helm_support import Chart, everything
from manifest_support import BASE, kustomize
from programs import ROOT, run

from dynsched import __version__ as version

pytestmark = [pytest.mark.thorough, pytest.mark.slow]

IMAGE, SOURCE = "ghcr.io/acme/dynsched", "https://github.com/Acme/dynsched"
IN_A_CLONE = "https://github.com/OWNER/dynsched"
PLUGIN, PACKAGE = f"kubectl-dynsched-{version}.zip", f"dynsched-{version}"
NAMES = {PLUGIN, "dynsched.yaml", "install.yaml", "SHA256SUMS"}
NAMES |= {PACKAGE + end for end in ("-py3-none-any.whl", ".tar.gz", ".tgz", ".bom.json")}


def release(tree: Path, dist: Path, *more: str, umask: str = "022") -> str:
    script = 'umask $0; cd "$1"; shift; SOURCE_DATE_EPOCH=1700000000 exec "$@"'
    build = (sys.executable, "-m", "tools.release", dist, "--image", IMAGE, "--source", SOURCE)
    return run("sh", "-c", script, umask, tree, *build, *more).stderr


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("release") / "dist"
    kustomize(BASE)  # skips if kubectl is missing
    assert release(ROOT, folder) == ""
    return folder


def test_a_build_elsewhere_is_identical_byte_for_byte(dist: Path, tmp_path: Path) -> None:
    tree, again = tmp_path / "tree", tmp_path / "again"
    copy = 'cd "$0"; git ls-files -coz --exclude-standard | xargs -0 cp -P --parents -t "$1"'
    tree.mkdir()
    assert run("sh", "-c", copy, ROOT, tree).stderr == ""
    assert release(tree, again, umask="077") == ""
    assert {path.name for path in again.iterdir()} == NAMES
    assert run("diff", "-r", dist, again).stdout == ""
    sums = (dist / "SHA256SUMS").read_text()
    assert {line.split()[1] for line in sums.splitlines()} == NAMES - {"SHA256SUMS"}
    # The changelog's section of an unreleased version says so.
    for heading, error in (
        ("{}, not released yet", 'take "not released yet" out'),
        ("{}", "not empty"),
    ):
        (tree / "CHANGELOG.md").write_text(heading.format(f"## [{version}]"))
        assert error in release(tree, again, "--tag", f"v{version}")


def test_a_tag_of_another_version_and_a_non_empty_folder_are_refused(dist: Path) -> None:
    assert f"make the tag v{version}" in release(ROOT, dist, "--tag", "v9.9.9")
    assert "is not empty" in release(ROOT, dist)


def test_the_chart_equals_helms_package_except_for_image_and_links(
    dist: Path, tmp_path: Path
) -> None:
    def content(archive: str | Path) -> dict[str, bytes]:
        with tarfile.open(archive) as tar:
            return {entry.name: tar.extractfile(entry).read() for entry in tar}

    with Chart.load(ROOT / "charts/dynsched") as chart:
        by_helm = content(chart.save(tmp_path))
        values = everything(order={"by": "policy"})  # without a certificate, which would differ
        wanted = chart.render(values | {"image": {"repository": IMAGE}}, name="d", namespace="d")
    ours = content(dist / f"{PACKAGE}.tgz")
    assert ours.keys() == by_helm.keys()
    changed = {"dynsched/Chart.yaml", "dynsched/values.yaml"}  # Helm rewrites Chart.yaml
    changed |= {name for name, text in by_helm.items() if IN_A_CLONE.encode() in text}
    assert {name for name in ours if ours[name] != by_helm[name]} == changed
    with Chart.load(dist / f"{PACKAGE}.tgz") as chart:
        rendered = chart.render(values, name="d", namespace="d")
    links = json.dumps(wanted).replace(IN_A_CLONE, SOURCE)
    assert json.dumps(rendered) == links
    assert f"{SOURCE}/blob/main/docs/operate.md#dynscheddown" in links


def test_install_yaml_is_the_base_with_that_image(dist: Path) -> None:
    base = yaml.safe_dump_all(kustomize(BASE))
    ours = list(yaml.safe_load_all((dist / "install.yaml").read_text()))
    assert f"image: dynsched:{version}" in base
    assert yaml.safe_dump_all(ours) == base.replace(f"dynsched:{version}", f"{IMAGE}:{version}")


def test_the_sbom_is_valid_and_names_every_package_of_the_image(dist: Path) -> None:
    text = (dist / f"{PACKAGE}.bom.json").read_text()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    bom = json.loads(text)
    assert bom["metadata"]["component"]["version"] == version
    pins = re.findall(r"^(\S+)==(\S+) ", (ROOT / "requirements.txt").read_text(), re.MULTILINE)
    assert sorted((each["name"], each["version"]) for each in bom["components"]) == sorted(pins)


def fake(folder: Path, text: str, *names: str) -> str:
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    return str(folder)


def test_the_krew_manifest_names_the_archive_and_its_plugin_runs_this_version(
    dist: Path, tmp_path: Path
) -> None:
    spec = yaml.safe_load((dist / "dynsched.yaml").read_text())["spec"]
    (platform,) = spec["platforms"]
    assert platform["uri"] == f"{SOURCE}/releases/download/v{version}/{PLUGIN}"
    assert platform["sha256"] == hashlib.sha256((dist / PLUGIN).read_bytes()).hexdigest()
    assert spec["version"] == f"v{version}"
    with zipfile.ZipFile(dist / PLUGIN) as packed:
        assert packed.getinfo(platform["bin"]).external_attr >> 16 == 0o100755
        plugin = packed.extract(platform["bin"], tmp_path / "the store")
        assert packed.read("constraints.txt") == (ROOT / "constraints.txt").read_bytes()
    (tmp_path / platform["bin"]).symlink_to(plugin)  # as krew does

    def runs(*names: str) -> str:
        programs = fake(tmp_path / "bin", 'echo "${0##*/} $*"', *names)
        path = f"PATH={programs}:{fake(tmp_path / 'more', '')}"
        for program in ("dirname", "readlink"):
            (tmp_path / "more" / program).unlink(missing_ok=True)
            (tmp_path / "more" / program).symlink_to(str(shutil.which(program)))
        by_krew = tmp_path / platform["bin"]
        done = run("/usr/bin/env", path, "/bin/sh", by_krew, "nodes", "--help")
        return done.stdout or done.stderr

    wanted = f"dynsched=={version} kubectl-dynsched nodes --help\n"
    assert "neither uv nor pipx is on PATH" in runs()
    pins = Path(plugin).with_name("constraints.txt")
    assert runs("pipx") == f"pipx run --quiet --pip-args --constraint '{pins}' --spec {wanted}"
    assert runs("uvx") == f"uvx --quiet --constraints {pins} --from {wanted}"
