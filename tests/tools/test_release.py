"""What `make release` builds, and a dry run of the workflow that publishes it."""

import hashlib
import json
import os
import re
import shutil
import subprocess
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
from programs import ROOT, need, run

from dynsched import __version__ as version

pytestmark = [pytest.mark.thorough, pytest.mark.slow]

IMAGE, SOURCE = "ghcr.io/acme/dynsched", "https://github.com/Acme/dynsched"
NAMES = {
    *(f"dynsched-{version}{end}" for end in ("-py3-none-any.whl", ".tar.gz", ".tgz", ".bom.json")),
    *(f"kubectl-dynsched-{version}.zip", "dynsched.yaml", "install.yaml", "SHA256SUMS"),
}


def release(tree: Path, dist: Path, *more: str, umask: int = 0o022) -> str:
    need("kubectl", "kubernetes-client")
    done = subprocess.run(
        [sys.executable, "-m", "tools.release", dist, "--image", IMAGE, "--source", SOURCE, *more],
        cwd=tree, env=os.environ | {"SOURCE_DATE_EPOCH": "1700000000"}, umask=umask,
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    return done.stderr


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("release") / "dist"
    assert release(ROOT, folder, "--tag", f"v{version}") == ""
    return folder


def test_another_build_elsewhere_is_equal_byte_by_byte(dist: Path, tmp_path: Path) -> None:
    files = run("git", "-C", ROOT, "ls-files", "--cached", "--others", "--exclude-standard")
    for name in filter(lambda name: os.path.lexists(ROOT / name), files.stdout.splitlines()):
        (tmp_path / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / "tree" / name, follow_symlinks=False)
    assert release(tmp_path / "tree", tmp_path / "again", umask=0o077) == ""
    first, second = (
        {path.name: path.read_bytes() for path in folder.iterdir()}
        for folder in (dist, tmp_path / "again")
    )
    assert first.keys() == NAMES
    assert first == second
    sums = dict(line.split()[::-1] for line in first.pop("SHA256SUMS").decode().splitlines())
    assert sums == {name: hashlib.sha256(data).hexdigest() for name, data in first.items()}


def test_a_tag_of_another_version_and_a_used_folder_are_refused(dist: Path) -> None:
    assert f"make the tag v{version}" in release(ROOT, dist, "--tag", "v9.9.9")
    assert "is not empty" in release(ROOT, dist)


def test_the_chart_is_what_helm_packs_with_the_image_that_was_pushed(
    dist: Path, tmp_path: Path
) -> None:
    def content(archive: str | Path) -> dict[str, bytes | None]:
        with tarfile.open(archive) as tar:
            read = {entry.name: tar.extractfile(entry) for entry in tar}
            return {name: file and file.read() for name, file in read.items()}

    values = everything(image={"repository": IMAGE})
    with Chart.load(ROOT / "charts/dynsched") as chart:
        by_helm = content(chart.save(tmp_path))
        rendered = chart.render(values, name="d", namespace="d")
    ours = content(dist / f"dynsched-{version}.tgz")
    assert ours.keys() == by_helm.keys()
    described = {"dynsched/Chart.yaml", "dynsched/values.yaml"}  # Helm writes the first anew
    assert {name for name in ours if ours[name] != by_helm[name]} == described
    with Chart.load(dist / f"dynsched-{version}.tgz") as chart:
        assert chart.render(everything(), name="d", namespace="d") == rendered


def test_install_yaml_is_the_base_with_that_image(dist: Path) -> None:
    base = yaml.safe_dump_all(kustomize(BASE))
    ours = list(yaml.safe_load_all((dist / "install.yaml").read_text()))
    assert yaml.safe_dump_all(ours) == base.replace(f"dynsched:{version}", f"{IMAGE}:{version}")
    assert f"{IMAGE}:{version}" in yaml.safe_dump_all(ours)


def test_the_sbom_fits_its_schema_and_names_all_that_the_image_installs(dist: Path) -> None:
    text = (dist / f"dynsched-{version}.bom.json").read_text()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    bom = json.loads(text)
    assert bom["metadata"]["component"]["version"] == version
    pins = re.findall(r"^(\S+)==(\S+) ", (ROOT / "requirements.txt").read_text(), re.MULTILINE)
    assert sorted((each["name"], each["version"]) for each in bom["components"]) == sorted(pins)


def fake(folder: Path, text: str, *names: str) -> None:
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)


