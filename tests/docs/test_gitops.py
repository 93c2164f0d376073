"""docs/gitops.md: its commands make the folder that its examples point to, and it builds."""

import re
import sys
from pathlib import Path

import yaml
from manifest_support import Doc, kustomize, load_all, templates
from programs import ROOT, run

PAGE = (ROOT / "docs/gitops.md").read_text()
EXAMPLES = {path.name: load_all(path) for path in (ROOT / "docs/examples/gitops").iterdir()}


def by_kind(name: str) -> dict[str, Doc]:
    return {doc["kind"]: doc for doc in EXAMPLES[name]}


def test_the_commands_of_the_page_make_what_the_examples_point_to(tmp_path: Path) -> None:
    (tmp_path / "prod-1").mkdir()
    (commands,) = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    before = f"cd {ROOT}; PATH={Path(sys.executable).parent}:$PATH"
    script = f"{before}; {commands.replace('../prod-1', str(tmp_path / 'prod-1'))}"
    done = run("bash", "-euo", "pipefail", "-c", script)
    assert done.returncode == 0, done.stderr
    assert "ConfigMap dynsched/dynsched-rules, rules.yaml: 2 rules" in done.stdout
    flux, argo = by_kind("flux.yaml"), by_kind("argo-cd.yaml")["Application"]["spec"]
    source = flux["GitRepository"]
    assert flux["Kustomization"]["spec"]["sourceRef"]["name"] == source["metadata"]["name"]
    assert source["spec"]["url"] == argo["source"]["repoURL"]
    assert source["spec"]["ref"]["branch"] == argo["source"]["targetRevision"]
    folders = {tmp_path / "prod-1" / argo["source"]["path"]}
    folders.add(tmp_path / "prod-1" / flux["Kustomization"]["spec"]["path"])
    (folder,) = folders
    docs = kustomize(folder)
    assert templates(docs).keys() == {"dynsched"}
    namespaces = {doc["metadata"].get("namespace") for doc in docs} - {None}
    assert namespaces == {argo["destination"]["namespace"]}
    assert {"PodMonitor", "PodDisruptionBudget"} <= {doc["kind"] for doc in docs}
    assert "automated" in argo["syncPolicy"]


def test_the_release_of_the_chart_is_the_one_of_this_version() -> None:
    """That the chart takes its values is in test_chart.py."""
    flux = by_kind("flux-helm.yaml")
    chart = yaml.safe_load((ROOT / "charts/dynsched/Chart.yaml").read_text())
    repository, release = flux["OCIRepository"], flux["HelmRelease"]["spec"]
    assert repository["spec"]["ref"]["tag"] == chart["version"]
    assert repository["spec"]["url"].endswith(f"/{chart['name']}")
    reference = {"kind": "OCIRepository", "name": repository["metadata"]["name"]}
    assert release["chartRef"] == reference
