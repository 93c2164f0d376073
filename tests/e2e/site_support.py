"""A cluster whose kubelets run pods, with dynsched installed like a user would."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml
from kubernetes.utils.quantity import parse_quantity
from manifest_support import Doc, Kubectl, commands
from programs import ROOT, run
from prometheus_support import Process, RealPrometheus

MANIFESTS = ROOT / "manifests"
LOG = logging.getLogger("e2e")
GIVEN = os.environ.get("E2E_KUBECONFIG", "")
"""The kubeconfig of an existing cluster. If it is empty, a local cluster is started."""
NAMESPACE = "dynsched"
PUSHGATEWAY_PORT = 9091
"""The port that the collector's NetworkPolicy allows."""
SHOP = "dynsched-e2e"
"""The namespace of the workloads."""

SECOND = "real-usage-scheduler"
OURS = (
    "app.kubernetes.io/name in "
    f"(dynsched, dynsched-janitor, dynsched-collector, dynsched-descheduler, {SECOND})"
)
RUNNING = "app.kubernetes.io/name=dynsched"
BY_CADVISOR = "pods-cpu"
LABEL, TAINT = "status=presure", "dynsched.io/pressure=true:PreferNoSchedule"
EVERYWHERE = (  # kinds without a namespace, or with objects in `default`
    *("clusterrole", "clusterrolebinding", "customresourcedefinition", "role", "rolebinding"),
    *("validatingadmissionpolicy", "validatingadmissionpolicybinding"),
    *("mutatingadmissionpolicy", "mutatingadmissionpolicybinding", "mutatingwebhookconfiguration"),
)


class KubectlProxy(Process):
    """`kubectl proxy`: Prometheus reaches kubelets through it with a kubeconfig's permissions."""

    name, package = "kubectl", "kubernetes-client"

    def __init__(self, folder: Path, kubeconfig: Path) -> None:
        super().__init__(folder, "/readyz")
        self._kubeconfig = kubeconfig

    def command(self, address: str) -> Sequence[str]:
        port = address.rpartition(":")[2]
        return [f"--kubeconfig={self._kubeconfig}", "proxy", f"--port={port}"]


class PrometheusForPods(RealPrometheus):
    """It listens where pods reach it, on the port that the base's NetworkPolicy allows."""

    def __init__(
        self, folder: Path, host: str, scrape: Sequence[Mapping[str, Any]], rules: Sequence[Path]
    ) -> None:
        super().__init__(folder, scrape, interval="5s", rule_files=rules)
        self._host = host

    def free_address(self) -> str:
        return f"{self._host}:9090"


