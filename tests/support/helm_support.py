"""charts/dynsched as rendered by Helm's own library, to compare with what kustomize renders."""

import json
import re
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yaml
from envtest import Envtest
from manifest_support import Doc, Kubectl
from programs import ROOT, run

try:
    import helm_python as sdk
    from helm_python.chart import Chart, lint
    from helm_python.config import Config
    from helm_python.errors import HelmError
except ImportError:  # it is installed for the second tier only; without it, every call fails
    sdk = Chart = lint = Config = HelmError = None

CHART = ROOT / "charts/dynsched"
RELEASE, NAMESPACE = "dynsched", "dynsched"
TAINT = "dynsched.io/pressure=true:PreferNoSchedule"
PARTS = (
    *("ha", "guardrail", "janitor", "monitoring", "inject", "extender"),
    *("extender-port", "web-auth", "kubectl", "descheduler", "collector"),
)
"""Parts that the chart can enable in addition to the base, named like the kustomize components."""


def value_of(part: str) -> str:
    """The value of a part: ``web-auth`` is enabled with ``webAuth.enabled``."""
    first, *rest = part.split("-")
    return first + "".join(word.capitalize() for word in rest)


def switched_on(part: str) -> Doc:
    """Values that enable one part."""
    more = {"mark": {"taint": TAINT}} if part == "descheduler" else {}
    return {value_of(part): {"enabled": True}, **more}


def everything(**more: Any) -> Doc:
    """Values that enable all parts."""
    return {key: value for part in PARTS for key, value in switched_on(part).items()} | more


HOOK = "helm.sh/hook"


def helm(values: Doc | None = None, *, namespace: str = NAMESPACE) -> list[Doc]:
    """The objects of the chart, without its notes and hooks."""
    found = rendered(values, namespace=namespace).items()
    return [
        doc
        for name, text in sorted(found)
        if not name.endswith("NOTES.txt")
        for doc in yaml.safe_load_all(text)
        if doc and HOOK not in doc["metadata"].get("annotations", {})
    ]


def rendered(values: Doc | None = None, *, namespace: str = NAMESPACE) -> dict[str, str]:
    """The text of each template, as on Kubernetes 1.36.

    The order is set to `policy`: without a server the chart finds no policy API, and `auto` would
    choose the webhook.
    """
    order = {"by": "policy"} | (values or {}).get("order", {})
    with Chart.load(CHART) as chart:
        found: dict[str, str] = chart.render(
            {**(values or {}), "order": order}, name=RELEASE, namespace=namespace
        )
    return found


def notes(values: Doc | None = None) -> str:
    """The text that is printed after an installation."""
    return rendered(values)["dynsched/templates/NOTES.txt"]


def by_identity(docs: list[Doc]) -> dict[tuple[str, str, str], Doc]:
    """Each object by kind, namespace and name, normalised so that Helm and kustomize compare equal.

    Expected differences: kustomize puts the hash of a ConfigMap into its name, Helm into an
    annotation of the pods. Helm does not create the Namespace of the release. The chart leaves the
    base's one replica to `kubectl scale`. Files in a ConfigMap are compared as parsed YAML.
    """
    text = yaml.safe_dump_all(docs)
    text = re.sub(r"(name: dynsched-[a-z]+-?[a-z]+)-[0-9a-z]{10}$", r"\1", text, flags=re.MULTILINE)
    found = {}
    for doc in yaml.safe_load_all(text):
        meta = doc["metadata"]
        if (doc["kind"], meta["name"]) == ("Namespace", NAMESPACE):
            continue
        _drop_checksum(doc)
        if doc["kind"] == "Deployment" and doc["spec"].get("replicas") == 1:
            del doc["spec"]["replicas"]
        if doc["kind"] == "ConfigMap":
            doc["data"] = {key: yaml.safe_load(value) for key, value in doc["data"].items()}
        key = (doc["kind"], meta.get("namespace", ""), meta["name"])
        assert key not in found, f"{key} twice"
        found[key] = doc
    return found


def _drop_checksum(doc: Doc) -> None:
    meta = doc.get("spec", {}).get("template", {}).get("metadata", {})
    if meta.get("annotations", {}).keys() & {"checksum/settings", "checksum/policy"}:
        del meta["annotations"]


def uninstall(
    config: Any, kubectl: Kubectl, servers: Envtest | None = None, folder: Path | None = None
) -> None:
    """`helm uninstall`, with its hook's Job marked as complete, because no Job controller runs.

    With ``servers`` and ``folder``, the Job's command is run first, with its account's token.
    """
    (release,) = config.list(all_states=True)
    there = ("-n", release["namespace"])
    with ThreadPoolExecutor(1) as thread:
        done = thread.submit(config.uninstall, release["name"])
        while not done.done():
            found = json.loads(kubectl(*there, "get", "jobs", "-o", "json"))["items"]
            for job in found:
                if not job.get("status", {}).get("succeeded"):
                    if servers is not None and folder is not None:
                        _run_job(job, kubectl, servers, folder)
                    _end_job(job, kubectl)
            time.sleep(0.1)
        done.result()


def _run_job(job: Doc, kubectl: Kubectl, servers: Envtest, folder: Path) -> None:
    spec, namespace = job["spec"]["template"]["spec"], job["metadata"]["namespace"]
    token = kubectl.token(namespace, spec["serviceAccountName"])
    account = servers.kubeconfig(folder / "kubeconfig-of-the-job", token)
    words = (*spec["containers"][0]["args"], "--kubeconfig", account)
    done = run(sys.executable, "-m", "dynsched", *words, "--lease-namespace", namespace)
    assert done.returncode == 0, done.stderr


def _end_job(job: Doc, kubectl: Kubectl) -> None:
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    ended = [
        {"type": kind, "status": "True", "lastTransitionTime": now, "lastProbeTime": now}
        for kind in ("SuccessCriteriaMet", "Complete")
    ]
    status = {"startTime": now, "completionTime": now, "succeeded": 1, "conditions": ended}
    name, there = job["metadata"]["name"], ("-n", job["metadata"]["namespace"])
    body = ("--subresource=status", "--type=merge", "-p", json.dumps({"status": status}))
    kubectl(*there, "patch", "job", name, *body)
