"""The image: its size and content; the process needs only Python from it."""

import gzip
import json
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from programs import ROOT
from site_support import Site, hot, until

SHELLS = ("/bin/sh", "/bin/bash")
STATUS = """\
import json, pathlib, importlib.metadata as metadata
status = pathlib.Path("/proc/self/status").read_text()
try:
    pathlib.Path("/etc/dynsched/mine").touch()
    wrote = "yes"
except OSError as e:
    wrote = e.strerror
packages = {each.name: each.version for each in metadata.distributions()}
print(json.dumps({"status": status, "wrote": wrote, "packages": packages}))
"""


@pytest.fixture(scope="module")
def layers(archive: Path) -> list[tuple[bytes, list[tarfile.TarInfo]]]:
    """Content and members of the layers from the first with dynsched on: not the base image's."""
    with tarfile.open(archive) as opened:
        names = json.load(member(opened, "manifest.json"))[0]["Layers"]
        found = []
        for name in names:
            content = member(opened, name)
            with tarfile.open(fileobj=content) as layer:
                members = layer.getmembers()
            if found or any(each.name.startswith("opt/dynsched") for each in members):
                content.seek(0)
                found.append((content.read(), members))
        return found


def member(archive: tarfile.TarFile, name: str):  # type: ignore[no-untyped-def]
    found = archive.extractfile(name)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def bare(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One pod in which no shell can start, because an empty file is mounted over each."""
    folder = tmp_path_factory.mktemp("bare") / "mine"
    site.example(folder, (), hot(site.node(0)))
    file = folder / "kustomization.yaml"
    content = yaml.safe_load(file.read_text())
    nothing = {"name": "nothing", "namespace": "dynsched", "literals": ["file="]}
    content["configMapGenerator"].append(nothing)
    mounts = [{"name": "nothing", "mountPath": each, "subPath": "file"} for each in SHELLS]
    volumes = [{"name": "nothing", "configMap": {"name": "nothing"}}]
    pod = {"containers": [{"name": "dynsched", "volumeMounts": mounts}], "volumes": volumes}
    patch = {"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"template": {"spec": pod}}}
    patch["metadata"] = {"name": "dynsched", "namespace": "dynsched"}
    content["patches"] = [{"patch": yaml.safe_dump(patch)}]
    file.write_text(yaml.safe_dump(content))
    with site.installed("-k", folder):
        yield site


def test_its_own_layers_have_at_most_110_mb_and_35_mb_compressed(layers):
    assert sum(each.size for _, members in layers for each in members) <= 110e6
    assert sum(len(gzip.compress(content, 6)) for content, _ in layers) <= 35e6


def test_only_root_may_change_its_files(layers):
    for _, members in layers:
        for each in members:
            assert (each.uid, each.gid) == (0, 0), each.name
            assert each.issym() or not each.mode & 0o6022 or each.name == "tmp", each.name
            assert not each.name.startswith("run/secrets/"), each.name


def test_it_runs_without_a_shell_a_writable_root_file_system_or_any_privilege(bare: Site):
    until("it marks", lambda: bare.marked() == {bare.node(0)})
    for shell in SHELLS:
        with pytest.raises(AssertionError, match="permission denied"):
            bare.ours("exec", "deploy/dynsched", "--", shell, "-c", "true")
    found = json.loads(bare.ours("exec", "deploy/dynsched", "--", "python", "-c", STATUS))
    assert found["wrote"] == "Read-only file system"
    status = dict(line.split(":\t") for line in found["status"].splitlines())
    assert status["Uid"].split() == status["Gid"].split() == ["65532"] * 4
    assert int(status["CapEff"], 16) == int(status["CapBnd"], 16) == 0
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    pinned = dict(
        re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "requirements.txt").read_text(), re.MULTILINE)
    )
    packages = {each.lower().replace("_", "-"): v for each, v in found["packages"].items()}
    del packages["dynsched"]
    assert packages.items() <= pinned.items()
