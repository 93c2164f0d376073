"""Real pods make a node hot, and the consequences for it and for new pods."""

import json
import logging
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from node_exporters import NodeExporter
from programs import ROOT, lacking, run
from site_support import (
    BURN,
    BY_CADVISOR,
    GIVEN,
    LABEL,
    SHOP,
    TAINT,
    WAIT,
    Site,
    pods_that,
    until,
)

LOG = logging.getLogger("e2e")
COMPONENTS = ("order", "inject", "guardrail", "kubectl")
NODE_EXPORTERS = not GIVEN and NodeExporter.is_there()
SMALL = {"requests": {"cpu": "10m"}}


@pytest.fixture(scope="module")
def dynsched(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """With a rule on cAdvisor's series and, if node-exporter runs, the shipped rules."""
    folder, rules = tmp_path_factory.mktemp("load") / "mine", site.rules()
    if NODE_EXPORTERS:
        shipped = yaml.safe_load((ROOT / "rules.yaml").read_text())
        rules = (
            shipped
            | {"order": {"score": {"node-cpu": 1}}}
            | {"rules": [*shipped["rules"], *rules["rules"]]}
        )
    rules["mark"] = {"label": LABEL, "taint": TAINT}
    with site.installed("-k", site.example(folder, COMPONENTS, rules)):
        yield site


@pytest.fixture(scope="module")
def hot(dynsched: Site, shop: str) -> str:
    """A marked node whose pods use nearly all of its CPU."""
    node: str = dynsched.nodes()[-1]["metadata"]["name"]
    milli = int(dynsched.cores() * 1000)
    count = max(1, milli // 1000)
    resources = SMALL | {"limits": {"cpu": f"{milli * 95 // 100 // count}m"}}
    there = {"kubernetes.io/hostname": node}
    burn = pods_that(dynsched, BURN, "burn", resources=resources, nodeSelector=there)
    dynsched.apply(workload("Deployment", "burn", burn, replicas=count))
    seconds = until(f"{node} is marked", lambda: dynsched.marked() == {node})
    LOG.info("%s is marked after %.0f s", node, seconds)
    return node


def workload(kind: str, name: str, template: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """A Deployment, a StatefulSet or a Job of pods from ``template``."""
    if kind == "Job":
        template["spec"]["restartPolicy"] = "Never"
    else:
        spec["selector"] = {"matchLabels": {"app": name}}
    version = "batch/v1" if kind == "Job" else "apps/v1"
    spec["template"] = template
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}


def test_a_node_whose_pods_burn_cpu_gets_label_and_taint(dynsched: Site, hot: str):
    assert dynsched.marked() == {hot}
    (node,) = (node for node in dynsched.nodes() if node["metadata"]["name"] == hot)
    taints = {(each["key"], each["value"], each["effect"]) for each in node["spec"]["taints"]}
    assert taints == {("dynsched.io/pressure", "true", "PreferNoSchedule")}


def test_the_shipped_rules_with_node_exporters_series_mark_the_same_node(dynsched: Site, hot: str):
    if not NODE_EXPORTERS:
        pytest.skip(
            "node-exporter's series: with kubelets of our own, and prometheus-node-exporter"
        )

    def firing() -> set[str]:
        rules = json.loads(dynsched.ask(f"/nodes/{hot}"))["rules"]
        return {each["rule"] for each in rules if each["state"] == "firing"}

    until("both rules fire", lambda: firing() >= {"node-cpu", BY_CADVISOR})
    assert dynsched.marked() == {hot}


def test_pods_of_each_workload_kind_get_the_order_and_go_elsewhere(dynsched: Site, hot: str):
    if not dynsched.has_mutating_policies():
        lacking("the order by policies and inject need Kubernetes 1.36")
    until("the order is there", lambda: dynsched.get("nodeorders", "-n", "dynsched"))
    dynsched.apply(
        workload("Deployment", "web", waiting(dynsched, "web"), replicas=3),
        workload("StatefulSet", "db", waiting(dynsched, "db"), replicas=2, serviceName="db"),
        workload("Job", "batch", waiting(dynsched, "batch"), completions=6, parallelism=6),
    )
    wanted = {"web": 3, "db": 2, "batch": 6}
    until("all pods run", lambda: wanted.items() <= running(dynsched).items())
    pods = [pod for pod in dynsched.get("pods", "-n", SHOP) if app_of(pod) != "burn"]
    LOG.info("pods: %s", Counter((app_of(pod), pod["spec"]["nodeName"]) for pod in pods))
    assert all("dynsched.io/order" in pod["metadata"]["annotations"] for pod in pods)
    assert hot not in {pod["spec"]["nodeName"] for pod in pods}
    avoids = {"key": "status", "operator": "NotIn", "values": ["presure"]}
    for pod in pods:
        preferred = pod["spec"]["affinity"]["nodeAffinity"][
            "preferredDuringSchedulingIgnoredDuringExecution"
        ]
        terms = [each["preference"]["matchExpressions"] for each in preferred]
        assert [avoids] in terms
        by_name = [term for [term] in terms if term["key"] == "kubernetes.io/hostname"]
        nodes = {node["metadata"]["name"] for node in dynsched.nodes()}
        # If few nodes are above equal_below, these are named, and the others match "all but".
        preferred_nodes = {
            name
            for name in nodes
            if any((name in term["values"]) == (term["operator"] == "In") for term in by_name)
        }
        assert preferred_nodes == nodes - {hot}


def test_with_the_role_of_the_component_kubectl_a_person_can_run_nodes_and_why(
    dynsched: Site, hot: str, tmp_path: Path
):
    kubectl, account = dynsched.kubectl, f"{SHOP}:ann"
    kubectl("-n", SHOP, "create", "serviceaccount", "ann")
    role = ("--role=dynsched-kubectl", f"--serviceaccount={account}")
    dynsched.ours("create", "rolebinding", "ann", *role)
    config = yaml.safe_load(kubectl("config", "view", "--raw", "--minify"))
    config["users"][0]["user"] = {"token": kubectl.token(SHOP, "ann")}
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(config))
    for command in (("nodes",), ("why", hot)):
        asked = (sys.executable, "-m", "dynsched", *command, f"--kubeconfig={file}")
        assert hot in run(*asked, check=True).stdout


def test_a_node_that_has_cooled_is_released(dynsched: Site, hot: str):
    dynsched.kubectl("-n", SHOP, "delete", "deployment", "burn")
    seconds = until(f"{hot} is released", lambda: not dynsched.marked())
    LOG.info("%s is released after %.0f s", hot, seconds)


def waiting(site: Site, app: str) -> dict[str, Any]:
    return pods_that(site, WAIT, app, resources=SMALL)


def running(site: Site) -> dict[str, int]:
    pods = site.get("pods", "-n", SHOP, "--field-selector", "status.phase=Running")
    return dict(Counter(map(app_of, pods)))


def app_of(pod: dict[str, Any]) -> str:
    found: str = pod["metadata"]["labels"]["app"]
    return found
