"""Writes the chart's README from the comments in its values: ``python -m tools.chart_docs DIR``."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

_HEAD = """\
# dynsched

{description}. For each node the real load decides (rules over Prometheus); a hot node is marked by a
label or a soft taint, and the scheduler prefers others. What it is and how it works:
[the README of the project](../../README.md).

```sh
helm install dynsched charts/dynsched --namespace dynsched --create-namespace \\
  --set image.repository=registry.example.com/platform/dynsched \\
  --values charts/dynsched/values-kube-prometheus-stack.yaml   # or --set prometheus.url=http://...
kubectl label namespace shop dynsched.io/avoid-pressure=true   # its new pods get the order
kubectl -n dynsched exec deploy/dynsched -- dynsched nodes
```

Hot nodes get the label `status=presure`. New pods of namespaces with that label prefer the coolest nodes ([the
order](../../docs/order.md)): by policies of the API server from Kubernetes 1.36 on, before by a webhook. The chart chooses.

| Your Prometheus | Values |
| --- | --- |
| kube-prometheus-stack | [values-kube-prometheus-stack.yaml](values-kube-prometheus-stack.yaml), with alerts and the dashboard |
| Amazon's, Azure's or Google's managed service | [values-amazon.yaml](values-amazon.yaml), [values-azure.yaml](values-azure.yaml), [values-google.yaml](values-google.yaml) |
| another one | `prometheus.url` ([which](../../docs/prometheus.md#which-url)), `networkPolicy.from` and `networkPolicy.prometheusPorts` |

| Your cluster | Values |
| --- | --- |
| Karpenter | nothing. The chart refuses `mark.taint` there ([what else to set](../../docs/install.md#autoscalers)) |
| OpenShift | [Prometheus](../../docs/prometheus.md#openshift); it assigns user and group itself |
| MicroK8s, minikube, k3s | `networkPolicy.apiServerPorts` with 16443, 8443 or 6444 |
| GKE Autopilot | nothing, but no `collector`: Autopilot forbids its hostPath. It raises small requests to its own minimum |
| EKS with Fargate | nothing: Fargate's nodes are never marked and in no list of the order, and pods go there by their Fargate profile alone |

The objects have fixed names, so there is one release in a cluster.
They come from the files of [the kustomize tree](../../manifests), to which the folders `base`,
`components` and `collector` are links; `helm package` puts the files themselves into the archive.

- **How to look:** [`kubectl dynsched nodes`](../../docs/look.md#kubectl-dynsched). The plugin asks through the API server, which
  `kubectl.enabled` lets in where NetworkPolicies are enforced
- **How to take it back:** `helm -n dynsched uninstall dynsched`. A Job before it removes all marks from nodes, which
  Argo CD runs too (from 3.3 on); `--no-hooks` leaves it out
- **Rules** are set inline, by `rules`, in the form of [rules.yaml](../../docs/rules.md) without `mark`:
  `helm upgrade ... --values rules-values.yaml`. A change of them restarts no pod.
- **The parts** are switched on by `ha.enabled`, `guardrail.enabled`, `janitor.enabled`,
  `monitoring.enabled`, [`inject.enabled`](../../docs/order.md#the-soft-affinity),
  `extender.enabled`, [`extenderPort.enabled`](../../docs/extender.md), [`webAuth.enabled`](../../docs/operate.md#who-may-read),
  [`kubectl.enabled`](../../docs/look.md#kubectl-dynsched),
  [`descheduler.enabled`](../../docs/descheduler.md) and `collector.enabled`.
- **An upgrade, and back:** [docs/install.md](../../docs/install.md#upgrade)
- **Pod Security:** `--create-namespace` makes a namespace without labels. The pods fit `restricted`:
  `kubectl label namespace dynsched pod-security.kubernetes.io/enforce=restricted`

## Values

Made by `make docs` from the comments in `values.yaml`.

| Value | Default | |
| --- | --- | --- |
"""


@dataclass(frozen=True, slots=True)
class Leaf:
    """One value: its path with dots, its default, and the comment above it."""

    path: str
    default: Any
    comment: str


def leaves(text: str) -> list[Leaf]:
    """The values of a values.yaml, in their order."""
    return list(_walk(yaml.compose(text), text.splitlines(), ""))


def _walk(node: Any, lines: list[str], above: str) -> Iterator[Leaf]:
    for key, value in node.value:
        path = above + key.value
        if isinstance(value, yaml.MappingNode) and value.value:
            yield from _walk(value, lines, f"{path}.")
        else:
            default = yaml.safe_load(yaml.serialize(value))
            yield Leaf(path, default, _comment(lines, key.start_mark.line))


def _comment(lines: list[str], line: int) -> str:
    found: list[str] = []
    while line and lines[line - 1].lstrip().startswith("#"):
        line -= 1
        found.insert(0, lines[line].lstrip().removeprefix("#").strip())
    return " ".join(found)


def render(folder: Path) -> str:
    """The README of the chart in ``folder``."""
    chart = yaml.safe_load((folder / "Chart.yaml").read_text(encoding="utf-8"))
    values = (folder / "values.yaml").read_text(encoding="utf-8")
    rows = [
        f"| `{leaf.path}` | `{json.dumps(leaf.default)}` | {leaf.comment} |\n"
        for leaf in leaves(values)
    ]
    return _HEAD.replace("{description}", chart["description"]) + "".join(rows)


if __name__ == "__main__":
    target = Path(sys.argv[1])
    (target / "README.md").write_text(render(target), encoding="utf-8")