def test_krew_finds_the_archive_and_its_plugin_runs_this_version(
    dist: Path, tmp_path: Path
) -> None:
    manifest = yaml.safe_load((dist / "dynsched.yaml").read_text())
    (platform,) = manifest["spec"]["platforms"]
    archive = dist / f"kubectl-dynsched-{version}.zip"
    assert platform["uri"] == f"{SOURCE}/releases/download/v{version}/{archive.name}"
    assert platform["sha256"] == hashlib.sha256(archive.read_bytes()).hexdigest()
    assert manifest["spec"]["version"] == f"v{version}"
    with zipfile.ZipFile(archive) as packed:
        assert packed.getinfo(platform["bin"]).external_attr >> 16 == 0o100755
        plugin = packed.extract(platform["bin"], tmp_path)

    def runs(*names: str) -> str:
        fake(tmp_path / "bin", 'echo "${0##*/} $*"', *names)
        done = subprocess.run(
            ["/bin/sh", plugin, "nodes", "--marked"],
            env={"PATH": str(tmp_path / "bin")}, check=False, capture_output=True, text=True,
        )  # fmt: skip
        return done.stdout or done.stderr

    wanted = f"dynsched=={version} kubectl-dynsched nodes --marked\n"
    assert "neither uv nor pipx is on PATH" in runs()
    assert runs("pipx") == f"pipx run --quiet --spec {wanted}"
    assert runs("uvx") == f"uvx --quiet --from {wanted}"


FAKE = """\
echo "${0##*/} $*" >>"$LOG"
case "$*" in
*imagetools*) echo sha256:base ;;
*--metadata-file*) echo '{"containerimage.digest": "sha256:image"}' >metadata.json ;;
push*) echo 'Digest: sha256:chart' >&2 ;;
log*) echo 1700000000 ;;
esac"""


def test_the_workflow_publishes_what_was_built_and_signs_what_it_pushed(
    dist: Path, tmp_path: Path
) -> None:
    """Its shell steps run in their order, with programs that only note how they were called."""
    shutil.copytree(dist, tmp_path / "dist")
    shutil.copy(ROOT / "Dockerfile", tmp_path)
    fake(tmp_path / "bin", FAKE, "cosign", "docker", "gh", "git", "helm", "make", "python", "uv")
    runner = {
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "LOG": str(tmp_path / "log"),
        "LC_ALL": "C",
        "GITHUB_ACTOR": "ann", "GITHUB_OUTPUT": str(tmp_path / "outputs"), "GITHUB_SHA": "5ba1",
        "GITHUB_REF_NAME": f"v{version}", "GITHUB_REPOSITORY": "Acme/dynsched",
        "GITHUB_REPOSITORY_OWNER": "Acme", "GITHUB_SERVER_URL": "https://github.com",
    }  # fmt: skip
    context = {"github.token": "t0ken"}

    def filled(value: str) -> str:
        return re.sub(r"\$\{\{ (.+?) \}\}", lambda found: context[found[1]], value)

    workflow = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())
    assert workflow["defaults"]["run"]["shell"] == "bash"
    attested = []
    for job in workflow["jobs"].values():
        for step in job.get("steps", ()):
            if "attest" in step.get("uses", ""):
                attested.append({key: filled(str(value)) for key, value in step["with"].items()})
            if "run" not in step:
                continue
            subprocess.run(
                ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
                cwd=tmp_path, check=True, stdin=subprocess.DEVNULL,
                env=runner | {key: filled(value) for key, value in step.get("env", {}).items()},
            )  # fmt: skip
            if "id" in step:
                for line in (tmp_path / "outputs").read_text().splitlines():
                    name, _, value = line.partition("=")
                    context[f"steps.{step['id']}.outputs.{name}"] = value
    calls = (tmp_path / "log").read_text().splitlines()
    (build,) = (call for call in calls if call.startswith("docker buildx build "))
    for words in (
        "--push --platform linux/amd64,linux/arm64 ", f"--tag {IMAGE}:{version} ",
        "--build-arg BASE=python:3.12-slim-bookworm@sha256:base ",
        "--build-arg SOURCE_DATE_EPOCH=1700000000 ",
    ):  # fmt: skip
        assert words in build
    charts, files = "ghcr.io/acme/charts", (dist / name for name in sorted(NAMES))
    package = [f"dist/{path.name}" for path in files if path.name.endswith((".whl", ".tar.gz"))]
    published = ("make", "cosign", "uv", "helm push", "gh")
    assert [call.partition(" --repo ")[0] for call in calls if call.startswith(published)] == [
        f"make release TAG=v{version} IMAGE={IMAGE} SOURCE={SOURCE}",
        f"cosign sign --yes {IMAGE}@sha256:image",
        f"uv publish --trusted-publishing always {' '.join(package)}",
        f"helm push dist/dynsched-{version}.tgz oci://{charts}",
        f"cosign sign --yes {charts}/dynsched@sha256:chart",
        "cosign sign-blob --yes --bundle dist/SHA256SUMS.sigstore.json dist/SHA256SUMS",
        f"gh release create v{version} {' '.join(sorted(f'dist/{name}' for name in NAMES))}",
    ]
    image = {"subject-name": IMAGE, "subject-digest": "sha256:image", "push-to-registry": "True"}
    assert attested[0].items() >= image.items()
    assert attested[1:] == [{"subject-checksums": "dist/SHA256SUMS"}]
