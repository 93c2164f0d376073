"""docs/install.md: its commands create the folder that its examples use, and it builds."""

import re
import sys
from pathlib import Path

from manifest_support import kustomize, load_all, templates
from programs import ROOT, run


def test_the_pages_commands_create_what_the_examples_point_to(tmp_path: Path) -> None:
    """test_chart.py shows that the chart accepts the values of the HelmRelease."""
    (tmp_path / "prod-1").mkdir()
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / "docs/install.md").read_text(), re.DOTALL)
    (commands,) = (block for block in blocks if "../prod-1" in block)
    script = f"cd {ROOT}; PATH={Path(sys.executable).parent}:$PATH; {commands}"
    script = script.replace("../prod-1", str(tmp_path / "prod-1"))
    done = run("bash", "-euo", "pipefail", "-c", script)
    assert done.returncode == 0, done.stderr
    assert "ConfigMap dynsched/dynsched-rules, rules.yaml: 2 rules" in done.stdout
    examples = ROOT / "docs/examples/gitops"
    (argo,) = (each["spec"] for each in load_all(examples / "argo-cd.yaml"))
    source, flux = load_all(examples / "flux.yaml")
    assert flux["spec"]["sourceRef"] == {"kind": source["kind"], "name": source["metadata"]["name"]}
    assert argo["source"]["repoURL"] == source["spec"]["url"]
    (folder,) = {tmp_path / "prod-1" / part["path"] for part in (argo["source"], flux["spec"])}
    docs = kustomize(folder)
    assert templates(docs).keys() == {argo["destination"]["namespace"]}
    assert {"PodMonitor", "PodDisruptionBudget"} <= {doc["kind"] for doc in docs}
    chart, release = load_all(examples / "flux-helm.yaml")
    assert release["spec"]["chartRef"] == {"kind": chart["kind"], "name": chart["metadata"]["name"]}
    (version,) = (each["version"] for each in load_all(ROOT / "charts/dynsched/Chart.yaml"))
    assert chart["spec"]["ref"] == {"tag": version}
