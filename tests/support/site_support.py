"""A cluster whose kubelets run pods, and dynsched installed on it as a user would do it."""

from __future__ import annotations

import json
import logging
import re
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml
from manifest_support import COMPONENTS, OVERLAYS, Doc, Kubectl
from programs import run
from prometheus_support import Process, RealPrometheus

LOG = logging.getLogger("e2e")
NAMESPACE = "dynsched"
SHOP = "dynsched-e2e"
"""The namespace of the workloads."""

OURS = "app.kubernetes.io/name in (dynsched, dynsched-janitor, dynsched-collector)"
RUNNING = "app.kubernetes.io/name=dynsched"
LABEL, TAINT = "status=presure", "dynsched.io/pressure=true:PreferNoSchedule"
EVERYWHERE = (  # what has no namespace, or is in `default`
    *("clusterrole", "clusterrolebinding", "customresourcedefinition", "role", "rolebinding"),
    *("validatingadmissionpolicy", "validatingadmissionpolicybinding"),
    *("mutatingadmissionpolicy", "mutatingadmissionpolicybinding"),
)


class KubectlProxy(Process):
    """`kubectl proxy`, by which Prometheus reaches the kubelets with the rights of a kubeconfig."""

    name, package = "kubectl", "kubernetes-client"

    def __init__(self, folder: Path, kubeconfig: Path) -> None:
        super().__init__(folder, "/readyz")
        self._kubeconfig = kubeconfig

    def command(self, address: str) -> Sequence[str]:
        port = address.rpartition(":")[2]
        return [f"--kubeconfig={self._kubeconfig}", "proxy", f"--port={port}"]


class PrometheusForPods(RealPrometheus):
    """It listens where pods reach it, and at the port that the base's NetworkPolicy allows."""

    def __init__(self, folder: Path, host: str, scrape: Sequence[Mapping[str, Any]]) -> None:
        super().__init__(folder, scrape, interval="5s")
        self._host = host

    def free_address(self) -> str:
        return f"{self._host}:9090"


