"""charts/dynsched as Helm's own library renders it, beside what kustomize renders."""

import re
from typing import Any

import yaml
from manifest_support import Doc
from programs import ROOT

try:
    import helm_python as sdk
    from helm_python.chart import Chart, lint
    from helm_python.config import Config
    from helm_python.errors import HelmError
except ImportError:  # it is installed for the second tier; without it, each call fails
    sdk = Chart = lint = Config = HelmError = None

CHART = ROOT / "charts/dynsched"
RELEASE, NAMESPACE = "dynsched", "dynsched"
TAINT = "dynsched.io/pressure=true:PreferNoSchedule"
PARTS = (
    *("ha", "guardrail", "janitor", "monitoring", "inject", "order", "extender"),
    *("extender-port", "web-auth", "kubectl", "descheduler", "collector"),
)
"""What the chart can switch on beside the base, by the names of the kustomize components."""


def value_of(part: str) -> str:
    """The value that a part belongs to: ``web-auth`` is switched on by ``webAuth.enabled``."""
    first, *rest = part.split("-")
    return first + "".join(word.capitalize() for word in rest)


def switched_on(part: str) -> Doc:
    """Values that switch one part on."""
    # Rendered without a server, the chart knows of no policies: `auto` is the webhook.
    return {value_of(part): {"enabled": True} | ({"by": "policy"} if part == "order" else {})}


def everything(**more: Any) -> Doc:
    """Values that switch everything on."""
    return {key: value for part in PARTS for key, value in switched_on(part).items()} | more


def helm(values: Doc | None = None, *, namespace: str = NAMESPACE) -> list[Doc]:
    """The objects of the chart, and of its notes nothing."""
    with Chart.load(CHART) as chart:
        found = chart.render(values or {}, name=RELEASE, namespace=namespace)
    return [
        doc
        for name, text in sorted(found.items())
        if not name.endswith("NOTES.txt")
        for doc in yaml.safe_load_all(text)
        if doc
    ]


def notes(values: Doc | None = None) -> str:
    """What is printed after an installation."""
    with Chart.load(CHART) as chart:
        found = chart.render(values or {}, name=RELEASE, namespace=NAMESPACE)
    return found["dynsched/templates/NOTES.txt"]


def by_identity(docs: list[Doc]) -> dict[tuple[str, str, str], Doc]:
    """Each object by kind, namespace and name, in the form in which both are the same.

    Different by the nature of the two: kustomize has the hash of a ConfigMap in its name, Helm in
    an annotation of the pods; Helm makes no Namespace of the release; files in a ConfigMap are
    compared by what they say.
    """
    text = yaml.safe_dump_all(docs)
    text = re.sub(r"(name: dynsched-[a-z]+-?[a-z]+)-[0-9a-z]{10}$", r"\1", text, flags=re.MULTILINE)
    found = {}
    for doc in yaml.safe_load_all(text):
        meta = doc["metadata"]
        if (doc["kind"], meta["name"]) == ("Namespace", NAMESPACE):
            continue
        _drop_checksum(doc)
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