@dataclass(frozen=True)
class Site:
    """The cluster, the image that its nodes have or can pull, and a Prometheus of its kubelets.

    ``proxy``: address of a proxy to the API server; ``targets``: file of additional scrape targets
    behind it.
    """

    kubectl: Kubectl
    image: str
    prometheus: RealPrometheus
    proxy: str
    targets: Path

    def get(self, what: str, *arguments: str) -> list[Doc]:
        found: list[Doc] = json.loads(self.kubectl("get", what, *arguments, "-o", "json"))["items"]
        return found

    def version(self) -> str:
        """The API server's version."""
        found: str = json.loads(self.kubectl("version", "-o", "json"))["serverVersion"][
            "gitVersion"
        ]
        return found

    def nodes(self) -> list[Doc]:
        """The nodes that take pods."""
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
        return min(
            float(parse_quantity(node["status"]["allocatable"]["cpu"])) for node in self.nodes()
        )

    def rules(self) -> Doc:
        """A node is hot if its pods use more than half of its CPU.

        The rule uses cAdvisor's series of the cgroup of all pods, whatever the kubelet names it.
        """
        pods = 'id=~"/([^/]+/)?([a-z]+-)?kubepods([.]slice)?"'
        use = f"sum by (instance) (rate(container_cpu_usage_seconds_total{{{pods}}}[1m]))"
        return rules_by(f"100 * {use} / {self.cores():g}", name=BY_CADVISOR, resource="cpu")

    def example(
        self, folder: Path, components: Sequence[str], rules: Doc, manifests: Path = MANIFESTS
    ) -> Path:
        """Copy manifests/overlays/example and change it as its comments say."""
        shutil.copytree(manifests / "overlays/example", folder)
        if not self.has_mutating_policies():
            components = [*(name for name in components if name != "inject"), "order-webhook"]
        # The order was a component before 0.3.0 and is part of the base since.
        there = manifests / "components"
        components = [name for name in components if (there / name).is_dir()]
        for name in components:
            shutil.copytree(manifests / "components" / name, folder / name)
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
    def installed(self, *how: str | Path, removed_by: Path | None = None) -> Iterator[None]:
        """``kubectl apply`` with these arguments; at the end, remove it as in docs/install.md."""
        delete = ("-k", removed_by) if removed_by else how
        self.kubectl("apply", *how)
        try:
            if not self.has_mutating_policies():
                self.certify()
            self.rolled_out()
            # The previous version is not checked: each start of 0.2.0 caused a Warning.
            problems = [] if removed_by else self.warnings()
            assert not problems, problems
            yield
            self.stop()
        finally:
            self.kubectl("delete", "--ignore-not-found", *delete)
        left = self.left()
        assert not left, left

    def certify(self) -> None:
        """Create the webhook's certificate with the page's commands, unless the chart made one."""
        secret = ("secret", "dynsched-order-webhook", "--ignore-not-found")
        if not self.ours("get", *secret):
            script = commands("docs/order.md", "openssl")
            with TemporaryDirectory() as folder:
                words = ("env", f"KUBECONFIG={self.kubeconfig}", "bash", "-euo", "pipefail", "-c")
                run(*words, script, cwd=folder, check=True)

    def rolled_out(self) -> None:
        """Wait for our workloads; scrape dynsched's pods from now on, like a PodMonitor."""
        for each in self.get("deployments,daemonsets", "-A", "-l", OURS):
            what = f"{each['kind']}/{each['metadata']['name']}"
            there = ("-n", each["metadata"]["namespace"])
            self.kubectl(*there, "rollout", "status", what, "--timeout=230s")
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{{}}:9000/proxy/metrics"
        names = [pod["metadata"]["name"] for pod in self.pods()]
        labels = [
            {"__metrics_path__": path.format(name), "namespace": NAMESPACE, "instance": name}
            | {"pod": name}
            for name in names
        ]
        new = self.targets.with_suffix(".new")
        new.write_text(json.dumps([{"targets": [self.proxy], "labels": each} for each in labels]))
        new.replace(self.targets)

    def stop(self) -> None:
        """Stop dynsched and remove its marks."""
        self.ours("scale", "deploy/dynsched", "--replicas=0")
        self.ours("wait", "--for=delete", "pod", "-l", RUNNING, "--timeout=230s")
        self.prune()

    def ours(self, *arguments: str) -> str:
        return self.kubectl("-n", NAMESPACE, *arguments)

    def pods(self) -> list[Doc]:
        """dynsched's pods."""
        return self.get("pods", "-n", NAMESPACE, "-l", RUNNING)

    def ask(self, path: str) -> str:
        """The response of dynsched's HTTP API, requested inside its pod."""
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
        """Apply objects, by default in the namespace of the workloads."""
        command = ("kubectl", f"--kubeconfig={self.kubeconfig}", "-n", SHOP, "apply", "-f", "-")
        done = run(*command, stdin=yaml.safe_dump_all(objects))
        assert done.returncode == 0, done.stderr

    def warnings(self) -> list[str]:
        """Warning Events in our namespaces, most of them from the kubelet, except for three kinds.

        - About a pod that is gone, or that had too little CPU to start before its first probe.
        - About a ConfigMap that a slow kubelet did not know within a second.
        - About the address of a new Service: if the API server's watch of Services is ahead of its
          watch of addresses, it considers an address lost that it has just assigned.
        """
        pods = self.get("pods", "-A", "-l", OURS)
        prompt = {pod["metadata"]["uid"] for pod in pods if self._seconds_to_serve(pod) < 3}
        namespaces = {NAMESPACE, *(pod["metadata"]["namespace"] for pod in pods)}
        problems = []
        for event in self.get("events", "-A", "--field-selector", "type=Warning"):
            about, text = event["involvedObject"], f"{event['reason']}: {event['message']}"
            if event["metadata"]["namespace"] not in namespaces:
                continue
            slow = "failed to sync" in text or about["uid"] not in prompt
            behind = about["kind"] == "Service" and event["reason"] == "ClusterIPNotAllocated"
            if behind or (about["kind"] == "Pod" and slow):
                LOG.info("not counted: %s", text)
            else:
                problems.append(text)
        return problems

    def _seconds_to_serve(self, pod: Doc) -> float:
        """Seconds until the slowest of its containers served."""
        meta, longest = pod["metadata"], 0.0
        for each in pod["status"]["containerStatuses"]:
            arguments = (meta["name"], f"--container={each['name']}", "--timestamps")
            log = self.kubectl("-n", meta["namespace"], "logs", *arguments)
            serving = re.search(
                r"^(\S{26})\S* .*serving (securely )?on", log, re.IGNORECASE | re.MULTILINE
            )
            if serving and "running" in each["state"]:
                taken = datetime.fromisoformat(serving[1] + "Z") - datetime.fromisoformat(
                    each["state"]["running"]["startedAt"]
                )
                longest = max(longest, taken.total_seconds())
        return longest

    def left(self) -> list[str]:
        """Objects, labels, annotations and taints of dynsched that still exist."""
        kinds = ",".join(("namespace", *EVERYWHERE))  # the namespaces contain the rest
        found = self.kubectl("get", kinds, "-A", "-l", OURS, "-o", "name").split()
        for node in self.get("nodes"):
            meta, taints = node["metadata"], node["spec"].get("taints", [])
            keys = [*meta["labels"], *meta.get("annotations", ()), *(t["key"] for t in taints)]
            found += [
                f"{meta['name']}: {key}" for key in keys if "dynsched" in key or key == "status"
            ]
        return found


