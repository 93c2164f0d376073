"""Builds all that a release consists of: ``python -m tools.release dist``.

Two builds of one commit are equal, byte by byte: times are those of the commit (SOURCE_DATE_EPOCH),
owners and modes are fixed, and files are in the order of their names.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import pathspec
import yaml

ROOT = Path(__file__).resolve().parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
VERSION: str = PROJECT["version"]

_INSTALL = """\
# dynsched {version}: kubectl apply -f install.yaml
#
# Before Kubernetes 1.36 the policies of the order are refused ("no matches for kind"), all else is
# applied: nodes are marked, and pods get no order (docs/order.md). DYNSCHED_PROM below says where
# Prometheus is. Where settings and rules of your own have to outlive
# an upgrade, take manifests/overlays/example or the chart instead.
"""

_SOURCE = b"https://github.com/OWNER/dynsched"
"""What the links of the alerts begin with in a clone."""
_PLUGIN = """\
#!/bin/sh
# kubectl dynsched, installed by krew: runs dynsched {version} in an environment of its own, with
# the versions of packages that it was tested with.
pins=$(dirname "$(readlink -f "$0")")/constraints.txt
if command -v uvx >/dev/null 2>&1; then
  exec uvx --quiet --constraints "$pins" --from dynsched=={version} kubectl-dynsched "$@"
elif command -v pipx >/dev/null 2>&1; then
  exec pipx run --quiet --pip-args "--constraint '$pins'" \\
    --spec dynsched=={version} kubectl-dynsched "$@"
