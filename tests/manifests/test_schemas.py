"""Every manifest against the schemas of the oldest and the newest Kubernetes."""

from pathlib import Path

import pytest
from manifest_support import (
    COMPONENTS,
    OPERATOR_KINDS,
    OVERLAYS,
    SINCE,
    VERSIONS,
    Doc,
    kustomize,
    load_all,
    shipped,
)
from programs import ROOT

pytestmark = pytest.mark.thorough

SHIPPED = sorted(
    {"base", *(path.name for folder in (OVERLAYS, COMPONENTS) for path in folder.iterdir())}
)
FILES = [ROOT / "manifests/examples" / name for name in ("nginx.yaml", "nginx-mem-real-usage.yaml")]


def check(doc: Doc, version: str) -> None:
    import kubernetes_validate  # noqa: PLC0415 - installed for the second tier only

    kubernetes_validate.validate(doc, version, strict=True)


@pytest.mark.parametrize("path", [*map(shipped, SHIPPED), *FILES], ids=lambda path: path.name)
def test_it_is_valid_against_the_schemas(path: Path) -> None:
    for doc in kustomize(path) if path.is_dir() else load_all(path):
        if doc["kind"] in OPERATOR_KINDS:
            assert doc["apiVersion"] == "monitoring.coreos.com/v1"
            continue
        for version in VERSIONS:
            if version >= SINCE.get(doc["kind"], ""):
                check(doc, version)