def rules_by(expr: str, **more: str) -> Doc:
    rule: Doc = {"name": "node-cpu", "expr": expr, "threshold": 50, "clear_threshold": 40}
    rule |= {"for": "10s", "keep_firing_for": "10s", **more}
    mark = {"label": LABEL, "taint": TAINT}
    return {"mark": mark, "order": {"score": {rule["name"]: 1}}, "rules": [rule]}


def hot(node: str) -> Doc:
    """Rules that make this node hot whatever its load, and no other node."""
    return rules_by(load_of(node))


def load_of(node: str) -> str:
    """An expression that is 95 for this node and 5 for all others."""
    others, kubelets = f'{{job="kubelet", instance!="{node}"}}', "group by (instance) (up{})"
    this = others.replace("!=", "=")
    return f"95 * {kubelets.replace('{}', this)} or 5 * {kubelets.replace('{}', others)}"


def refuse_or_replace(site: Site, replace: str = "") -> None:
    there = site.left()
    if there and not replace:
        pytest.exit(
            f"there is a dynsched in this cluster ({', '.join(there[:3])} ...), which the tests "
            "would remove. To let them: make e2e REPLACE=1",
            returncode=2,
        )
    if there:
        wipe(site)


def wipe(site: Site) -> None:
    """Remove everything that a failed test may have left."""
    site.kubectl("delete", "--ignore-not-found", "namespace", NAMESPACE, SHOP)
    site.kubectl("delete", ",".join(EVERYWHERE), "-l", OURS)
    site.prune()


def pods_that(site: Site, code: str, app: str, *, resources: Doc, **spec: Any) -> Doc:
    """A template of pods that run this Python code in dynsched's own image."""
    command = ["python", "-c", code]
    container = {"name": "main", "image": site.image, "command": command, "resources": resources}
    spec |= {"containers": [container], "terminationGracePeriodSeconds": 0}
    return {"metadata": {"labels": {"app": app}}, "spec": spec}


WAIT = "import time; time.sleep(3600)"
BURN = "while True: pass"


def until(what: str, true: Callable[[], Any], seconds: float = 600) -> float:
    """Wait until ``true`` returns a true value; return the seconds that it took."""
    began = time.monotonic()
    while not true():
        assert time.monotonic() < began + seconds, f"not within {seconds:g} s: {what}"
        time.sleep(0.5)
    return time.monotonic() - began


def without_a_writer(site: Site, do: Callable[[], Any]) -> float:
    """Call ``do``; return the longest time between two renewals of the Lease, in seconds.

    It watches until all pods are ready again. The marks must stay all the time.
    """
    marked, before = site.marked(), state(site)
    renewed = [datetime.fromisoformat(site.lease()["spec"]["renewTime"])]
    recovered, limit = None, time.monotonic() + 600
    with ThreadPoolExecutor(1) as thread:  # in a thread, to watch the Lease meanwhile
        done = thread.submit(do)
        while recovered is None or renewed[-1] < recovered:
            assert time.monotonic() < limit, "nobody renews the Lease"
            assert site.marked() == marked
            spec = site.lease()["spec"]
            at = datetime.fromisoformat(spec["renewTime"])
            if spec.get("holderIdentity") and at > renewed[-1]:
                renewed.append(at)
            now = state(site)
            all_again = len(now) == len(before) and all(ready for *_, ready in now)
            if recovered is None and done.done() and now != before and all_again:
                done.result()
                recovered = datetime.now(UTC)
            # Each turn starts kubectl three times, with CPU that restarting pods need.
            time.sleep(0.5)
    gap = max((b - a).total_seconds() for a, b in pairwise(renewed))
    LOG.info("without a writer: %.1f s", gap)
    return gap


def state(site: Site) -> set[tuple[str, int, bool]]:
    """UID, restarts and readiness of each pod."""
    found = set()
    for pod in site.pods():
        containers = pod["status"].get("containerStatuses", [])
        ready = bool(containers) and all(each["ready"] for each in containers)
        found.add((pod["metadata"]["uid"], restarts(pod), ready))
    return found


def restarts(pod: dict[str, Any]) -> int:
    return sum(each["restartCount"] for each in pod["status"].get("containerStatuses", []))