def host_towards(address: str) -> str:
    """This machine's address in the network of another one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((address, 9))  # nothing is sent
        found: str = probe.getsockname()[0]
        return found


@dataclass(frozen=True)
class Site:
    """The cluster, the image that its nodes have or can pull, and a Prometheus of its kubelets."""

    kubectl: Kubectl
    image: str
    prometheus: RealPrometheus

    def get(self, what: str, *arguments: str) -> list[Doc]:
        found: list[Doc] = json.loads(self.kubectl("get", what, *arguments, "-o", "json"))["items"]
        return found

    def nodes(self) -> list[Doc]:
        """Those that take pods."""
        return [
            node
            for node in self.get("nodes")
            if all(t["effect"] == "PreferNoSchedule" for t in node["spec"].get("taints", []))
        ]

    def node(self, number: int) -> str:
        name: str = self.nodes()[number]["metadata"]["name"]
        return name

    def has_mutating_policies(self) -> bool:
        served = self.kubectl("get", "--raw", "/apis/admissionregistration.k8s.io/v1")
        return "mutatingadmissionpolicies" in served

    def marked(self) -> set[str]:
        return {node["metadata"]["name"] for node in self.get("nodes", "-l", LABEL)}

    def cores(self) -> float:
        """The allocatable CPU of the smallest node."""
        return min(cores(node["status"]["allocatable"]["cpu"]) for node in self.nodes())

    def rules(self) -> Doc:
        """A node counts as hot where its pods use more than half of the CPU. By cAdvisor's series
        of the cgroup of all pods, whatever the kubelet calls it.
        """
        pods = 'id=~"/([^/]+/)?([a-z]+-)?kubepods([.]slice)?"'
        use = f"sum by (instance) (rate(container_cpu_usage_seconds_total{{{pods}}}[1m]))"
        return rules_by(f"100 * {use} / {self.cores():g}", resource="cpu")

    def example(self, folder: Path, components: Sequence[str], rules: Doc) -> Path:
        """manifests/overlays/example, copied and changed as it says."""
        shutil.copytree(OVERLAYS / "example", folder)
        if not self.has_mutating_policies():
            components = [name for name in components if name not in ("order", "inject")]
        for name in components:
            shutil.copytree(COMPONENTS / name, folder / name)
        (folder / "rules.yaml").write_text(yaml.safe_dump(rules))
        file = folder / "kustomization.yaml"
        kustomization = yaml.safe_load(file.read_text())
        name, _, tag = self.image.rpartition(":")
        kustomization["images"] = [{"name": "dynsched", "newName": name, "newTag": tag}]
        settings = kustomization["configMapGenerator"][0]
        settings["literals"] = [f"DYNSCHED_PROM={self.prometheus.url}", "DYNSCHED_INTERVAL=5"]
        file.write_text(yaml.safe_dump(kustomization | {"components": list(components)}))
        return folder

    @contextmanager
    def installed(self, *how: str | Path) -> Iterator[None]:
        """``kubectl apply`` and its arguments; at the end, what docs/upgrading.md says."""
        self.kubectl("apply", *how)
        try:
            self.rolled_out()
            told = self.warnings()
            assert not told, told
            yield
            self.stop()
        finally:
            self.kubectl("delete", "--ignore-not-found", *how)
        left = self.left()
        assert not left, left

    def rolled_out(self) -> None:
        self.ours("rollout", "status", "deploy/dynsched", "--timeout=230s")

    def stop(self) -> None:
        """Stop dynsched, and remove its marks."""
        self.ours("scale", "deploy/dynsched", "--replicas=0")
        self.ours("wait", "--for=delete", "pod", "-l", RUNNING, "--timeout=230s")
        self.prune()

    def ours(self, *arguments: str) -> str:
        return self.kubectl("-n", NAMESPACE, *arguments)

    def pods(self) -> list[Doc]:
        """dynsched's own."""
        return self.get("pods", "-n", NAMESPACE, "-l", RUNNING)

    def ask(self, path: str) -> str:
        """What dynsched answers in its pod."""
        url = f"http://127.0.0.1:9000{path}"
        code = f"from urllib.request import urlopen; print(urlopen('{url}').read().decode())"
        return self.ours("exec", "deploy/dynsched", "--", "python", "-c", code)

    def lease(self) -> Doc:
        found: Doc = json.loads(self.ours("get", "lease", "dynsched", "-o", "json"))
        return found

    def prune(self) -> None:
        command = (sys.executable, "-m", "dynsched", "prune", f"--kubeconfig={self.kubeconfig}")
        run(*command, check=True)

    @property
    def kubeconfig(self) -> Path:
        return self.kubectl.kubeconfig

    def apply(self, *objects: Mapping[str, Any]) -> None:
        """Make them in the namespace of the workloads, where they name none."""
        command = ("kubectl", f"--kubeconfig={self.kubeconfig}", "-n", SHOP, "apply", "-f", "-")
        done = run(*command, stdin=yaml.safe_dump_all(objects))
        assert done.returncode == 0, done.stderr

    def warnings(self) -> list[str]:
        """Warning Events in the namespace, most of them of the kubelet. Those about a pod that is
        gone do not count, nor about one that had too little CPU to start before it is first probed.
        """
        events = self.get("events", "-n", NAMESPACE, "--field-selector", "type=Warning")
        prompt = {pod["metadata"]["uid"] for pod in self.pods() if self._seconds_to_serve(pod) < 3}
        told = []
        for event in events:
            text = f"{event['reason']}: {event['message']}"
            if event["involvedObject"]["kind"] == "Pod" and (
                event["involvedObject"]["uid"] not in prompt
            ):
                LOG.info("not counted: %s", text)
            else:
                told.append(text)
        return told

    def _seconds_to_serve(self, pod: Doc) -> float:
        started = pod["status"]["containerStatuses"][0]["state"]["running"]["startedAt"]
        log = self.ours("logs", pod["metadata"]["name"], "--timestamps")
        serving = next(line for line in log.splitlines() if "serving on" in line)
        taken = datetime.fromisoformat(serving.split()[0][:26] + "Z") - datetime.fromisoformat(
            started
        )
        return taken.total_seconds()

    def left(self) -> list[str]:
        """What there still is of dynsched."""
        kinds = ",".join(("namespace", *EVERYWHERE))  # all else is in the namespaces
        found = self.kubectl("get", kinds, "-A", "-l", OURS, "-o", "name").split()
        for node in self.get("nodes"):
            meta, taints = node["metadata"], node["spec"].get("taints", [])
            keys = [*meta["labels"], *meta.get("annotations", ()), *(t["key"] for t in taints)]
            found += [
                f"{meta['name']}: {key}" for key in keys if "dynsched" in key or key == "status"
            ]
        return found


