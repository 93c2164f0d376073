"""Image archives in the format of `docker save`, each with a single static program."""

import hashlib
import io
import json
import struct
import tarfile
from pathlib import Path


def pause_program() -> bytes:
    """An ELF program that only waits, to hold a pod's namespaces."""
    code = b"\xb8\x22\x00\x00\x00\x0f\x05\xeb\xf7"  # pause() for ever, on x86_64
    where, headers = 0x400000, 64 + 56
    magic = b"\x7fELF\x02\x01\x01"
    fields = (magic, 2, 62, 1, where + headers, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    segment = (1, 5, 0, where, where, headers + len(code), headers + len(code), 0x1000)
    return struct.pack("<16sHHIQQQIHHHHHH", *fields) + struct.pack("<IIQQQQQQ", *segment) + code


def image_of(folder: Path, name: str, program: bytes, tag: str = "") -> Path:
    """Write an image archive with this program as /bin/NAME; default tag localhost/NAME:1."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as archive:
        _add(archive, f"bin/{name}", program)
    digest = f"sha256:{hashlib.sha256(layer.getvalue()).hexdigest()}"
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": [f"/bin/{name}"], "Env": ["PATH=/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [digest]},
    }
    tags = [tag or f"localhost/{name}:1"]
    manifest = [{"Config": "config.json", "RepoTags": tags, "Layers": ["layer.tar"]}]
    path = folder / f"{name}.tar"
    with tarfile.open(path, "w") as archive:
        _add(archive, "layer.tar", layer.getvalue())
        _add(archive, "config.json", json.dumps(config).encode())
        _add(archive, "manifest.json", json.dumps(manifest).encode())
    return path


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(content), 0o755
    archive.addfile(info, io.BytesIO(content))