fi
echo 'kubectl dynsched: neither uv nor pipx is on PATH; install one of them, it runs the plugin' >&2
exit 1
"""


@click.command()
@click.argument("dist", type=click.Path(path_type=Path, file_okay=False))
@click.option("--image", default="dynsched", help="The image's name, without a tag.")
@click.option(
    "--source", default="https://git.example.com/platform/dynsched", help="The repository."
)
@click.option("--tag", help="The tag that is released; it has to be that of the version.")
def main(dist: Path, image: str, source: str, tag: str | None) -> None:
    """Build wheel, sdist, chart, install.yaml, krew plugin, SBOM and checksums into DIST."""
    if tag not in (None, f"v{VERSION}"):
        raise click.ClickException(
            f"the tag is {tag} and the version in pyproject.toml {VERSION}; make the tag v{VERSION}"
        )
    heading = f"## [{VERSION}]"
    if tag and heading not in (ROOT / "CHANGELOG.md").read_text().splitlines():
        raise click.ClickException(
            f'CHANGELOG.md has no line "{heading}"; take "not released yet" out of the heading'
        )
    dist.mkdir(parents=True, exist_ok=True)
    if any(dist.iterdir()):
        raise click.ClickException(f"{dist} is not empty; remove it")
    dist, epoch = dist.resolve(), _epoch()
    _run(
        sys.executable,
        "-m",
        "hatchling",
        "build",
        "-d",
        dist,
        "-t",
        "sdist",
        "-t",
        "wheel",
        epoch=epoch,
    )
    _chart(dist / f"dynsched-{VERSION}.tgz", image, source, epoch)
    (dist / "install.yaml").write_text(_INSTALL.format(version=VERSION) + _manifest(image))
    bom = dist / f"dynsched-{VERSION}.bom.json"
    command = (
        "cyclonedx_py",
        "requirements",
        "--pyproject",
        "pyproject.toml",
        "--output-reproducible",
    )
    _run(sys.executable, "-W", "ignore", "-m", *command, "-o", bom, "requirements.txt", epoch=epoch)
    _krew(dist, source, epoch)
    sums = [f"{_sha256(path)}  {path.name}\n" for path in sorted(dist.iterdir())]
    (dist / "SHA256SUMS").write_text("".join(sums))
    click.echo("".join(sums), nl=False)


def _epoch() -> int:
    """The time of the last commit, or what SOURCE_DATE_EPOCH says."""
    told = os.environ.get("SOURCE_DATE_EPOCH") or _run("git", "log", "-1", "--format=%ct")
    return int(told)


def _run(*command: str | Path, epoch: int | None = None) -> str:
    environment = os.environ | ({} if epoch is None else {"SOURCE_DATE_EPOCH": str(epoch)})
    try:
        done = subprocess.run(  # noqa: S603 - our own commands
            [str(part) for part in command],
            cwd=ROOT,
            env=environment,
            check=True,
            text=True,
            capture_output=True,
        )
    except FileNotFoundError:
        raise click.ClickException(f"{command[0]} is not on PATH; install it") from None
    except subprocess.CalledProcessError as error:
        raise click.ClickException(f"{' '.join(map(str, command))}:\n{error.stderr}") from None
    return done.stdout


def _chart(archive: Path, image: str, source: str, epoch: int) -> None:
    """What ``helm package`` makes: links are replaced by the files that they lead to."""
    with (
        archive.open("wb") as raw,
        gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=epoch) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar,
    ):
        for name, content in _chart_files(ROOT / "charts/dynsched"):
            packed_as = content.replace(_SOURCE, source.encode())
            if name == "values.yaml":
                repository = f"  repository: {image}".encode()
                packed_as = re.sub(rb"(?m)^  repository: .*$", repository, packed_as)
            entry = tarfile.TarInfo(f"dynsched/{name}")
            entry.size, entry.mtime, entry.mode = len(packed_as), epoch, 0o644
            tar.addfile(entry, io.BytesIO(packed_as))


def _chart_files(chart: Path) -> Iterator[tuple[str, bytes]]:
    ignored = pathspec.GitIgnoreSpec.from_lines((chart / ".helmignore").read_text().splitlines())
    walked = os.walk(chart, followlinks=True)
    found = [Path(folder) / name for folder, _, names in walked for name in names]
    # Helm reads a chart's description first.
    for path in sorted(found, key=lambda path: (path.name != "Chart.yaml", path)):
        name = str(path.relative_to(chart))
        if not ignored.match_file(name):
            yield name, path.read_bytes()


def _manifest(image: str) -> str:
    """manifests/base with the image's name, as kustomize renders it."""
    with TemporaryDirectory(prefix="dynsched-release-") as folder:
        kustomization = {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            # kustomize takes no absolute path.
            "resources": [os.path.relpath(ROOT / "manifests/base", Path(folder).resolve())],
            "images": [{"name": "dynsched", "newName": image, "newTag": VERSION}],
        }
        (Path(folder) / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
        return _run("kubectl", "kustomize", folder)


def _krew(dist: Path, source: str, epoch: int) -> None:
    """The plugin of kubectl for krew: a script that runs the package of this version."""
    archive = dist / f"kubectl-dynsched-{VERSION}.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content, mode in (
            ("LICENSE", (ROOT / "LICENSE").read_text(), 0o644),
            ("constraints.txt", (ROOT / "constraints.txt").read_text(), 0o644),
            ("kubectl-dynsched", _PLUGIN.format(version=VERSION), 0o755),
        ):
            entry = zipfile.ZipInfo(name, datetime.fromtimestamp(epoch, UTC).timetuple()[:6])
            entry.external_attr, entry.create_system = (0o100000 | mode) << 16, 3
            packed.writestr(entry, content, zipfile.ZIP_DEFLATED)
    plugin = {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "dynsched"},
        "spec": {
            "version": f"v{VERSION}",
            "homepage": source,
            "shortDescription": "Shows which nodes are hot by their real load, and why",
            "description": f"{PROJECT['description']}. Asks the dynsched that runs in the cluster.",
            "caveats": "uv or pipx has to be on PATH: it runs the package of this version.",
            "platforms": [
                {
                    "selector": {
                        "matchExpressions": [
                            {"key": "os", "operator": "In", "values": ["linux", "darwin"]}
                        ]
                    },
                    "uri": f"{source}/releases/download/v{VERSION}/{archive.name}",
                    "sha256": _sha256(archive),
                    "bin": "kubectl-dynsched",
                }
            ],
        },
    }
    (dist / "dynsched.yaml").write_text(yaml.safe_dump(plugin, sort_keys=False))


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


if __name__ == "__main__":
    main()
