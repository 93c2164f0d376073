"""Every way to install it, up to the first mark, and to remove it."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from helm_support import helm
from manifest_support import Doc, kustomize, shipped, the
from programs import run
from site_support import NAMESPACE, SHOP, TAINT, WAIT, Site, hot, pods_that, until

PARTS = ("ha", "guardrail", "janitor", "inject", "webAuth", "kubectl", "collector")


def chart(site: Site, rules: Doc) -> list[Doc]:
    """The chart with all parts that work in any cluster."""
    name, _, tag = site.image.rpartition(":")
    values: dict[str, Any] = {part: {"enabled": True} for part in PARTS}
    # Rendered without a server, the chart does not know which APIs it serves.
    policies = site.has_mutating_policies()
    values["inject"]["enabled"] = policies
    values["order"] = {"by": "policy" if policies else "webhook", "score": rules["order"]["score"]}
    values["mark"] = {"taint": TAINT}
    values |= {
        "image": {"repository": name, "tag": tag},
        "prometheus": {"url": site.prometheus.url},
    }
    values |= {"interval": 5, "rules": {"rules": rules["rules"]}}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    # Objects that start pods come last, as in Helm.
    return [namespace, *sorted(helm(values), key=lambda doc: "template" in doc.get("spec", ()))]


def install_yaml(site: Site, rules: Doc) -> list[Doc]:
    """The base as a release renders it, edited like a user does; before 1.36 with the webhook."""
    docs = kustomize(shipped("base" if site.has_mutating_policies() else "order-webhook"))
    the(docs, "Deployment")["spec"]["template"]["spec"]["containers"][0]["image"] = site.image
    (settings,) = (d for d in docs if d["metadata"]["name"].startswith("dynsched-settings"))
    settings["data"] |= {"DYNSCHED_PROM": site.prometheus.url, "DYNSCHED_INTERVAL": "5"}
    the(docs, "ConfigMap", "dynsched-rules")["data"]["rules.yaml"] = yaml.safe_dump(rules)
    return docs


@pytest.mark.parametrize("way", [chart, install_yaml])
def test_it_starts_without_a_warning_marks_a_node_and_leaves_nothing_behind(
    way, site: Site, shop: str, tmp_path: Path
):
    node = site.nodes()[0]["metadata"]["name"]
    rules = hot(node)
    file = tmp_path / "all.yaml"
    file.write_text(yaml.safe_dump_all(way(site, rules)))
    with site.installed("-f", file):
        until(f"{node} is marked", lambda: site.marked() == {node})
        until("a new pod gets the order", lambda: gets_the_order(site))


def gets_the_order(site: Site) -> bool:
    pod = {"apiVersion": "v1", "kind": "Pod", **pods_that(site, WAIT, "probe", resources={})}
    pod["metadata"]["name"] = "probe"
    flags = ("-n", SHOP, "create", "--dry-run=server", "-f", "-", "-o", "json")
    done = run("kubectl", f"--kubeconfig={site.kubeconfig}", *flags, stdin=json.dumps(pod))
    assert done.returncode == 0, done.stderr
    return "dynsched.io/order" in json.loads(done.stdout)["metadata"].get("annotations", {})