def rules_by(expr: str, **more: str) -> Doc:
    rule = {"name": "node-cpu", "expr": expr, "threshold": 50, "clear_threshold": 40}
    rule |= {"for": "10s", "keep_firing_for": "10s", **more}
    mark = {"label": LABEL, "taint": TAINT}
    return {"mark": mark, "order": {"score": {"node-cpu": 1}}, "rules": [rule]}


def hot(node: str) -> Doc:
    """Rules by which this node is hot whatever it does, and no other one."""
    return rules_by(
        f'95 * group by (instance) (up{{instance="{node}"}}) or 5 * group by (instance) (up)'
    )


def cores(quantity: str) -> float:
    """``600m`` or ``4``."""
    number = float(re.sub("m$", "", quantity))
    return number / 1000 if quantity.endswith("m") else number


def pods_that(site: Site, code: str, app: str, *, resources: Doc, **spec: Any) -> Doc:
    """The template of pods that run this Python, of dynsched's own image."""
    command = ["python", "-c", code]
    container = {"name": "main", "image": site.image, "command": command, "resources": resources}
    spec |= {"containers": [container], "terminationGracePeriodSeconds": 0}
    return {"metadata": {"labels": {"app": app}}, "spec": spec}


WAIT = "import time; time.sleep(3600)"
BURN = "while True: pass"


def until(what: str, true: Callable[[], Any], seconds: float = 600) -> float:
    """Wait for it; the seconds that it took."""
    began = time.monotonic()
    while not true():
        assert time.monotonic() < began + seconds, f"not within {seconds:g} s: {what}"
        time.sleep(0.5)
    return time.monotonic() - began


def without_a_writer(site: Site, do: Callable[[], Any]) -> float:
    """The longest time between two renewals of the Lease until all pods are ready again; all the
    while the marks stay.
    """
    marked, before = site.marked(), state(site)
    renewed = [datetime.fromisoformat(site.lease()["spec"]["renewTime"])]
    do()
    recovered, limit = None, time.monotonic() + 600
    while recovered is None or renewed[-1] < recovered:
        assert time.monotonic() < limit, "nobody renews the Lease"
        assert site.marked() == marked
        spec = site.lease()["spec"]
        if spec.get("holderIdentity") and datetime.fromisoformat(spec["renewTime"]) > renewed[-1]:
            renewed.append(datetime.fromisoformat(spec["renewTime"]))
        now = state(site)
        all_again = len(now) == len(before) and all(ready for *_, ready in now)
        if recovered is None and now != before and all_again:
            recovered = datetime.now(UTC)
    gap = max((b - a).total_seconds() for a, b in pairwise(renewed))
    LOG.info("without a writer: %.1f s", gap)
    return gap


def state(site: Site) -> set[tuple[str, int, bool]]:
    """Of each pod: which one, its restarts, whether it is ready."""
    found = set()
    for pod in site.pods():
        containers = pod["status"].get("containerStatuses", [])
        ready = bool(containers) and all(each["ready"] for each in containers)
        found.add((pod["metadata"]["uid"], restarts(pod), ready))
    return found


def restarts(pod: dict[str, Any]) -> int:
    return sum(each["restartCount"] for each in pod["status"].get("containerStatuses", []))
