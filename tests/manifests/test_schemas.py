"""Manifests, examples and the dashboard fit the schemas of Kubernetes and of Grafana."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.cog.runtime import Runtime
from grafana_foundation_sdk.models.dashboard import Dashboard
from manifest_support import (
    BASE,
    NEWEST,
    OLDEST,
    OPERATOR_KINDS,
    OVERLAYS,
    SINCE_1_30,
    SINCE_1_36,
    Doc,
    kustomize,
    load_all,
)
from monitoring_support import DASHBOARD, panels
from programs import ROOT

pytestmark = pytest.mark.thorough

FOLDERS = [BASE, *sorted(path.parent for path in OVERLAYS.glob("*/kustomization.yaml"))]
EXAMPLES = sorted((ROOT / "manifests/examples").glob("nginx*.yaml"))


def too_new(version: str) -> set[str]:
    """The kinds that this version of Kubernetes does not have yet."""
    return (SINCE_1_36 if version != NEWEST else set()) | (
        SINCE_1_30 if version == OLDEST else set()
    )


@pytest.mark.parametrize("version", [OLDEST, "1.30", NEWEST])
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_what_kustomize_renders_fits(folder: Path, version: str) -> None:
    for doc in kustomize(folder):
        if doc["kind"] in OPERATOR_KINDS:
            assert doc["apiVersion"] == "monitoring.coreos.com/v1"
        elif doc["kind"] not in too_new(version):
            kubernetes_validate.validate(doc, version, strict=True)


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_the_files_that_are_applied_without_kustomize_fit(version: str) -> None:
    paths = [path for path in (*BASE.glob("*.yaml"), *EXAMPLES) if "apiVersion" in path.read_text()]
    docs = [doc for path in paths for doc in load_all(path) if doc["kind"] != "Kustomization"]
    assert len(docs) >= 10
    for doc in docs:
        kubernetes_validate.validate(doc, version, strict=True)


def test_the_schemas_would_find_a_mistake() -> None:
    (doc,) = load_all(BASE / "deployment.yaml")
    doc["spec"]["template"]["spec"]["containers"][0]["livenessProb"] = {}
    with pytest.raises(kubernetes_validate.ValidationError, match="livenessProb"):
        kubernetes_validate.validate(doc, NEWEST, strict=True)


def not_understood(ours: Any, read: Any, path: str = "") -> Iterator[str]:
    """Where ``read`` lacks something of ``ours``, or has something else."""
    if isinstance(ours, dict) and isinstance(read, dict):
        for key, value in ours.items():
            if key in read:
                yield from not_understood(value, read[key], f"{path}.{key}")
            else:
                yield f"{path}.{key}"
    elif isinstance(ours, list) and isinstance(read, list) and len(ours) == len(read):
        for index, (mine, other) in enumerate(zip(ours, read, strict=True)):
            yield from not_understood(mine, other, f"{path}[{index}]")
    elif ours != read:
        yield path


def as_grafana_reads(dashboard: Doc) -> Any:
    """Through the types of Grafana's own SDK, which drop what they do not know."""
    register_default_plugins()
    return json.loads(json.dumps(Dashboard.from_json(dashboard), cls=JSONEncoder))


def test_grafana_knows_every_field() -> None:
    assert list(not_understood(DASHBOARD, as_grafana_reads(DASHBOARD))) == []
    kinds = {panel["type"] for panel in panels()}
    assert kinds <= Runtime().panelcfg_variants.keys()


def test_a_misspelled_field_would_be_found() -> None:
    changed = json.loads(json.dumps(DASHBOARD))
    panel = next(panel for panel in changed["panels"] if panel["type"] == "state-timeline")
    panel["options"]["mergeValue"] = panel["options"].pop("mergeValues")
    panel["targets"][0]["expression"] = "up"
    found = " ".join(not_understood(changed, as_grafana_reads(changed)))
    assert ".options.mergeValue" in found
    assert ".targets[0].expression" in found
